"""Packs an operand that is quantised in the program (`mxcomp.matching.quantiser`): activations in, packed elements and
scales out.

All operations are in packed order: every linalg op of the quantiser becomes one over tiles and packed dimensions, and a
lane computes one block of 32:

    %p, %s = flow.dispatch.region {
      %x    = linalg.generic … tensor.extract %activations[…] -> tensor<2x4x8x2x4x16x32xf32>
      %amax = linalg.generic {compilation_info = …} ins(%x) -> tensor<2x4x8x2x4x16xi32>
      %q    = linalg.generic … ins(%x, %amax) { arith.scaling_truncf } -> tensor<2x4x8x2x4x16x32xf4E2M1FN>
      %e    = linalg.generic … ins(%amax) -> tensor<2x4x4x16x8x2xf8E8M0FNU>
    }

IREE compiles that to 128-bit loads, v_cvt_scalef32_pk_* and 128-bit stores. In packed order the 32 elements of a scale
are not contiguous if they have 8 bits: a lane stores its block in two halves (`half_blocks`). With many rows, or with
MFMA of 32x32x64, the scales of such elements are computed in a separate dispatch. So are
scales that share no reduction with the elements, for example with largest magnitudes that are computed elsewhere: IREE
tiles a single operation with its producers and consumers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.codes import packed, truncate
from mxcomp.formats import UNLOADABLE
from mxcomp.layout import LHS_SCALE, DataTiledLayout
from mxcomp.layout.inner_tiles import LANES, SCALE
from mxcomp.layout.swizzle import ROWS
from mxcomp.matching import gates
from mxcomp.matching.blocks import Blocks
from mxcomp.matching.elements import Index, UntraceableError
from mxcomp.matching.quantiser import Compute, Node, Producer, Read, is_repeated
from mxcomp.mlir import attributes, build, linalg
from mxcomp.mlir.inline import constant, inline
from mxcomp.packing import half_blocks
from mxcomp.packing.packed_loops import LoopNest, OperandSize
from mxcomp.packing.stored_operand import Dynamic

_THREADS = 256
FEW_ROWS = 2048
"""The number of rows up to which one dispatch that stores blocks in two halves takes no longer than two, modelled."""


def pack(
    producer: Producer,
    layout: DataTiledLayout,
    operand: int,
    source: ir.Value,
    dynamic: Dynamic,
    blocks_of: Blocks | None = None,
) -> tuple[ir.Value, ir.Value]:
    """Returns elements and scales of LHS or RHS, packed as by `stored_operand.pack`, computed by `producer`.

    `source` is the tensor [rows, K/32, 32] that it computes elsewhere; `dynamic` has its row count where dynamic. With
    `blocks_of`, rows of it are those of blocks, and the result has a batch of so many.
    """
    height, blocks, *_ = build.static_sizes(source)
    element = str(ir.RankedTensorType(source.type).element_type)
    swizzle, scale_swizzle = layout.packing(operand, element), layout.packing(operand + LHS_SCALE)
    multiple = swizzle.multiples[ROWS]
    taken = dynamic.taken(swizzle.tile_shape[ROWS] * multiple)
    tiles = [build.times(count, multiple) for count in taken]
    block = layout.shape.block
    size = OperandSize(height, blocks or 0, block, dynamic.rows, tiles)
    if blocks_of is not None:
        size = _in_blocks(blocks_of, swizzle.tile_shape[ROWS] * multiple, size)
    nest = LoopNest.of(swizzle, swizzle.tile_shape[-1], size)
    together = bool(_reductions(producer.elements) & _reductions(producer.scales))
    are_few = together and height is not None and height <= FEW_ROWS
    if nest.inner == (block,) and together:
        outer = nest.outer
        order = [*range(outer), *(outer + swizzle.permutation.index(p) for p in scale_swizzle.permutation)]
        elements, scales = _dispatch(producer.nodes, nest, [None, order])
    elif are_few and (halved := half_blocks.of(nest, scale_swizzle)):
        elements, scales = _dispatch(producer.nodes, *halved)
    else:
        (elements,) = _dispatch((producer.elements,), nest, [None])
        (scales,) = _dispatch((producer.scales,), LoopNest.of(scale_swizzle, block, size), [None])
    counts: tuple[int | None, ...] = nest.tiles
    if blocks_of is not None:
        counts = (blocks_of.count, (nest.tiles[ROWS] or 0) // blocks_of.count, *nest.tiles[1:])
    return as_packed(elements, scales, layout, operand, element, counts, tiles, taken)


def _reductions(node: Node) -> set[Node]:
    """Returns the reductions over blocks that a node is computed from."""
    if isinstance(node, Read):
        return set()
    below = (_reductions(operand) for operand in node.operands)
    found: set[Node] = set() if node.start is None else {node}
    return found.union(*below)


def _in_blocks(blocks: Blocks, step: int, size: OperandSize) -> OperandSize:
    """Returns the size of blocks of rows, each padded to whole steps, from that of an operand."""
    padded = math.ceil(blocks.rows / step) * step
    whole, within = (kind(ir.AffineExpr.get_dim(0), padded) for kind in (_FLOOR, _MOD))

    def chosen(row: ir.Value) -> ir.Value:
        block, inside = build.apply(whole, [row]), build.apply(within, [row])
        return blocks.part(block, inside if padded == blocks.rows else build.clamp(inside, blocks.rows))

    return OperandSize(blocks.count * padded, size.blocks, size.block, None, [], chosen, size.height or 0)


_FLOOR, _MOD = ir.AffineExpr.get_floor_div, ir.AffineExpr.get_mod


def as_packed(
    elements: ir.Value,
    scales: ir.Value,
    layout: DataTiledLayout,
    operand: int,
    element: str,
    outer: tuple[int | None, ...],
    tiles: Sequence[ir.Value] = (),
    taken: Sequence[ir.Value] = (),
) -> tuple[ir.Value, ir.Value]:
    """Returns elements and scales, which may be bytes, with the dimensions of a packed operand of so many tiles.

    `tiles` are the dynamic sizes that both have, `taken` those that they get.
    """
    shape, scale_shape = (
        layout.multiplied_shape(index, layout.packed_shape(index, outer)) for index in (operand, operand + LHS_SCALE)
    )
    stored = build.tensor_type((*shape[:-1], layout.shape.lane_bytes(element)), "i8")
    stored_scales = build.tensor_type(scale_shape, SCALE)
    return build.bitcast(elements, stored, tiles, taken), build.bitcast(scales, stored_scales, tiles, taken)


def _dispatch(nodes: tuple[Compute, ...], nest: LoopNest, orders: Sequence[list[int] | None]) -> list[ir.Value]:
    """Returns one dispatch that computes all of `nodes`, each with its dimensions in the given order."""
    builder = Builder(nest)
    results = [builder.stored_type(node, order) for node, order in zip(nodes, orders, strict=True)]
    with build.dispatch_region(results, nest.operand.tiles * len(results)) as region:
        region.returned = [builder.root(node, order) for node, order in zip(nodes, orders, strict=True)]
        builder.configure()
    return region.results


class _Value(NamedTuple):
    """A tensor with one element for each in the nest, or for each block; its dimensions as loops."""

    value: ir.Value
    inside: bool
    loops: Sequence[int]


class Builder:
    """Builds nodes in a nest, each once. `given` are existing tensors by the nodes that they equal."""

    def __init__(self, nest: LoopNest, given: Mapping[ir.Value, tuple[ir.Value, Sequence[int]]] | None = None) -> None:
        self._nest = nest
        self._given = given or {}
        self._built: dict[tuple[Node, tuple[int, ...]], _Value] = {}
        self._leading: ir.Operation | None = None

    def stored_type(self, node: Compute, order: Sequence[int] | None) -> ir.RankedTensorType:
        """Returns the type of `root`."""
        element = ir.RankedTensorType(node.op.results[0].type).element_type
        plain = self._nest.tensor(element, node.inside, order)
        fmt = UNLOADABLE.get(str(element))
        return packed.word_tensor(plain, fmt.bits, len(self._nest.inner)) if fmt else plain

    def root(self, node: Compute, order: Sequence[int] | None) -> ir.Value:
        """Returns a node as it is stored: with these loops as dimensions, zeros in the padding of K, 6-bit elements as
        bits."""
        value = self._compute(node, self._nest, masked=node.inside, order=order).value
        fmt = UNLOADABLE.get(str(ir.RankedTensorType(node.op.results[0].type).element_type))
        if fmt is None:
            return value
        return packed.words(value, fmt.bits, len(self._nest.inner), self._nest.operand.tiles)

    def _value(self, node: Node, nest: LoopNest) -> _Value:
        key = (node, nest.inner)
        if key not in self._built:
            self._built[key] = self._read(node, nest) if isinstance(node, Read) else self._compute(node, nest)
        return self._built[key]

    def _read(self, node: Read, nest: LoopNest) -> _Value:
        inside = node.inside
        if node.value in self._given:
            value, loops = self._given[node.value]
            return _Value(value, inside, loops)

        source, subscripts, element = _joined(node)

        def body(_: ir.Value) -> ir.Value:
            coordinates = nest.coordinates([linalg.IndexOp(i).result for i in range(nest.loops(inside))])
            position = [build.apply(nest.position(index), coordinates) for index in subscripts]
            return element(tensor.ExtractOp(source, position).result)

        return self._generic(nest, inside, ir.RankedTensorType(node.value.type).element_type, [], body)

    def _compute(
        self, node: Compute, nest: LoopNest, masked: bool = False, order: Sequence[int] | None = None
    ) -> _Value:
        """Computes a node; `masked`: from zeros in the padding of K, whatever activations are.

        What they are divided by is not zero there: a scale that is spread over its block stays what it is.
        """
        start = None if node.start is None else constant(node.start.operands[0])
        nest = nest if start is None else nest.whole_blocks
        inputs = [self._value(operand, nest) for operand in node.operands]

        def body(*arguments: ir.Value) -> ir.Value:
            *given, out = arguments
            loops = [linalg.IndexOp(i).result for i in range(nest.rank)] if masked else []
            if masked and (padding := nest.is_padding(loops)) is not None:
                pairs = zip(given, node.operands, strict=True)
                given = [value if is_repeated(operand) else _zero_if(padding, value) for value, operand in pairs]
            return inline(node.op, [*given, out], truncate.rewrite)

        element = truncate.code_type(ir.RankedTensorType(node.op.results[0].type).element_type)
        return self._generic(nest, node.inside, element, inputs, body, start, order)

    def _generic(
        self,
        nest: LoopNest,
        inside: bool,
        element: ir.Type,
        inputs: list[_Value],
        body: Callable[..., ir.Value],
        start: ir.Value | None = None,
        order: Sequence[int] | None = None,
    ) -> _Value:
        """Returns a generic over a nest; with `start` a reduction over the elements of each block."""
        reduces = start is not None
        loops, tiles = nest.loops(inside or reduces), nest.operand.tiles
        result, dims = nest.tensor(element, inside, order), order or range(nest.loops(inside))
        init = build.filled(start, result, tiles) if start is not None else build.empty(result, tiles)
        maps = [_access(read, loops) for read in (*(value.loops for value in inputs), dims)]
        iterators = ["parallel"] * nest.rank + ["reduction" if reduces else "parallel"] * (loops - nest.rank)
        op = build.generic(result, [value.value for value in inputs], init, maps, iterators, body)
        if reduces or self._leading is None or not _reduces(self._leading):
            self._leading = op
        return _Value(op.results[0], inside, dims)

    def configure(self) -> None:
        """Sets how IREE compiles a dispatch of these operations: a lane computes one block."""
        assert self._leading is not None
        nest, reduces = self._nest, _reduces(self._leading)
        workgroup, threads = [], 1
        for size in reversed(nest.sizes[nest.outer :]):
            workgroup.append(math.gcd(size or 1, _THREADS // threads))
            threads *= workgroup[-1]
        loops = len(ir.ArrayAttr(self._leading.attributes["iterator_types"]))
        inside = nest.whole_blocks.inner if reduces else nest.inner[: loops - nest.rank]
        ones, none = [1] * nest.rank, [0] * len(inside)
        self._leading.attributes["compilation_info"] = attributes.tiled(
            workgroup=[*[1] * nest.outer, *reversed(workgroup), *(none if reduces else inside)],
            thread=[*ones, *(none if reduces else inside)],
            reduction=[*(0 for _ in ones), *inside] if reduces else [],
            threads=threads,
            lanes=LANES,
        )


def _joined(node: Read) -> tuple[ir.Value, list[Index], Callable[[ir.Value], ir.Value]]:
    """Returns what is read, its subscripts, and how an element is made of what is there.

    Neighbouring dimensions are one where they are parts of one subscript: so heads of rows are contiguous also where
    IREE would not see that, and lanes load many of their elements at once.
    """
    sizes = build.static_sizes(node.value)
    groups, joined = list[list[int]](), list[Index]()
    for dim, (size, index) in enumerate(zip(sizes, node.subscripts, strict=True)):
        is_whole = size is not None and size == (index.extent or size)
        if groups and is_whole and None not in [sizes[i] for i in groups[-1]]:
            try:
                joined[-1] = Index.join([joined[-1], index])
                groups[-1].append(dim)
                continue
            except UntraceableError:
                pass
        groups.append([dim])
        joined.append(index)
    source, element = gates.pairs(node.value)
    return source if len(groups) == len(sizes) else build.collapse(source, groups), joined, element


def _access(dims: Sequence[int], loops: int) -> ir.AffineMap:
    return ir.AffineMap.get(loops, 0, [ir.AffineExpr.get_dim(i) for i in dims])


def _reduces(op: ir.Operation) -> bool:
    return "reduction" in str(op.attributes["iterator_types"])


def _zero_if(condition: ir.Value, value: ir.Value) -> ir.Value:
    zero = arith.ConstantOp(value.type, 0.0 if isinstance(value.type, ir.FloatType) else 0).result
    return arith.SelectOp(condition, zero, value).result
