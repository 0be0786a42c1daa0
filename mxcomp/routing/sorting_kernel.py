"""The kernel that sorts slots by expert in one workgroup: all tables of a grouped matmul from the expert of each slot.

The tables follow each other: the row of each slot, the slot of each row, the expert of each block, and how many blocks
are valid. They are put together in LDS. A slot whose expert there is not has no row: what stands for its row is the
number of rows and the slot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from iree.compiler import ir
from iree.compiler.dialects import arith, memref, vector

from mxcomp.mlir import build
from mxcomp.target import Target
from mxcomp.ukernels import builder, standing
from mxcomp.ukernels.builder import Index, Threads, Values, select
from mxcomp.ukernels.waves import LANES, MOST_THREADS

_MOST_SLOTS = 4096
"""The number of slots above which dispatches of many workgroups take less time, modelled."""
_TABLES = 4, 5
"""The fraction of LDS that tables may take, 4 of 5, which leaves room for the rest."""


_SLOTS, _EXPERTS, _VALID = 1, 2, 3
"""The indices of the tables of rows, of blocks, and of the number of valid blocks."""


@dataclass(frozen=True)
class Sorting(standing.Plain):
    """`slots` that go to `experts`, into at most `blocks` blocks of `block_m` rows."""

    slots: int
    experts: int
    block_m: int
    blocks: int

    along = ()

    def fits(self, target: Target) -> bool:
        """Returns whether one workgroup of a GPU has a lane for each expert, and room for all tables."""
        if target.wave_size != LANES or self.threads > target.max_workgroup_threads:
            return False
        has_lanes = self.experts <= MOST_THREADS and self.slots <= _MOST_SLOTS
        part, of = _TABLES
        return has_lanes and self.size * 4 * of <= target.lds_bytes * part

    @property
    def name(self) -> str:
        return f"mx_sort_slots_s{self.slots}_e{self.experts}_b{self.blocks}_m{self.block_m}"

    @property
    def threads(self) -> int:
        return _up(min(max(self.slots, self.experts), MOST_THREADS), LANES)

    @property
    def starts(self) -> tuple[int, int, int, int]:
        """The offsets of tables: the row of each slot, the slot of each row, the expert of each block, valid blocks."""
        rows = self.blocks * self.block_m
        return 0, self.slots, self.slots + rows, self.slots + rows + self.blocks

    @property
    def size(self) -> int:
        """The size of all tables, padded to the last lane's piece."""
        return _up(self.starts[-1] + 1, self.threads)

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        return [build.tensor_type([self.slots], "i32")]

    @property
    def results(self) -> list[ir.RankedTensorType]:
        return [build.tensor_type([self.size], "i32")]

    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        _Sort(self, builder.whole_buffer(given[0])).write(threads)


# The kernel

_WIDE = 16
"""The number of slots of a wave that a lane compares with its own at a time."""

_NONE = -1
"""The expert of a missing slot or block."""


class _Sort:
    """Writes the kernel. A lane has an expert, and in each round a slot."""

    def __init__(self, sorting: Sorting, ids: ir.Value) -> None:
        self.sorting, self.ids = sorting, ids
        self.of_slots, self.of_experts, self.firsts, self.tables = (
            builder.lds(size, "i32") for size in (sorting.threads, sorting.experts, sorting.experts, sorting.size)
        )

    def write(self, threads: builder.Threads) -> None:
        self.id = threads.number
        self.wave, self.lane = (self.id // LANES).here, (self.id % LANES).here
        self.is_expert = self.id < self.sorting.experts
        rounds = Index.of(ceil(self.sorting.slots / self.sorting.threads))
        self._clear()
        builder.loop(rounds, self._rank)
        self._number_blocks()
        builder.loop(rounds, self._place)
        builder.lds_barrier()
        chunk = self.sorting.size // self.sorting.threads
        threads.store([builder.read_lds(self.tables, self.id * chunk, chunk)], [chunk], [self.id * chunk])

    def _clear(self) -> None:
        """Clears the tables: no slots of experts; rows of no slot, and blocks after the valid ones, of no expert."""
        sorting = self.sorting
        with builder.when(self.is_expert):
            _store(0, self.of_experts, self.id)

        def part(j: Index) -> list[Values]:
            at = (j * sorting.threads + self.id).here
            _store(select(at < sorting.starts[_EXPERTS], sorting.slots, _NONE), self.tables, at)
            return []

        builder.loop(Index.of(sorting.size // sorting.threads), part, may_unroll=True)
        builder.lds_barrier()

    def _slot(self, number: Index) -> tuple[Index, ir.Value]:
        """Returns a lane's slot of a round, and whether it exists."""
        slot = (number * self.sorting.threads + self.id).here
        return slot, slot < self.sorting.slots

    def _rank(self, number: Index) -> list[Values]:
        """Returns the number of earlier slots with the same expert, and stores it in place of the slot's row.

        Waves take their turn, so ranks are the same in every run. The last slot of an expert in a wave counts.
        """
        slot, is_slot = self._slot(number)
        loaded = _load(self.ids, select(is_slot, slot, 0))
        is_sorted = builder.both(is_slot, loaded < self.sorting.experts)
        _store(select(is_sorted, loaded, _NONE), self.of_slots, self.id)
        builder.lds_barrier()
        before, everywhere = self._in_wave(select(is_sorted, loaded, _NONE))
        expert, is_last = select(is_sorted, loaded, 0), (before + 1).is_value(everywhere)

        def counted() -> Values:
            there = _load(self.of_experts, expert)
            with builder.when(is_last):
                _store(there + everywhere, self.of_experts, expert)
            return [builder.to_i32(there + before)]

        def turn(wave: Index, rank: Values) -> list[Values]:
            ranked = builder.choose(builder.both(wave.is_value(self.wave), is_sorted), counted, rank)
            builder.lds_barrier()
            return [ranked]

        waves = Index.of(ceil(min(self.sorting.slots, self.sorting.threads) / LANES))
        ((rank,),) = builder.loop(waves, turn, [builder.i32(0)])
        with builder.when(is_slot):
            _store(Index.of(rank), self.tables, slot)
        return []

    def _in_wave(self, mine: Index) -> tuple[Index, Index]:
        """Returns the number of slots of this wave with the same expert: of lower lanes, and of all."""
        kind = ir.VectorType.get([_WIDE], builder.to_i32(mine).type)
        zeros, ones = builder.constant_zeros(kind), _constant(kind, [1] * _WIDE)
        own, lane = _all(kind, mine), _all(kind, self.lane)

        def part(j: Index, before: Values, everywhere: Values) -> list[Values]:
            is_same = arith.CmpIOp(_EQ, builder.load(self.of_slots, [self.wave * LANES + j], _WIDE), own).result
            places = arith.AddIOp(_all(kind, j), _constant(kind, range(_WIDE))).result
            is_before = builder.both(is_same, arith.CmpIOp(_LT, places, lane).result)
            return [
                [arith.AddIOp(count, arith.SelectOp(counts, ones, zeros).result).result]
                for (count,), counts in ((before, is_before), (everywhere, is_same))
            ]

        found = builder.loop(Index.of(LANES), part, [zeros], [zeros], step=_WIDE)
        before, everywhere = (
            vector.ReductionOp(kind.element_type, vector.CombiningKind.ADD, each).dest for (each,) in found
        )
        return builder.unsigned(before), builder.unsigned(everywhere)

    def _number_blocks(self) -> None:
        """Computes where each expert's blocks begin, by sums over twice as many experts in each step."""
        sorting = self.sorting
        slots = _load(self.of_experts, select(self.is_expert, self.id, 0))
        blocks = _as_u32(select(self.is_expert, (slots + (sorting.block_m - 1)) // sorting.block_m, 0))
        with builder.when(self.is_expert):
            _store(blocks, self.firsts, self.id)
        builder.lds_barrier()
        up_to = blocks
        for distance in (1 << step for step in range((sorting.experts - 1).bit_length())):
            adds = builder.both(self.id >= distance, self.is_expert)
            there = _load(self.firsts, select(adds, self.id + -distance, 0))
            up_to = _as_u32(up_to + select(adds, there, 0))
            builder.lds_barrier()
            with builder.when(self.is_expert):
                _store(up_to, self.firsts, self.id)
            builder.lds_barrier()
        first = (up_to + blocks * -1).here
        with builder.when(self.is_expert):
            _store(first, self.firsts, self.id)

            def block(j: Index) -> list[Values]:
                _store(self.id, self.tables, first + j + sorting.starts[_EXPERTS])
                return []

            builder.loop(blocks, block)
            with builder.when(self.id.is_value(sorting.experts - 1)):
                _store(up_to, self.tables, Index.of(sorting.starts[_VALID]))
        builder.lds_barrier()

    def _place(self, number: Index) -> list[Values]:
        """Writes the row of a lane's slot over its rank, and the slot of that row."""
        sorting = self.sorting
        slot, is_slot = self._slot(number)
        with builder.when(is_slot):
            expert = _load(self.ids, slot)
            is_here = expert < sorting.experts
            first = _load(self.firsts, select(is_here, expert, 0))
            row = first * sorting.block_m + _load(self.tables, slot)
            _store(select(is_here, row, slot + sorting.blocks * sorting.block_m), self.tables, slot)
            with builder.when(is_here):
                _store(slot, self.tables, row + sorting.starts[_SLOTS])
        return []


_EQ, _LT = arith.CmpIPredicate.eq, arith.CmpIPredicate.ult


def _constant(kind: ir.VectorType, numbers: Iterable[int]) -> ir.Value:
    values = [ir.IntegerAttr.get(kind.element_type, number) for number in numbers]
    return arith.ConstantOp(kind, ir.DenseElementsAttr.get(values, kind)).result


def _all(kind: ir.VectorType, value: Index) -> ir.Value:
    return vector.BroadcastOp(kind, builder.to_i32(value)).result


def _as_u32(value: Index) -> Index:
    """Returns the value, known to be below 2³²."""
    return builder.unsigned(builder.to_i32(value))


def _load(source: ir.Value, at: Index) -> Index:
    """Loads one unsigned integer of a buffer, or of LDS."""
    return builder.unsigned(memref.LoadOp(source, [at.value]).result)


def _store(value: Index | int, to: ir.Value, at: Index) -> None:
    memref.StoreOp(builder.to_i32(Index.of(value)), to, [at.value])


def _up(number: int, step: int) -> int:
    return ceil(number / step) * step
