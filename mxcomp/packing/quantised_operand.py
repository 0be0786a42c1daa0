"""Packing of an operand that is computed on the way (`mxcomp.matching.quantiser`): activations in, packed elements and
scales out.

All of it happens in packed order: every linalg op of the quantiser becomes one over tiles and packed dimensions, and a
lane computes one block of 32, or the half of it that 8-bit elements have together:

    %p, %s = flow.dispatch.region {
      %x    = linalg.generic … tensor.extract %activations[…] -> tensor<2x4x8x2x4x16x32xf32>
      %amax = linalg.generic {compilation_info = …} ins(%x) -> tensor<2x4x8x2x4x16xi32>
      %q    = linalg.generic … ins(%x, %amax) { arith.scaling_truncf } -> tensor<2x4x8x2x4x16x32xf4E2M1FN>
      %e    = linalg.generic … ins(%amax) -> tensor<2x4x4x16x8x2xf8E8M0FNU>
    }

IREE compiles that to 128-bit loads, v_cvt_scalef32_pk_* and 128-bit stores. The scales of 8-bit elements take a
dispatch of their own: the packed order does not keep the 32 elements of a scale together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from iree.compiler import ir
from iree.compiler.dialects import arith, linalg, tensor

from mxcomp.codes import packed, truncate
from mxcomp.formats import BLOCK_SIZE, UNLOADABLE, element_format
from mxcomp.layout import LHS_SCALE, ROWS, DataTiledLayout
from mxcomp.matching.quantiser import Compute, Node, Producer, Read, is_inside
from mxcomp.mlir import attributes, build
from mxcomp.mlir.inline import constant, inline
from mxcomp.packing.packed_loops import Extent, Space

_THREADS = 256


def pack(
    producer: Producer,
    layout: DataTiledLayout,
    operand: int,
    source: ir.Value,
    rows: ir.Value | None,
    regions: bool,
) -> tuple[ir.Value, ir.Value]:
    """Elements and scales of LHS or RHS as `stored_operand.pack` gives them, computed by `producer`.

    `source` is the tensor [rows, K/32, 32] that it computes elsewhere; `rows` is its row count where dynamic.
    """
    height, blocks, *_ = build.static_sizes(source)
    element = str(ir.RankedTensorType(source.type).element_type)
    swizzle, scale_swizzle = layout.packing(operand, element), layout.packing(operand + LHS_SCALE)
    tiles = [build.ceildiv(rows, swizzle.tile_shape[ROWS])] if rows is not None else []
    extent = Extent(height, blocks or 0, rows, tiles)
    space = Space.of(swizzle, element_format(element).lane_unit, extent)
    if space.inner == (BLOCK_SIZE,):
        outer = space.outer
        order = [*range(outer), *(outer + swizzle.permutation.index(p) for p in scale_swizzle.permutation)]
        elements, scales = _dispatch(producer.nodes, space, [None, order], regions)
    else:
        (elements,) = _dispatch((producer.elements,), space, [None], regions)
        (scales,) = _dispatch((producer.scales,), Space.of(scale_swizzle, BLOCK_SIZE, extent), [None], regions)
    return as_packed(elements, scales, layout, operand, element, space.tiles, tiles)


def as_packed(
    elements: ir.Value,
    scales: ir.Value,
    layout: DataTiledLayout,
    operand: int,
    element: str,
    outer: tuple[int | None, ...],
    tiles: list[ir.Value],
) -> tuple[ir.Value, ir.Value]:
    """Elements as bytes and scales with the dimensions of a packed operand of so many tiles."""
    shape, scale_shape = layout.packed_shape(operand, outer), layout.packed_shape(operand + LHS_SCALE, outer)
    stored = build.tensor_type((*shape[:-1], element_format(element).block_bytes), "i8")
    stored_scales = build.tensor_type(scale_shape, ir.RankedTensorType(scales.type).element_type)
    return build.bitcast(elements, stored, tiles), build.bitcast(scales, stored_scales, tiles)


def _dispatch(
    nodes: tuple[Compute, ...], space: Space, orders: list[list[int] | None], regions: bool
) -> list[ir.Value]:
    """One dispatch that computes all of `nodes`, each with its dimensions in the given order."""
    builder = Builder(space)
    results = [builder.stored_type(node, order) for node, order in zip(nodes, orders, strict=True)]
    with build.dispatch_region(results, space.extent.tiles * len(results), enabled=regions) as region:
        region.returned = [builder.root(node, order) for node, order in zip(nodes, orders, strict=True)]
        builder.configure()
    return region.results


class _Value(NamedTuple):
    """A tensor of which there is one element for each in the space, or for each block; its dimensions as loops."""

    value: ir.Value
    inside: bool
    loops: Sequence[int]


class Builder:
    """Builds nodes in a space, each once. `given` are tensors that are there already, by what they are elsewhere."""

    def __init__(self, space: Space, given: Mapping[ir.Value, tuple[ir.Value, Sequence[int]]] | None = None) -> None:
        self._space = space
        self._given = given or {}
        self._built: dict[tuple[Node, tuple[int, ...]], _Value] = {}
        self._leading: ir.Operation | None = None

    def stored_type(self, node: Compute, order: Sequence[int] | None) -> ir.RankedTensorType:
        """The type of `root`."""
        element = ir.RankedTensorType(node.op.results[0].type).element_type
        plain = self._space.tensor(element, node.inside, order)
        fmt = UNLOADABLE.get(str(element))
        return packed.word_tensor(plain, fmt.bits, len(self._space.inner)) if fmt else plain

    def root(self, node: Compute, order: Sequence[int] | None) -> ir.Value:
        """A node as it is stored: with these loops as dimensions, zeros in the padding of K, 6-bit elements as bits."""
        value = self._compute(node, self._space, masked=node.inside, order=order).value
        fmt = UNLOADABLE.get(str(ir.RankedTensorType(node.op.results[0].type).element_type))
        if fmt is None:
            return value
        return packed.words(value, fmt.bits, len(self._space.inner), self._space.extent.tiles)

    def _value(self, node: Node, space: Space) -> _Value:
        key = (node, space.inner)
        if key not in self._built:
            self._built[key] = self._read(node, space) if isinstance(node, Read) else self._compute(node, space)
        return self._built[key]

    def _read(self, node: Read, space: Space) -> _Value:
        inside = is_inside(node)
        if node.value in self._given:
            value, loops = self._given[node.value]
            return _Value(value, inside, loops)

        def body(_: ir.Value) -> ir.Value:
            places = space.places([linalg.IndexOp(i).result for i in range(space.loops(inside))])
            position = [build.apply(space.position(index), places) for index in node.subscripts]
            return tensor.ExtractOp(node.value, position).result

        return self._generic(space, inside, ir.RankedTensorType(node.value.type).element_type, [], body)

    def _compute(self, node: Compute, space: Space, masked: bool = False, order: Sequence[int] | None = None) -> _Value:
        """`masked`: from zeros in the padding of K, whatever activations are made of."""
        start = None if node.start is None else constant(node.start.operands[0])
        space = space if start is None else space.whole_blocks
        inputs = [self._value(operand, space) for operand in node.operands]

        def body(*arguments: ir.Value) -> ir.Value:
            *given, out = arguments
            loops = [linalg.IndexOp(i).result for i in range(space.rank)] if masked else []
            if masked and (padding := space.is_padding(loops)) is not None:
                pairs = zip(given, inputs, strict=True)
                given = [_zero_if(padding, value) if source.inside else value for value, source in pairs]
            return inline(node.op, [*given, out], truncate.rewrite)

        element = truncate.code_type(ir.RankedTensorType(node.op.results[0].type).element_type)
        return self._generic(space, node.inside, element, inputs, body, start, order)

    def _generic(
        self,
        space: Space,
        inside: bool,
        element: ir.Type,
        inputs: list[_Value],
        body: Callable[..., ir.Value],
        start: ir.Value | None = None,
        order: Sequence[int] | None = None,
    ) -> _Value:
        """A generic over a space; with `start` a reduction over the elements of each block."""
        reduces = start is not None
        loops, tiles = space.loops(inside or reduces), space.extent.tiles
        result, dims = space.tensor(element, inside, order), order or range(space.loops(inside))
        init = build.filled(start, result, tiles) if start is not None else build.empty(result, tiles)
        maps = [_access(read, loops) for read in (*(value.loops for value in inputs), dims)]
        iterators = ["parallel"] * space.rank + ["reduction" if reduces else "parallel"] * (loops - space.rank)
        op = build.generic(result, [value.value for value in inputs], init, maps, iterators, body)
        if reduces or self._leading is None or not _reduces(self._leading):
            self._leading = op
        return _Value(op.results[0], inside, dims)

    def configure(self) -> None:
        """Says how IREE is to compile a dispatch of nothing else: a lane takes what is inside one block."""
        assert self._leading is not None
        space, reduces = self._space, _reduces(self._leading)
        workgroup, threads = [], 1
        for size in reversed(space.sizes[space.outer :]):
            workgroup.append(math.gcd(size or 1, _THREADS // threads))
            threads *= workgroup[-1]
        inside = space.whole_blocks.inner if reduces else space.inner
        ones, none = [1] * space.rank, [0] * len(inside)
        self._leading.attributes["compilation_info"] = attributes.tiled(
            workgroup=[*[1] * space.outer, *reversed(workgroup), *(none if reduces else inside)],
            thread=[*ones, *(none if reduces else inside)],
            reduction=[*(0 for _ in ones), *inside] if reduces else [],
            threads=threads,
        )


def _access(dims: Sequence[int], loops: int) -> ir.AffineMap:
    return ir.AffineMap.get(loops, 0, [ir.AffineExpr.get_dim(i) for i in dims])


def _reduces(op: ir.Operation) -> bool:
    return "reduction" in str(op.attributes["iterator_types"])


def _zero_if(condition: ir.Value, value: ir.Value) -> ir.Value:
    zero = arith.ConstantOp(value.type, 0.0 if isinstance(value.type, ir.FloatType) else 0).result
    return arith.SelectOp(condition, zero, value).result
