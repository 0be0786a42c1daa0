"""The kernel that quantises queries, keys and values of MX attention, and stores them as that kernel reads them.

A workgroup has a unit of one of them, blocks of some rows; a lane quantises a block at a time, or one of each of some
rows where these are neighbours in memory, as those of values are, whose blocks are of keys. Scales of keys and values
lie in the order in which lanes of a matrix instruction have them (`attention_mx_rows.row_order`), with zeros for blocks
that fill a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from iree.compiler import ir

from mxcomp.mlir import build
from mxcomp.ukernels import builder, standing
from mxcomp.ukernels.attention_mx_rows import GROUPS, VALUES
from mxcomp.ukernels.brought import QUANTISE, quantised
from mxcomp.ukernels.builder import Index, Threads, Values, both, select
from mxcomp.ukernels.waves import BEYOND, BLOCK, MFMA

_THREADS, _LINE = 256, 128
_NEIGHBOURS = 4
"""Rows of which a lane has a block each, where rows are neighbours in memory."""

_LEAST = 2
"""The least share of a workgroup in bytes: in a dimension of size 1 IREE takes any place for 0."""

ROW, ALONG = "row", "k"
"""The axes of an operand: a row, of all heads, and an element of it."""


@dataclass(frozen=True)
class Subscript:
    """A subscript of a tensor in memory: (`axis` // `stride`) % `extent`; what is not below `size` is a zero."""

    axis: str
    stride: int
    extent: int
    size: int

    @property
    def is_element(self) -> bool:
        """Whether it is of neighbouring elements of a block."""
        return self.axis == ALONG and self.stride == 1


@dataclass(frozen=True)
class Quantised:
    """An operand.

    Attributes:
        heads, rows, blocks: Rows of a head, and blocks of a row, that are stored.
        unit: The rows and blocks of a workgroup, of which some may be behind the last ones.
        neighbours: The rows of a unit of which a lane of a matrix instruction has scales; 0: scales lie as blocks do.
        format: The type of elements.
        element, bits: The type of what is quantised, and its bits.
        source: Where that lies.
    """

    heads: int
    rows: int
    blocks: int
    unit: tuple[int, int]
    neighbours: int
    format: str
    element: str
    bits: int
    source: tuple[Subscript, ...]

    @property
    def units(self) -> tuple[int, int]:
        """The units of a head: along rows, and along blocks."""
        return -(-self.rows // self.unit[0]), -(-self.blocks // self.unit[1])

    @property
    def workgroups(self) -> int:
        return self.heads * math.prod(self.units)

    @property
    def columns(self) -> int:
        """The rows of which a lane has a block each."""
        return _NEIGHBOURS if self.source[-1].axis == ROW else 1

    @property
    def lane_bytes(self) -> int:
        return MFMA.lane_bytes(self.format)

    @property
    def stored(self) -> tuple[int, int]:
        blocks = self.heads * self.rows * self.blocks
        scales = self.workgroups * math.prod(self.unit) if self.neighbours else blocks
        return blocks * self.lane_bytes, scales

    @property
    def source_elements(self) -> int:
        return math.prod(each.size for each in self.source)

    @property
    def is_taken(self) -> bool:
        """Whether a lane loads a block at once, or neighbours of each of its elements."""
        along = [each for each in self.source if each.is_element]
        if len(along) != 1 or along[0].extent % BLOCK or self.source_elements * self.bits // 8 > builder.MOST_BYTES:
            return False
        *others, last = self.source
        units = {ALONG: BLOCK, ROW: self.columns}
        if any(each.stride % units[each.axis] for each in others if not each.is_element):
            return False
        if last.is_element:
            return last.size % BLOCK == 0
        sizes = last.size, last.extent, self.rows
        return last.axis == ROW and last.stride == 1 and not any(each % _NEIGHBOURS for each in sizes)


@dataclass(frozen=True)
class Quantisers(standing.Plain):
    """Operands, and the text of a module with `@quantise0`, …, which return the bytes of a block and its scale."""

    operands: tuple[Quantised, ...]
    functions: str

    threads = _THREADS

    @property
    def name(self) -> str:
        kinds = "_".join(f"f{8 * each.lane_bytes // BLOCK}" for each in self.operands)
        return f"mx_attention_quantise_{kinds}_{builder.digest(self)}"

    @property
    def workgroups(self) -> int:
        return sum(each.workgroups for each in self.operands)

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        return [build.tensor_type([each.source_elements], each.element) for each in self.operands]

    @property
    def results(self) -> list[ir.RankedTensorType]:
        """The types of elements and scales as bytes: equal shares of workgroups, which are not what they store, with
        spare bytes behind."""
        shares = [max(_LEAST, -(-size // self.workgroups)) for each in self.operands for size in each.stored]
        return [build.tensor_type([self.workgroups, share], "i8") for share in shares]

    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        """Writes what a workgroup does: puts its unit, of whichever operand it is, into that one's results."""
        buffers = [builder.whole_buffer(each) for each in given[: len(self.operands)]]
        first = 0
        for number, own in enumerate(self.operands):
            behind = first + own.workgroups
            unit = _Unit(own, number, workgroup + -first, workgroup, buffers[number], threads)
            threads.where(both(workgroup >= first, workgroup < behind), unit.put, unit.results)
            first = behind
        threads.keep()


class _Unit:
    """Writes what a workgroup does for a unit of an operand, whose elements and scales are two results."""

    def __init__(
        self, spec: Quantised, number: int, unit: Index, workgroup: Index, buffer: ir.Value, threads: Threads
    ) -> None:
        self.spec, self.number, self.unit, self.buffer, self.threads = spec, number, unit, buffer, threads
        self.results = slice(2 * number, 2 * number + 2)
        shares = [ir.RankedTensorType(out.type).shape[1] for out in threads.outs[self.results]]
        self.base = [workgroup * -share for share in shares]
        """The places of the results whose part the workgroup is given, relative to that part."""

    def put(self) -> None:
        """Puts a thread's blocks into elements and scales."""
        (rows, blocks), (along_rows, along_blocks) = self.spec.unit, self.spec.units
        self.unit = self.unit.here
        self.head = (self.unit // (along_rows * along_blocks)).here
        self.row = (self.unit // along_blocks % along_rows * rows).here
        self.block = (self.unit % along_blocks * blocks).here
        items = rows // self.spec.columns * blocks
        for first in range(0, items, _THREADS):
            item = (self.threads.number + first).here
            put = partial(self._put, *self._place(item))
            put() if items - first >= _THREADS else self.threads.where(item < items, put, self.results)

    def _place(self, item: Index) -> tuple[Index, Index]:
        """Returns the first row, and the block, of a thread: those of a wave are neighbours in memory."""
        columns, blocks = self.spec.columns, self.spec.unit[1]
        if columns == 1:
            return item // blocks, item % blocks
        line = _LINE * 8 // (self.spec.bits * columns)
        return (item // (line * blocks) * line + item % line) * columns, item // line % blocks

    def _put(self, row: Index, block: Index) -> None:
        """Puts the blocks of a lane, the first of which is that of this row of the unit."""
        spec = self.spec
        here, along = (self.head * spec.rows + self.row + row).here, (self.block + block).here
        bounds = (self.row + row, spec.rows, spec.unit[0]), (along, spec.blocks, spec.unit[1])
        inside = [number < size for number, size, unit in bounds if size % unit]
        stored, is_stored = (here * spec.blocks + along).here, builder.all_of(inside)
        for column, words in enumerate(self._load(here, along, inside)):
            made, scale = quantised(spec.format, words, f"{QUANTISE}{self.number}")
            place = stored + column * spec.blocks
            of_scale, is_kept = place, is_stored
            if spec.neighbours:
                of_unit = block * spec.unit[0] + self._in_order((row + column).here)
                of_scale, is_kept = self.unit * math.prod(spec.unit) + of_unit, None
            self._put_bytes(0, place * spec.lane_bytes, made, is_stored)
            self._put_bytes(1, of_scale, builder.from_elements([scale]), is_kept)

    def _put_bytes(self, of_pair: int, at: Index, value: ir.Value, condition: ir.Value | None) -> None:
        (size,) = ir.VectorType(value.type).shape
        place = [0, self.base[of_pair] + at]
        self.threads.put(2 * self.number + of_pair, place, size, value, condition)

    def _in_order(self, row: Index) -> Index:
        """Returns the place of a row of a unit in the order of `row_order`: groups and rows of each, then fragments."""
        rows, unit = self.spec.unit[0], self.spec.neighbours
        part, group, fragment = row // (GROUPS * unit), row // unit % GROUPS, row % unit // VALUES
        in_group = part * (unit // VALUES) + fragment
        return (group * VALUES + row % VALUES) * (rows // (GROUPS * VALUES)) + in_group

    def _load(self, row: Index, block: Index, inside: Sequence[ir.Value]) -> Values:
        """Returns words of a block of each neighbouring row; zeros of what is not in memory."""
        spec, known = self.spec, {ROW: row, ALONG: (block * BLOCK).here}
        place, step, stride, ends = Index.of(0), 1, 1, list[tuple[Index, int, int]]()
        for each in reversed(spec.source):
            subscript = (known[each.axis] // each.stride % each.extent).here
            place, moves = place + subscript * stride, each.is_element
            step = stride if moves else step
            ends += [(subscript, int(moves), each.size)] if each.size < each.extent else []
            stride *= each.size
        place, of_loads = place.here, list[ir.Value]()
        size, count = (BLOCK, 1) if spec.columns == 1 else (spec.columns, BLOCK)
        for i in range(count):
            there = builder.all_of([*inside, *(subscript + i * moves < size for subscript, moves, size in ends)])
            at = place + i * step
            at = at if there is None else select(there, at, BEYOND * 8 // spec.bits)
            of_loads.append(builder.load(self.buffer, [at], size, min(16, size * spec.bits // 8)))
        if spec.columns > 1:
            columns = range(spec.columns)
            of_loads = [builder.from_elements([builder.element(each, i) for each in of_loads]) for i in columns]
        return [builder.words(each) for each in of_loads]
