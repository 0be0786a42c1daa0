"""Sorts slots by expert, each expert's padded to whole blocks, by counting: stable, and equal in every run.

The slots of a single token have a block each, in their order: nothing is to be sorted.
"""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.mlir import attributes, build
from mxcomp.mlir import scalars as s
from mxcomp.mlir.loops import reduced, tabled
from mxcomp.routing.rules import Extent

_ONE_TILE, _TILE, _LEAST = 1024, 512, 64
"""The number of slots up to which they are counted at once; the largest tile of more slots; and the smallest without
padding."""


@dataclass(frozen=True)
class Sorted:
    """The tables of a grouped matmul of B = `Extent.blocks` blocks.

    Attributes:
        slots: i32 [B · block_m], the slot of each row (`token · top_k + j`), or `Extent.slots` of a padding row.
        experts: i32 [B], that of a block; of blocks behind the valid ones −1: no expert, nothing to multiply.
        valid_blocks: i32 [1], how many there are; they come first.
        positions: i32 [T, top_k], the row of each slot: what `slots` is the inverse of. Of a slot without an expert
            B · block_m + the slot, which is no row.
    """

    slots: ir.Value
    experts: ir.Value
    valid_blocks: ir.Value
    positions: ir.Value


@dataclass(frozen=True)
class _Tiles:
    """Slots in tiles: the number of tiles, the slots of each, the number of experts rounded up to whole waves; ids i32
    [count, width], -1 after the last slot.
    """

    count: int
    width: int
    experts: int
    ids: ir.Value


def sort(chosen: ir.Value, extent: Extent, regions: bool = True) -> Sorted:
    """Returns the tables from the experts i32 [T, top_k] of each token, which are below `experts`. Negative ones are
    none."""
    ids = build.collapse(chosen, [[0, 1]])
    if extent.tokens == 1 and extent.blocks == extent.slots:
        return _of_token(ids, extent)
    tiles = _tiled(ids, extent.slots, extent.experts)
    counts = _counted(tiles, regions)
    before = None if tiles.count == 1 else _before(counts, tiles)
    rows = _rows(ids, counts, before, tiles, extent, regions)
    of_slots, valid = build.part(rows, [0], [extent.slots]), build.part(rows, [extent.slots], [1])
    scattered = _scattered(of_slots, extent)
    experts = _experts(scattered, ids, extent)
    slots = build.part(scattered, [0], [extent.rows])
    if regions:
        of_slots, slots, experts, valid = _marked([of_slots, slots, experts, valid], ids, extent)
    return Sorted(slots, experts, valid, build.expand(of_slots, (extent.tokens, extent.top_k), [[0, 1]]))


def _of_token(ids: ir.Value, extent: Extent) -> Sorted:
    """Returns the tables of a single token, by the expert of each slot. All blocks are valid ones: those of slots
    without an expert are none's."""

    def slot(_: ir.Value) -> ir.Value:
        number, of_block = (of(s.loop_index(0), extent.block_m) for of in (s.divided, s.remainder))
        is_slot = s.both(s.equal(of_block, 0), s.less(-1, s.at(ids, number)))
        return s.select(is_slot, number, extent.slots)

    def position(expert: ir.Value, _: ir.Value) -> ir.Value:
        number = s.loop_index(0)
        return s.select(s.less(-1, expert), s.times(number, extent.block_m), s.plus(number, extent.rows))

    slots = tabled("x", (extent.rows,), "i32", [], slot)
    positions = tabled("x", (extent.slots,), "i32", [("x", ids)], position)
    valid = build.filled(s.i32(extent.slots), build.tensor_type((1,), "i32"))
    return Sorted(slots, ids, valid, build.expand(positions, (1, extent.top_k), [[0, 1]]))


SORTING = "mxcomp.sorting"
"""The attribute of a barrier of all tables and their inputs, with the sizes, from which mxcomp-sort-slots makes one
dispatch."""


def _marked(tables: list[ir.Value], ids: ir.Value, extent: Extent) -> list[ir.Value]:
    """Returns the tables behind a barrier that says what they are."""
    sizes = {"slots": extent.slots, "experts": extent.experts, "block_m": extent.block_m, "blocks": extent.blocks}
    operands = [*tables, ids]
    barrier = ir.Operation.create(
        "util.optimization_barrier",
        results=[value.type for value in operands],
        operands=operands,
        attributes={SORTING: attributes.from_python(sizes)},
    )
    return list(barrier.results)[: len(tables)]


def _tiled(ids: ir.Value, slots: int, experts: int) -> _Tiles:
    experts = experts if experts < _LEAST else -(-experts // _LEAST) * _LEAST
    most = slots if slots <= _ONE_TILE else _TILE
    width = next((width for width in range(most, min(most, _LEAST) - 1, -1) if slots % width == 0), _TILE)
    count = -(-slots // width)
    if count * width > slots:

        def padded(_: ir.Value) -> ir.Value:
            is_slot = s.less(s.loop_index(0), slots)
            return s.select(is_slot, s.at(ids, s.select(is_slot, s.loop_index(0), slots - 1)), -1)

        ids = tabled("x", (count * width,), "i32", [], padded)
    return _Tiles(count, width, experts, build.expand(ids, (count, width), [[0, 1]]))


def _counted(tiles: _Tiles, regions: bool) -> ir.Value:
    """Returns counts for each tile, i32 [count, width + E]: the slots before each that go to its expert, and all slots
    that go to each expert.

    Both are one reduction: an expert's total is what a slot behind the last would find.
    """
    shape = (tiles.count, tiles.width + tiles.experts)

    def wanted(_: ir.Value) -> ir.Value:
        row = s.loop_index(1)
        is_slot = s.less(row, tiles.width)
        return s.select(is_slot, s.at(tiles.ids, s.loop_index(0), s.select(is_slot, row, 0)), s.minus(row, tiles.width))

    def counted(mine: ir.Value, other: ir.Value) -> ir.Value:
        return s.select(s.both(s.equal(mine, other), s.less(s.loop_index(2), s.loop_index(1))), 1, 0)

    with build.dispatch_region([build.tensor_type(shape, "i32")], [], regions) as region:
        pairs = [("gr", tabled("gr", shape, "i32", [], wanted)), ("gs", tiles.ids)]
        region.returned = [reduced("grs", "gr", shape, "i32", pairs, s.plus, counted)]
    return region.results[0]


def _before(counts: ir.Value, tiles: _Tiles) -> ir.Value:
    """Returns the number of slots in earlier tiles that go to each expert, i32 [tiles + 1, E]. The last row counts all
    slots."""
    shape = tiles.count + 1, tiles.experts
    pairs = [("he", build.part(counts, [0, tiles.width], [tiles.count, tiles.experts]))]

    def earlier(count: ir.Value) -> ir.Value:
        return s.select(s.less(s.loop_index(2), s.loop_index(0)), count, 0)

    return reduced("geh", "ge", shape, "i32", pairs, s.plus, earlier)


def _rows(
    ids: ir.Value, counts: ir.Value, before: ir.Value | None, tiles: _Tiles, extent: Extent, regions: bool
) -> ir.Value:
    """Returns the sorted row of each slot, i32 [slots + 1], and as last element the number of valid blocks."""
    totals, first = (counts, [0, tiles.width]) if before is None else (before, [tiles.count, 0])
    totals = build.collapse(build.part(totals, first, [1, tiles.experts]), [[0, 1]])
    shape, last = (extent.slots + 1,), extent.slots - 1

    def expert(_: ir.Value) -> ir.Value:
        slot = s.loop_index(0)
        is_slot = s.less(slot, extent.slots)
        return s.select(is_slot, s.at(ids, s.select(is_slot, slot, last)), extent.experts)

    def blocks(mine: ir.Value, total: ir.Value) -> ir.Value:
        needed = s.divided(s.plus(total, extent.block_m - 1), extent.block_m)
        return s.select(s.less(s.loop_index(1), mine), needed, 0)

    def row(first_block: ir.Value, mine: ir.Value, _: ir.Value) -> ir.Value:
        is_slot = s.less(s.loop_index(0), extent.slots)
        slot = s.select(is_slot, s.loop_index(0), 0)
        tile = s.divided(slot, tiles.width)
        rank = s.at(counts, tile, s.remainder(slot, tiles.width))
        if before is not None:
            rank = s.plus(rank, s.at(before, tile, s.select(s.both(is_slot, s.less(-1, mine)), mine, 0)))
        found = s.plus(s.times(first_block, extent.block_m), rank)
        return s.select(is_slot, s.select(s.less(-1, mine), found, s.plus(slot, extent.rows)), first_block)

    with build.dispatch_region([build.tensor_type(shape, "i32")], [], regions) as region:
        mine = tabled("x", shape, "i32", [], expert)
        first_block = reduced("xe", "x", shape, "i32", [("x", mine), ("e", totals)], s.plus, blocks)
        region.returned = [tabled("x", shape, "i32", [("x", first_block), ("x", mine)], row)]
    return region.results[0]


def _scattered(rows: ir.Value, extent: Extent) -> ir.Value:
    """Returns the slot of each row, i32 [B · block_m], followed by positions for slots without an expert."""
    kind = build.tensor_type((extent.rows + extent.slots,), "i32")
    slots = tabled("x", (extent.slots,), "i32", [], lambda _: s.loop_index(0))
    op = ir.Operation.create(
        "iree_linalg_ext.scatter",
        results=[kind],
        operands=[slots, build.expand(rows, (extent.slots, 1), [[0, 1]]), build.filled(s.i32(extent.slots), kind)],
        attributes={
            "dimension_map": ir.DenseI64ArrayAttr.get([0]),
            "unique_indices": ir.BoolAttr.get(True),
            attributes.INSIDE: ir.UnitAttr.get(),
        },
        regions=1,
    )
    i32 = ir.IntegerType.get_signless(32)
    block = op.regions[0].blocks.append(i32, i32)
    with ir.InsertionPoint(block):
        ir.Operation.create("iree_linalg_ext.yield", operands=[block.arguments[0]])
    return op.result


def _experts(slots: ir.Value, ids: ir.Value, extent: Extent) -> ir.Value:
    """Returns the expert of each block: that of its first row, which every valid block has."""

    def expert(_: ir.Value) -> ir.Value:
        slot = s.at(slots, s.times(s.loop_index(0), extent.block_m))
        is_slot = s.less(slot, extent.slots)
        return s.select(is_slot, s.at(ids, s.select(is_slot, slot, 0)), -1)

    return tabled("b", (extent.blocks,), "i32", [], expert)
