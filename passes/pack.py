"""Packing of one operand into its data-tiled layout, as IR that compiles to wide loads and stores.

The packed tensor is computed output-major, in words: eight fp4 elements, or four scales, at a time; 64 bits of 6-bit
elements. The generic has no inputs; it picks what a word holds from the source by `tensor.extract`, and IREE vectorises
that to 128-bit accesses on elements (6 bits: 64-bit accesses).

8-bit elements of a lane lie in two halves, as the hardware takes them (`DataTiledLayout.swizzle` of an element type).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import arith, linalg, tensor

from mxcomp import build
from mxcomp.build import static_sizes
from mxcomp.formats import element_format
from mxcomp.layout import BLOCK_SIZE, COLUMNS, LHS, RHS, ROWS, DataTiledLayout, TileSwizzle, k_unit

BITCASTS = ("iree_tensor_ext.bitcast", "flow.tensor.bitcast")
_WORD_BYTES = 4
CONSTANT = "mxcomp.constant"
"""Marks a function argument that will be a constant wherever the function is inlined."""


def pack(source: ir.Value, layout: DataTiledLayout, operand: int, rows: ir.Value | None, regions: bool) -> ir.Value:
    """Packs operand 0 … 3 of a scaled matmul, padding with zeros.

    `source` has shape [rows, K/32, 32] (elements) or [rows, K/32] (scales); `rows` is its row count where dynamic. The
    result has shape [row tiles, K tiles, (1,) *packed tile]; elements are in bytes, which dispatches can take, the
    innermost dimension as large as 32 of them; `elements` gives them their type. With `regions`, packing is a dispatch
    of its own, unless the source is constant.
    """
    height, blocks, *_ = static_sizes(source)
    element = str(ir.RankedTensorType(source.type).element_type)
    if operand in (LHS, RHS):
        swizzle, unit = layout.swizzle(operand, element), k_unit(element)
    else:
        swizzle, unit = layout.swizzle(operand), BLOCK_SIZE
    columns = (blocks or 0) * (BLOCK_SIZE // unit)
    outer = [build.tiles(size, tile) for size, tile in zip((height, columns), swizzle.tile_shape, strict=False)]
    tiles = [build.ceildiv(rows, swizzle.tile_shape[ROWS])] if rows is not None else []
    store = storage(source)
    bits = element_format(element).bits if operand in (LHS, RHS) else 0
    if bits:
        words = _element_words(store, (height, columns), swizzle, bits, rows)
    else:
        words = _scale_words(store, (height, columns), swizzle, rows)
    packed = build.tensor_type((*outer, *words.shape), words.element)
    with build.dispatch_region([packed], tiles, enabled=regions and not is_constant(store)) as region:
        iterators = ["parallel"] * packed.rank
        identity = ir.AffineMap.get_identity(packed.rank)

        def body(_: ir.Value) -> ir.Value:
            return words.compute([linalg.IndexOp(i).result for i in range(packed.rank)])

        region.returned = [
            build.generic(packed, [], build.empty(packed, tiles), [identity], iterators, body).results[0]
        ]
    shape = layout.packed_shape(operand, outer)
    if bits:
        return build.bitcast(region.results[0], build.tensor_type((*shape[:-1], BLOCK_SIZE * bits // 8), "i8"), tiles)
    return build.bitcast(region.results[0], build.tensor_type(shape, element), tiles)


def elements(packed: ir.Value, element: str, tiles: list[ir.Value]) -> ir.Value:
    """Packed elements from their bytes, scales as they are; `tiles` are the row tiles where dynamic."""
    if str(ir.RankedTensorType(packed.type).element_type) != "i8":
        return packed
    *shape, _ = build.static_sizes(packed)
    return build.bitcast(packed, build.tensor_type((*shape, BLOCK_SIZE), element), tiles)


@dataclass(frozen=True)
class _Words:
    """A packed tile in words: its shape, and how one word is computed from loop indices."""

    shape: tuple[int, ...]
    compute: Callable[[list[ir.Value]], ir.Value]
    element: str = "i32"


def _element_words(store: ir.Value, extent: tuple, swizzle: TileSwizzle, bits: int, rows: ir.Value | None) -> _Words:
    """Words of elements: the innermost packed dimension holds so many of them that follow each other on both sides."""
    *shape, unit = swizzle.packed_shape
    size = unit * bits // 8
    # IREE moves up to four words at a time, if so many are a divisor of `size`: not of the 24 bytes of 6-bit elements.
    word = _WORD_BYTES if size % 16 == 0 else 2 * _WORD_BYTES
    element, words = f"i{8 * word}", size // word
    view = build.bitcast(store, build.tensor_type((*extent, words), element), [rows] if rows is not None else [])
    coordinates = [ir.AffineExpr.get_dim(2 + i) for i in range(len(shape))]

    def compute(loops: list[ir.Value]) -> ir.Value:
        return _extract(view, extent, swizzle, rows, loops, [*coordinates, ir.AffineExpr.get_constant(0)], loops[-1:])

    return _Words((*shape, words), compute, element)


def _scale_words(store: ir.Value, size: tuple, swizzle: TileSwizzle, rows: ir.Value | None) -> _Words:
    """Words of scales: the fewest innermost dimensions that fill whole words are taken together."""
    view = build.bitcast(store, build.tensor_type(size, "i8"), [rows] if rows is not None else [])
    shape = swizzle.packed_shape
    split = next(i for i in reversed(range(len(shape))) if math.prod(shape[i:]) % _WORD_BYTES == 0)
    word = ir.AffineExpr.get_dim(2 + split)

    def compute(loops: list[ir.Value]) -> ir.Value:
        i32 = ir.IntegerType.get_signless(32)
        result = None
        for byte in range(_WORD_BYTES):
            coordinates = [ir.AffineExpr.get_dim(2 + i) for i in range(split)]
            coordinates += _delinearise(word * _WORD_BYTES + byte, shape[split:])
            value = arith.ExtUIOp(i32, _extract(view, size, swizzle, rows, loops, coordinates, [])).result
            if byte:
                value = arith.ShLIOp(value, arith.ConstantOp(i32, 8 * byte).result).result
            result = value if result is None else arith.OrIOp(result, value).result
        assert result is not None
        return result

    return _Words((*shape[:split], math.prod(shape[split:]) // _WORD_BYTES), compute)


def _delinearise(linear: ir.AffineExpr, shape: tuple[int, ...]) -> list[ir.AffineExpr]:
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return [
        ir.AffineExpr.get_mod(ir.AffineExpr.get_floor_div(linear, stride), size)
        for stride, size in zip(strides, shape, strict=True)
    ]


def source_index(
    swizzle: TileSwizzle, source_dim: int, coordinates: list[ir.AffineExpr], loops: list[ir.Value]
) -> ir.Value:
    """Where packed `coordinates` of a tile, affine in the loops, lie in the source; the first two loops count tiles."""
    steps = zip(coordinates, swizzle.strides(source_dim), strict=True)
    tile = ir.AffineExpr.get_dim(source_dim) * swizzle.tile_shape[source_dim]
    return build.apply(sum((c * stride for c, stride in steps if stride), tile), loops)


def _extract(
    view: ir.Value,
    size: tuple[int | None, int],
    swizzle: TileSwizzle,
    rows: ir.Value | None,
    loops: list[ir.Value],
    coordinates: list[ir.AffineExpr],
    inner: list[ir.Value],
) -> ir.Value:
    """`view[row, column, *inner]` at packed `coordinates` of a tile (affine in the loops), 0 in the padding."""
    position: list[ir.Value] = []
    checks: list[ir.Value] = []
    for source_dim in (ROWS, COLUMNS):
        tile, extent = swizzle.tile_shape[source_dim], size[source_dim]
        index = source_index(swizzle, source_dim, coordinates, loops)
        if extent is None or extent % tile:
            limit = rows if extent is None else build.constant_index(extent)
            assert limit is not None
            checks.append(arith.CmpIOp(arith.CmpIPredicate.slt, index, limit).result)
            index = build.clamp(index, extent if extent is not None else limit)
        position.append(index)
    value = tensor.ExtractOp(view, [*position, *inner]).result
    if not checks:
        return value
    inside = checks[0] if len(checks) == 1 else arith.AndIOp(*checks).result
    return arith.SelectOp(inside, value, arith.ConstantOp(value.type, 0).result).result


def storage(value: ir.Value) -> ir.Value:
    """The tensor whose bytes `value` shows, before any bitcast: one rank-changing bitcast is all IREE folds well."""
    while (op := _producer(value)) is not None and op.name in BITCASTS:
        value = op.operands[0]
    return value


def is_constant(value: ir.Value) -> bool:
    """Whether a tensor's bytes are known at compile time: a constant, or an immutable global with a value inside."""
    value = storage(value)
    op = _producer(value)
    if op is None:
        return _is_marked(ir.BlockArgument(value))
    if op.name == "arith.constant":
        return True
    if op.name != "util.global.load":
        return False
    symbol = ir.FlatSymbolRefAttr(op.attributes["global"]).value
    root = op
    while root.parent is not None:
        root = root.parent
    for view in build.module_block(root).operations:
        found = view.operation
        if found.name == "util.global" and build.symbol_name(found) == symbol:
            if "is_mutable" in found.attributes or "initial_value" not in found.attributes:
                return False
            return isinstance(found.attributes["initial_value"], ir.DenseElementsAttr | ir.DenseResourceElementsAttr)
    return False


def _is_marked(argument: ir.BlockArgument) -> bool:
    function = argument.owner.owner
    if "arg_attrs" not in function.attributes:
        return False
    return CONSTANT in ir.DictAttr(ir.ArrayAttr(function.attributes["arg_attrs"])[argument.arg_number])


def _producer(value: ir.Value) -> ir.Operation | None:
    owner = value.owner
    return owner.operation if isinstance(owner, ir.OpView | ir.Operation) else None
