"""Ukernels for few rows that compute hidden activations from gate and up, and quantise them.

The RHS is packed in units as for `split_k.py`, and operands are flat as those of `quantising`: a block of 32
activations is 64 words of f32, alternately gate and up. A dispatch brings the function that computes a block of
elements and its scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from iree.compiler import ir

from mxcomp.formats import E2M1, E4M3
from mxcomp.layout import GATE_AND_UP, LHS
from mxcomp.mlir import build
from mxcomp.target import Target
from mxcomp.ukernels import builder, quantising, split_k
from mxcomp.ukernels.builder import Factor, Index, Values, sched_barrier, select, when
from mxcomp.ukernels.operands import SCALE_VECTOR, factor
from mxcomp.ukernels.split_k import Flight
from mxcomp.ukernels.waves import BEYOND, BLOCK, BLOCKS, HALF_STEPS, LANES, MFMA, STEPS, UNIT_ROWS, Waves, unit_layout

BITS = 32 * len(GATE_AND_UP)
"""The bits of an activation: an f32 gate and an f32 up."""

MOST_BLOCKS = 256
"""The largest number of blocks of all rows for which LDS has room: two rows of 4096, or eight of 1024."""

_WORDS = BLOCK * len(GATE_AND_UP)
"""The number of words of a block."""
_PARTS, _PIECES = 4, 4
"""The number of lanes that compute a block, and of loads of each: lanes load contiguous words at a time."""


@dataclass(frozen=True)
class Instance(quantising.Instance):
    """A member: the tile and the types of an instance of `split_k.py`; `bits` are always `BITS`."""

    def lds_bytes(self, target: Target) -> int:
        return super().lds_bytes(target) + MOST_BLOCKS * (MFMA.lane_bytes(self.elements[LHS]) + 1)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(quantising.SOURCE_BITS)

    @property
    def rule(self) -> dict[str, Any]:
        """Returns the rule. Half units are for even numbers of K tiles, too, as smaller tiles wait less for their first
        data."""
        rule = super().rule
        k = {name: bound for name, bound in rule["constraints"]["k"].items() if name != "odd"}
        return rule | {"constraints": rule["constraints"] | {"k": k}}

    @property
    def timed_rows(self) -> tuple[int, int]:
        return _TIMED_ROWS

    def covers(self, m: int, n: int, k: int) -> bool:
        """Returns whether it computes a problem of this size, whose blocks, up to a whole K tile, fit into LDS."""
        step = self.layout.workgroup_tile[2]
        return super().covers(m, n, k) and m * -(-k // step) * step <= MOST_BLOCKS * BLOCK


_TIMED_ROWS = (2, 8)
"""The rows of blocks of few tokens for which times are known: see `mxcomp.routing.MEANS`."""

_ELEMENTS = (E2M1.mlir_type, E4M3.mlir_type)

_TILES = ((4, 8, STEPS), (4, 1, STEPS), (2, 4, HALF_STEPS), (4, 4, HALF_STEPS), (4, 1, HALF_STEPS), (8, 1, HALF_STEPS))
"""The units along N, waves along K, and steps of a unit, of tiles."""

TILES = [split_k.Tile(unit_layout(1, n, steps), -4, waves=Waves(k=k)) for n, k, steps in _TILES]

# The kernel

_LOAD = 4
"""The number of words that a lane loads at a time."""


class _Blocks:
    """LHS: blocks of all rows and their scales in LDS, ordered by block, then by row.

    A lane's scales of a K tile lie together: by tile, group of lanes, row, step. Lanes of rows that are not there
    multiply the last row.
    """

    def __init__(self, element: str, rows: Index, steps: int) -> None:
        self.element, self._rows, self.steps, self._bytes = element, rows, steps, MFMA.lane_bytes(element)
        self._is_whole = MFMA.holds_blocks(element)
        self._codes, self._scales = builder.lds(MOST_BLOCKS * self._bytes), builder.lds(MOST_BLOCKS)

    def distribute(self, lane: Index) -> None:
        self._group, row = (lane // UNIT_ROWS).here, lane % UNIT_ROWS
        self._row = select(row < self._rows, row, self._rows + -1)

    def first(self, tile: Index, has_any: ir.Value) -> Index:
        return select(has_any, tile, 0)

    def write(self, entry: Index, is_block: ir.Value, code: ir.Value, scale: ir.Value) -> None:
        """Writes a block and its scale, or zeros after the last block of a row."""
        block, row = (entry // self._rows).here, entry % self._rows
        tile, step, group = block // (self.steps * BLOCKS), block // BLOCKS % self.steps, block % BLOCKS
        builder.write_lds(builder.masked(is_block, code), self._codes, entry * self._bytes)
        byte = builder.from_elements([builder.masked(is_block, scale)])
        builder.write_lds(byte, self._scales, self._scale_place(tile, group, row) + step)

    def scales(self, tile: Index) -> Values:
        """Reads a lane's scales of a K tile."""
        place = self._scale_place(tile, self._group, self._row)
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
        return (block.times(self._rows) + self._row) * self._bytes

    def factors(self, flight: Flight, step: int) -> list[Factor]:
        return [factor(flight[1 + step][0], self.element, flight[0][0], step)]


class Hidden(quantising.FlatStream):
    """Writes the kernel of an instance: `split_k.Stream` with another LHS.

    All waves of a workgroup together compute the hidden activations of all its rows, a lane a quarter of a block at a
    time, by `@activate`. It hands it to the other lanes of the block, which all quantise it, by `@quantise`, and leave
    blocks and scales in LDS. Meanwhile the first K tile of RHS is on its way.
    """

    operands, prefix = "hidden", "mx_fused_swiglu_"

    def _operands(self, *given: ir.Value) -> None:
        x, *weights = given
        self.blocks, (self.b,) = self._weights(*weights)
        all_blocks = Index.of(build.dim(x, 0))
        self.x = builder.buffer(x, all_blocks, (None, _WORDS), (_WORDS, 1), "i32")
        self.x_rows = all_blocks // self.blocks
        self.entries = (self.k_tiles * (self.steps * BLOCKS)).times(self.x_rows)
        self.a = _Blocks(self.instance.elements[LHS], self.x_rows, self.steps)
        self.streamed = self.b, self.a

    def _distribute(self, thread: Index) -> None:
        super()._distribute(thread)
        self.quarter, self.entry = thread % _PARTS, (thread // _PARTS).here
        self.step_of_entries = self.waves * LANES // _PARTS

    # Prologue

    def _prologue(self) -> list[Flight]:
        """Loads gate and up, which come from L2, before RHS: loads return in order."""
        words = self._load(self.entry, self.entry < self.entries)
        sched_barrier()
        flights = self._loaded(self.b)
        builder.fence()  # or LLVM would load gate and up behind RHS, where only some lanes want them
        self._compute(words)
        builder.lds_barrier()
        return [*flights, *self._loaded(self.a)]

    def _compute(self, words: Values) -> None:
        """Computes all blocks; a lane's first part, which is loaded already, separately.

        Where those met LLVM would wait for RHS as well. Nothing is loaded behind the last: registers that something is
        on its way to cannot be used again.
        """
        with when(self.entry < self.entries):
            self._quantise(self.entry, words)
        second, none = self.entry + self.step_of_entries, [builder.constant_zeros(each.type) for each in words]

        def loaded(entry: Index) -> Values:
            return builder.choose(entry < self.entries, lambda: self._load(entry), none)

        def turn(entry: Index, words: Values) -> list[Values]:
            self._quantise(entry, words)
            return [loaded(entry + self.step_of_entries)]

        builder.loop(self.entries, turn, loaded(second), start=second, step=self.step_of_entries)

    def _load(self, entry: Index, is_entry: ir.Value | None = None) -> Values:
        """Loads a lane's quarter of a block: gate and up alternately."""
        block, row = (entry // self.x_rows).here, entry % self.x_rows
        there = select(block < self.blocks, row.times(self.blocks) + block, _BEYOND)
        if is_entry is not None:
            there = select(is_entry, there, _BEYOND)
        words = (self.quarter * _LOAD + piece * (_LOAD * _PARTS) for piece in range(_PIECES))
        return [builder.load(self.x, [there, word], _LOAD) for word in words]

    def _quantise(self, entry: Index, words: Values) -> None:
        """Computes a quarter of a block, exchanges it with the other lanes of the block, and quantises the block."""
        i8, i32 = (ir.IntegerType.get_signless(bits) for bits in (8, 32))
        (part,) = builder.call("activate", [builder.joined(words)], ir.VectorType.get([BLOCK // _PARTS], i32))
        own = [builder.element(part, number) for number in range(BLOCK // _PARTS)]
        pairs = _LOAD // len(GATE_AND_UP)
        block = [
            builder.of_quad(own[piece * pairs + i], lane)
            for piece, lane, i in product(range(_PIECES), range(_PARTS), range(pairs))
        ]
        kinds = builder.byte_vector(MFMA.lane_bytes(self.a.element)), i8
        code, scale = builder.call("quantise", [builder.from_elements(block)], *kinds)
        is_block = entry // self.x_rows < self.blocks
        with when(self.quarter < 1):
            self.a.write(entry, is_block, code, scale)


_BEYOND = BEYOND // (_WORDS * 4)
"""An out-of-bounds block."""


INSTANCES = tuple(
    Instance(tile, elements, Hidden, BITS)
    for tile, elements in product(TILES, product(_ELEMENTS, _ELEMENTS))
    if tile.fits(elements)
)
