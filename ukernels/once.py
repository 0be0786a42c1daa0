"""Ukernels for a few rows of activations that each workgroup quantises once: all its waves together, into LDS.

In `quantising.py` a lane quantises the blocks that it multiplies, and lanes of rows that are not there do nothing. Here
four lanes share a block of any row: each loads a quarter of it, they exchange quarters, and one of them stores the
quantised block. So a row of 4096 takes a lane 8 elements. Operands and packing are those of `quantising.py`.

A norm in front is a part of it (`Normalising`): each wave adds up what its lanes have of a row, `@sum0` of it, waves
exchange sums through LDS, and `@normalise` makes what is quantised of a lane's elements, the sums, and what rows are
multiplied by. Both are the model's arithmetic (`packing/block_quantiser.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

from iree.compiler import ir

from mxcomp.formats import E2M1, E4M3
from mxcomp.layout import LHS
from mxcomp.mlir import build
from mxcomp.target import Target
from mxcomp.ukernels import builder, quantising
from mxcomp.ukernels.brought import NORMALISE, SUM, quantised
from mxcomp.ukernels.builder import Factor, Index, Values, sched_barrier, select, when
from mxcomp.ukernels.operands import SCALE_VECTOR, factor
from mxcomp.ukernels.softmax import added, of_wave
from mxcomp.ukernels.split_k import Flight, InFlight
from mxcomp.ukernels.waves import BEYOND, BLOCK, BLOCKS, INNER_ROWS, LANES, MFMA

BITS = 16
"""The bits of an activation."""
MOST_BLOCKS = 512
"""The largest number of blocks of all rows for which LDS has room: four rows of 4096, or one of 16384."""
PARTS = 4
"""The number of lanes that share a block."""


_LOAD, _WORD_BYTES = 4, 4
"""The number of words that a lane loads at a time."""
ELEMENTS = (E2M1.mlir_type, E4M3.mlir_type)
_WAVE_BLOCKS = LANES // PARTS
"""The number of blocks that a wave has at a time, which are of one row."""


@dataclass(frozen=True)
class Instance(quantising.Instance):
    """A member: the tile and the types of an instance of `quantising.py`.

    Attributes:
        sums: The number of sums along rows of a norm in front.
        vectors: The bits of what rows are multiplied by, and the like, in the norm.
    """

    kernel: type[Once]
    sums: int = 0
    vectors: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return super().name + ("_norm" if self.sums else "")

    def lds_bytes(self, target: Target) -> int:
        blocks = self.kernel.most * (MFMA.lane_bytes(self.elements[LHS]) + 1)
        return super().lds_bytes(target) + blocks + self.sums * self.kernel.most // _WAVE_BLOCKS * _WORD_BYTES

    @property
    def timed_rows(self) -> tuple[int, int]:
        return self.kernel.timed_rows

    def covers(self, m: int, n: int, k: int) -> bool:
        """Returns whether it computes a problem of this size, whose blocks, up to a whole K tile, fit into LDS."""
        step = self.layout.workgroup_tile[2]
        return super().covers(m, n, k) and m * -(-k // step) * step <= self.kernel.most * BLOCK

    def arguments(self) -> tuple[ir.RankedTensorType, ...]:
        x, *others = super().arguments()
        words = (build.tensor_type((None, BLOCK * bits // (8 * _WORD_BYTES)), "i32") for bits in self.vectors)
        return (x, *words, *others)


def normalising(instance: Instance, sums: int, vectors: tuple[int, ...]) -> Instance:
    return replace(instance, kernel=Normalising, sums=sums, vectors=vectors)


# The kernel

Parts: TypeAlias = Sequence[tuple[Index, Values]]
"""The numbers of a lane's parts of blocks, and what it has loaded for each."""


class Blocks(InFlight):
    """LHS: blocks of all rows and their scales in LDS, ordered by block, then by row.

    A lane's scales of a K tile lie together: by tile, group of lanes, row, step. Lanes of rows that are not there
    multiply the last row.
    """

    def __init__(self, element: str, rows: Index, steps: int, most: int) -> None:
        self.element, self._rows, self.steps, self._bytes = element, rows, steps, MFMA.lane_bytes(element)
        self._is_whole = MFMA.holds_blocks(element)
        self._codes, self._scales = builder.lds(most * self._bytes), builder.lds(most)

    def distribute(self, lane: Index) -> None:
        self._group, row = (lane // INNER_ROWS).here, lane % INNER_ROWS
        self.row = select(row < self._rows, row, self._rows + -1)

    def first(self, tile: Index, has_any: ir.Value) -> Index:
        return select(has_any, tile, 0)

    def write(self, block: Index, row: Index, is_block: ir.Value, code: ir.Value, scale: ir.Value) -> None:
        """Writes a block and its scale, or zeros after the last block of a row."""
        tile, step, group = block // (self.steps * BLOCKS), block // BLOCKS % self.steps, block % BLOCKS
        place = block.times(self._rows) + row
        builder.write_lds(builder.masked(is_block, code), self._codes, place * self._bytes)
        byte = builder.from_elements([builder.masked(is_block, scale)])
        builder.write_lds(byte, self._scales, self._scale_place(tile, group, row) + step)

    def scales(self, tile: Index) -> Values:
        place = self._scale_place(tile, self._group, self.row)
        return [builder.padded(builder.read_lds(self._scales, place, self.steps), SCALE_VECTOR)]

    def _scale_place(self, tile: Index, group: Index, row: Index) -> Index:
        return ((tile * BLOCKS + group).times(self._rows) + row) * self.steps

    def step(self, tile: Index, step: int) -> list[Any]:
        """Reads a lane's part of a step: a block, or halves of two."""
        first, half = (tile * self.steps + step) * BLOCKS, self._bytes // 2
        if self._is_whole:
            return [builder.read_lds(self._codes, self._place(first + self._group), self._bytes)]
        places = (self._place(first + self._group // 2 + 2 * i) + self._group % 2 * half for i in range(2))
        return [builder.joined([builder.read_lds(self._codes, place, half) for place in places])]

    def _place(self, block: Index) -> Index:
        return (block.times(self._rows) + self.row) * self._bytes

    def factors(self, flight: Flight, step: int) -> list[Factor]:
        return [factor(flight[1 + step][0], self.element, flight[0][0], step)]


class Once(quantising.FlatStream):
    """Writes the kernel of an instance without a norm: all waves of a workgroup quantise LHS together, a lane a quarter
    of a block at a time. Meanwhile the first K tile of RHS is on its way."""

    prefix, in_order = "mx_fused_quant{}_once_", True
    most, timed_rows = MOST_BLOCKS, (1, 4)
    """The number of blocks for which LDS has room, and the rows between which times are known. With more, lanes of
    `quantising.py` have enough rows to do as much."""
    words = BLOCK * BITS // (8 * _WORD_BYTES)
    """The number of words of a block."""

    def _activations(self, x: ir.Value, blocks: Index) -> None:
        self.x, all_blocks, _ = quantising.opened(x)
        self.blocks, self.x_rows = blocks, all_blocks // blocks
        self.padded = self.k_tiles * (self.steps * BLOCKS)
        self.entries = self.padded.times(self.x_rows)
        self.a = Blocks(self.instance.elements[LHS], self.x_rows, self.steps, self.most)
        self.streamed = *self.b, self.a

    def _distribute(self, thread: Index) -> None:
        super()._distribute(thread)
        self.quarter, self.entry = thread % PARTS, (thread // PARTS).here
        self.step_of_entries = self.waves * LANES // PARTS

    def _prologue(self) -> list[Flight]:
        """Loads activations, which come from L2, before RHS: loads return in order."""
        entries = [self.entry + turn * self.step_of_entries for turn in range(self.ahead)]
        parts = [(entry, self._load(entry, entry < self.entries)) for entry in entries]
        sched_barrier()
        flights = self._loaded(*self.b)
        builder.fence()  # or LLVM would load activations behind RHS, where only some lanes want them
        self._sum(parts)
        self._compute(parts)
        builder.lds_barrier()
        return [*flights, *self._loaded(self.a)]

    @property
    def ahead(self) -> int:
        """The number of a lane's parts of blocks that are loaded in front: all that there can be."""
        return -(-self.most // self.step_of_entries)

    def _sum(self, parts: Parts) -> None:
        """Sums up rows, where there is a norm."""

    def _compute(self, parts: Parts) -> None:
        for entry, words in parts:
            with when(entry < self.entries):
                self._quantise(entry, words)

    def _at(self, entry: Index) -> tuple[Index, Index]:
        """Returns the block, and the row, of an entry: rows one behind the other, padded to whole K tiles."""
        return entry % self.padded, (entry // self.padded).here

    def _load(self, entry: Index, is_entry: ir.Value | None = None) -> Values:
        block, row = self._at(entry)
        there = self._there(block, row.times(self.blocks) + block, is_entry, self.words)
        return [builder.load(self.x, [there, word], _LOAD) for word in self._words_of_lane(self.words)]

    def _there(self, block: Index, place: Index, is_entry: ir.Value | None, words: int) -> Index:
        """Returns the place of a block, or an out-of-bounds one."""
        beyond = BEYOND // (words * _WORD_BYTES)
        there = select(block < self.blocks, place, beyond)
        return there if is_entry is None else select(is_entry, there, beyond)

    def _words_of_lane(self, words: int) -> list[Index]:
        """Returns where the words of a lane's quarter begin, which are contiguous."""
        quarter = words // PARTS
        return [self.quarter * quarter + word for word in range(0, quarter, _LOAD)]

    def _quantise(self, entry: Index, words: Values) -> None:
        """Quantises a block, whose quarters lanes exchange."""
        code, scale = quantised(self.a.element, builder.from_elements(self._block(entry, words)))
        block, row = self._at(entry)
        with when(self.quarter < 1):
            self.a.write(block, row, block < self.blocks, code, scale)

    def _block(self, entry: Index, words: Values) -> Values:
        """Returns the words of a block from those of a lane's quarter."""
        return builder.all_of_quad(builder.joined(words))


class Normalising(Once):
    """Writes the kernel of an instance with a norm.

    What waves have of rows are parts in LDS, for each sum: a lane of a wave takes each part of a row, and they are
    added up alike in all of them, in an order that only depends on sizes.
    """

    instance: Instance

    def _operands(self, *given: ir.Value) -> None:
        x, *others = given
        count = len(self.instance.vectors)
        self.vectors = [(source, words) for source, _, words in map(quantising.opened, others[:count])]
        super()._operands(x, *others[count:])
        self.parts_of_rows = [builder.lds(self.most // _WAVE_BLOCKS, "f32") for _ in range(self.instance.sums)]

    def _load(self, entry: Index, is_entry: ir.Value | None = None) -> Values:
        """Loads a lane's quarter of a block, and of vectors."""
        found, (block, _) = super()._load(entry, is_entry), self._at(entry)
        for source, words in self.vectors:
            there = self._there(block, block, is_entry, words)
            found += [builder.load(source, [there, word], _LOAD) for word in self._words_of_lane(words)]
        return found

    def _sum(self, parts: Parts) -> None:
        for stage in range(self.instance.sums):
            for entry, words in parts:
                with when(entry < self.entries):
                    self._add(stage, entry, words)
            builder.lds_barrier()

    def _add(self, stage: int, entry: Index, words: Values) -> None:
        """Adds up what a wave has of a row."""
        f32, (block, _) = ir.F32Type.get(), self._at(entry)
        (part,) = builder.call(f"{SUM}{stage}", self._given(stage, entry, words), f32)
        total = of_wave(builder.masked(block < self.blocks, part), added)
        with when(self.lane < 1):
            builder.write_lds(builder.from_elements([total]), self.parts_of_rows[stage], entry // _WAVE_BLOCKS)

    def _given(self, sums: int, entry: Index, words: Values) -> Values:
        """Returns the arguments of functions: a lane's words of rows and of vectors, and so many sums of the row."""
        x, others = words[0], iter(words[1:])
        vectors = [builder.joined(list(islice(others, size // PARTS // _LOAD))) for _, size in self.vectors]
        return [x, *vectors, *(self._total(stage, entry) for stage in range(sums))]

    def _total(self, stage: int, entry: Index) -> ir.Value:
        """Returns a sum of the row of an entry."""
        parts, (_, row) = self.padded // _WAVE_BLOCKS, self._at(entry)
        is_part = self.lane < parts
        place = row.times(parts) + select(is_part, self.lane, 0)
        part = builder.element(builder.read_lds(self.parts_of_rows[stage], place, 1), 0)
        return of_wave(builder.masked(is_part, part), added)

    def _block(self, entry: Index, words: Values) -> Values:
        given = self._given(self.instance.sums, entry, words)
        return builder.all_of_quad(*builder.call(NORMALISE, given, given[0].type))


INSTANCES = tuple(
    Instance(each.tile, each.elements, Once, each.bits, each.matrices)
    for each in quantising.INSTANCES
    if each.bits == BITS and all(kind in ELEMENTS for kind in each.elements)
)
