"""Packs one stored operand into its data-tiled layout, as IR that compiles to wide loads and stores.

The packed tensor is computed output-major, in words: eight fp4 elements, or four scales, at a time; 64 bits of 6-bit
elements. The generic has no inputs; it reads the contents of a word from the source by `tensor.extract`, and IREE
vectorises that to 128-bit accesses on elements (6 bits: 64-bit accesses).

Rows selected by ids (`mxcomp.matching.gathers`) are read directly. Operands in another order
(`mxcomp.matching.storage`) are packed byte by byte, each assembled from its elements.

A lane's 8-bit elements are in two halves, as the hardware takes them (`DataTiledLayout.swizzle` of an element type).

Operands that were written in whole tiles are packed again with the padding, so that no copy is made for that:

    %s = tensor.extract_slice %q[0, 0, 0, 0] [24, 16, 90, 32] [1, 1, 1, 1] {mxcomp.leading}
           : tensor<24x64x92x32xf8E4M3FN> to tensor<24x16x90x32xf8E4M3FN>

is read from `%q` instead of the slice.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.codes.stored import Codes, codes
from mxcomp.formats import element_format
from mxcomp.layout import LHS, RHS, DataTiledLayout
from mxcomp.layout.swizzle import COLUMNS, ROWS, TileSwizzle
from mxcomp.matching import gathers
from mxcomp.matching.gathers import Gather
from mxcomp.matching.storage import is_gathered, storage
from mxcomp.mlir import build, graph, variables
from mxcomp.mlir.build import static_sizes

_WORD_BYTES = 4
_LEADING = "mxcomp.leading"
"""The attribute of slices that only remove padding."""
CONSTANT = "mxcomp.constant"
"""The attribute of a function argument that will be a constant wherever the function is inlined."""


class Dynamic(NamedTuple):
    """The rows and blocks along K of an operand as values where dynamic, and optionally the tiles of rows to pad to."""

    rows: ir.Value | None = None
    blocks: ir.Value | None = None
    row_tiles: ir.Value | None = None

    def taken(self, tile_rows: int) -> list[ir.Value]:
        """Returns how often `tile_rows` rows are taken, if there is a dynamic number of them."""
        if self.rows is None:
            return []
        return [build.ceildiv(self.rows, tile_rows) if self.row_tiles is None else self.row_tiles]


def pack(source: ir.Value, layout: DataTiledLayout, operand: int, dynamic: Dynamic, regions: bool) -> ir.Value:
    """Packs operand 0 … 3 of a scaled matmul, padding with zeros.

    `source` has shape [(batch,) rows, K/32, 32] (elements) or [(batch,) rows, K/32] (scales), or is a gather of that
    shape. The result has shape [(batch,) row tiles, K tiles, (1,) *packed tile], or, with inner tiles, [(batch,)
    workgroups' tiles of rows, inner tiles of rows, K tiles, (1,) *packed tile]; elements are in bytes, which dispatches
    can take, the innermost dimension as large as 32 of them; `elements` gives them their type. With `regions`, packing
    is a dispatch of its own, unless the source is constant.
    """
    *batch, height, blocks = static_sizes(source)[: -1 if operand in (LHS, RHS) else None]
    element = str(ir.RankedTensorType(source.type).element_type)
    if operand in (LHS, RHS):
        swizzle = layout.packing(operand, element)
        unit = swizzle.tile_shape[-1]
    else:
        swizzle, unit = layout.packing(operand), layout.shape.block
    per_block = layout.shape.block // unit
    columns = None if blocks is None else blocks * per_block
    outer = [swizzle.tiles(dim, size) for dim, size in enumerate((height, columns))]
    limits = (dynamic.rows, dynamic.blocks and build.times(dynamic.blocks, per_block))
    steps = [tile * multiple for tile, multiple in zip(swizzle.tile_shape, swizzle.multiples, strict=False)]
    taken = dynamic.taken(steps[ROWS])
    if limits[COLUMNS] is not None:
        taken.append(build.ceildiv(limits[COLUMNS], steps[COLUMNS]))
    multiples = [swizzle.multiples[dim] for dim, limit in enumerate(limits) if limit is not None]
    tiles = [build.times(count, multiple) for count, multiple in zip(taken, multiples, strict=True)]
    target = _Target(swizzle, (height, columns), limits, unit, per_block, len(batch))
    bits = element_format(element).bits if operand in (LHS, RHS) else 0
    words = _words(source, target, bits)
    packed = build.tensor_type((*batch, *outer, *words.shape), words.element)
    with build.dispatch_region([packed], tiles, enabled=regions and not is_constant(source)) as region:
        region.returned = [build.generate(packed, words.compute, tiles)]
    shape = layout.multiplied_shape(operand, (*batch, *layout.packed_shape(operand, outer)))
    if bits:
        shape, element = (*shape[:-1], layout.shape.block * bits // 8), "i8"
    return build.bitcast(region.results[0], build.tensor_type(shape, element), tiles, taken)


def regrouped(packed: ir.Value, inner_tiles: int, tiles: list[ir.Value]) -> ir.Value:
    """Returns an operand packed in inner tiles, in groups of so many along its rows. `tiles` are its outer sizes where
    dynamic."""
    kind = ir.RankedTensorType(packed.type)
    rows, each, *others = static_sizes(packed)
    count = None if rows is None else rows * (each or 1) // inner_tiles
    return build.bitcast(packed, build.tensor_type((count, inner_tiles, *others), str(kind.element_type)), None, tiles)


def elements(packed: ir.Value, element: str, tiles: list[ir.Value]) -> ir.Value:
    """Returns packed elements from their bytes, scales as they are; `tiles` are the outer sizes where dynamic."""
    if str(ir.RankedTensorType(packed.type).element_type) != "i8":
        return packed
    *shape, size = build.static_sizes(packed)
    count = (size or 0) * 8 // element_format(element).bits
    return build.bitcast(packed, build.tensor_type((*shape, count), element), tiles)


def without_padding(value: ir.Value, result: ir.RankedTensorType) -> ir.Value:
    """Returns the top left of `value`, [(batch,) rows, …], which is packed with its padding."""
    part = build.leading_slice(value, result, [])
    part.owner.attributes[_LEADING] = ir.UnitAttr.get()
    return part


@dataclass(frozen=True)
class _Target:
    """The data to pack: `size` are rows and columns, a column `unit` elements wide, `limits` the same where dynamic.

    `per_block` columns have a block, `batch` counts dimensions in front of the rows.
    """

    swizzle: TileSwizzle
    size: tuple[int | None, int | None]
    limits: tuple[ir.Value | None, ir.Value | None]
    unit: int
    per_block: int
    batch: int


@dataclass(frozen=True)
class _Words:
    """A packed tile in words: its shape, and the computation of one word from loop indices."""

    shape: tuple[int, ...]
    compute: Callable[[list[ir.Value]], ir.Value]
    element: str = "i32"


def _words(source: ir.Value, target: _Target, bits: int) -> _Words:
    if not is_gathered(source):
        return (
            _element_words(source, target, bits) if bits else _scale_words(_row_major(source, target, (), "i8"), target)
        )
    gathered = codes(source)
    if bits:
        return _gathered_bytes(gathered, target, bits)
    return _scale_words(lambda position: _narrow(gathered.at(position)), target)


_Read = Callable[[list[ir.Value]], ir.Value]
"""Reads the source at (batch,) row and column."""


def _row_major(source: ir.Value, target: _Target, inner: tuple[int, ...], element: str) -> Callable[..., ir.Value]:
    """Returns a reader of the bytes of a row-major source; `inner` dimensions make a column."""
    if (gather := gathers.find(source)) is not None and gather.leading <= target.batch + 1:
        return _by_id(gather, target, inner, element)
    if (part := graph.producer(source)) is not None and _LEADING in part.attributes:
        whole = part.operands[0]
        *outer, blocks = static_sizes(whole)[: 2 + target.batch]
        columns = (blocks or 0) * target.per_block
        view = build.bitcast(whole, build.tensor_type((*outer, columns, *inner), element))
        return lambda position: tensor.ExtractOp(view, position).result
    store = storage(source)
    *batch, _, _ = static_sizes(source)[: 2 + target.batch]
    sizes = [limit for limit in target.limits if limit is not None]
    same = static_sizes(store).count(None) == len(sizes) == 1 and target.size[0] is None
    own = sizes if same else None  # else those of the storage
    view = build.bitcast(store, build.tensor_type((*batch, *target.size, *inner), element), own, sizes)
    return lambda position: tensor.ExtractOp(view, position).result


def _by_id(gather: Gather, target: _Target, inner: tuple[int, ...], element: str) -> _Read:
    """Returns a reader like `_row_major`, of a source whose rows, or matrices, are selected by ids."""
    parts, *_ = static_sizes(gather.source)
    sizes = (parts, *target.size[gather.leading - target.batch :], *inner)
    view = build.bitcast(storage(gather.source), build.tensor_type(sizes, element))

    def read(position: list[ir.Value]) -> ir.Value:
        id_ = tensor.ExtractOp(gather.ids, position[: gather.leading]).result
        return tensor.ExtractOp(view, [gather.part(id_), *position[gather.leading :]]).result

    return read


def _narrow(value: ir.Value) -> ir.Value:
    return arith.TruncIOp(ir.IntegerType.get_signless(8), value).result


def _element_words(source: ir.Value, target: _Target, bits: int) -> _Words:
    """Returns words of elements that are contiguous both in the source and in the innermost packed dimension."""
    *shape, unit = target.swizzle.packed_shape
    size = unit * bits // 8
    # IREE moves up to four words at a time, if their number divides `size`: not of the 24 bytes of 6-bit elements.
    word = _WORD_BYTES if size % 16 == 0 else 2 * _WORD_BYTES
    element, words = f"i{8 * word}", size // word
    read = _row_major(source, target, (words,), element)
    coordinates = [*_dims(len(shape)), ir.AffineExpr.get_constant(0)]

    def compute(loops: list[ir.Value]) -> ir.Value:
        return _extract(lambda position: read([*position, loops[-1]]), target, loops, coordinates)

    return _Words((*shape, words), compute, element)


def _gathered_bytes(source: Codes, target: _Target, bits: int) -> _Words:
    """Returns bytes of elements stored in any order: each is assembled from its one or two elements."""
    *shape, unit = target.swizzle.packed_shape
    coordinates = [*_dims(len(shape)), ir.AffineExpr.get_constant(0)]
    i32 = ir.IntegerType.get_signless(32)
    first_bit = ir.AffineExpr.get_dim(1) * 8
    first = ir.AffineExpr.get_floor_div(first_bit, bits)

    def byte(position: list[ir.Value], at: ir.Value) -> ir.Value:
        *rows, column = position

        def code(expr: ir.AffineExpr) -> ir.Value:
            k = build.apply(ir.AffineExpr.get_dim(0) * target.unit + expr, [column, at])
            return source.at([*rows, k])

        if bits == 8:
            return _narrow(code(first))
        shift = arith.IndexCastOp(i32, build.apply(ir.AffineExpr.get_mod(first_bit, bits), [column, at])).result
        left = arith.SubIOp(arith.ConstantOp(i32, bits).result, shift).result
        high = arith.ShLIOp(code(first + 1), left).result
        return _narrow(arith.OrIOp(arith.ShRUIOp(code(first), shift).result, high).result)

    def compute(loops: list[ir.Value]) -> ir.Value:
        return _extract(lambda position: byte(position, loops[-1]), target, loops, coordinates)

    return _Words((*shape, unit * bits // 8), compute, "i8")


def _scale_words(read: _Read, target: _Target) -> _Words:
    """Returns words of scales, of the fewest innermost dimensions that fill whole words."""
    shape = target.swizzle.packed_shape
    split = next(i for i in reversed(range(len(shape))) if math.prod(shape[i:]) % _WORD_BYTES == 0)
    word = ir.AffineExpr.get_dim(2 + split)

    def compute(loops: list[ir.Value]) -> ir.Value:
        i32 = ir.IntegerType.get_signless(32)
        result = None
        for byte in range(_WORD_BYTES):
            coordinates = [*_dims(split), *_delinearise(word * _WORD_BYTES + byte, shape[split:])]
            value = arith.ExtUIOp(i32, _extract(read, target, loops, coordinates)).result
            if byte:
                value = arith.ShLIOp(value, arith.ConstantOp(i32, 8 * byte).result).result
            result = value if result is None else arith.OrIOp(result, value).result
        assert result is not None
        return result

    return _Words((*shape[:split], math.prod(shape[split:]) // _WORD_BYTES), compute)


def _dims(count: int) -> list[ir.AffineExpr]:
    """Returns the first loops over a packed tile; two loops over tiles come before them."""
    return [ir.AffineExpr.get_dim(2 + i) for i in range(count)]


def _delinearise(linear: ir.AffineExpr, shape: tuple[int, ...]) -> list[ir.AffineExpr]:
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return [
        ir.AffineExpr.get_mod(ir.AffineExpr.get_floor_div(linear, stride), size)
        for stride, size in zip(strides, shape, strict=True)
    ]


def _extract(read: _Read, target: _Target, loops: list[ir.Value], coordinates: list[ir.AffineExpr]) -> ir.Value:
    """Returns the source at packed `coordinates` of a tile, or 0 in the padding. They are affine in the loops after the
    batch."""
    position, loops = loops[: target.batch], loops[target.batch :]
    checks: list[ir.Value] = []
    for source_dim in (ROWS, COLUMNS):
        tile, extent = target.swizzle.tile_shape[source_dim], target.size[source_dim]
        steps = zip(coordinates, target.swizzle.strides(source_dim), strict=True)
        expr = sum((c * stride for c, stride in steps if stride), ir.AffineExpr.get_dim(source_dim) * tile)
        index = build.apply(expr, loops)
        if extent is None or extent % (tile * target.swizzle.multiples[source_dim]):
            limit = target.limits[source_dim] if extent is None else build.constant_index(extent)
            assert limit is not None
            checks.append(arith.CmpIOp(arith.CmpIPredicate.slt, index, limit).result)
            index = build.clamp(index, extent if extent is not None else limit)
        position.append(index)
    value = read(position)
    if not checks:
        return value
    inside = checks[0] if len(checks) == 1 else arith.AndIOp(*checks).result
    return arith.SelectOp(inside, value, arith.ConstantOp(value.type, 0).result).result


def is_constant(value: ir.Value) -> bool:
    """Returns whether a tensor's bytes are known at compile time: a constant, or an immutable global with a value in
    the module."""
    value = storage(value)
    op = graph.producer(value)
    if op is None:
        return _is_marked(ir.BlockArgument(value))
    if op.name == "arith.constant":
        return True
    return op.name == variables.LOAD and is_constant_global(op)


def is_constant_global(load: ir.Operation) -> bool:
    """Returns whether a global never changes, and its value is in the module, unlike a parameter's."""
    found = variables.of(load)
    return found is not None and not variables.is_mutable(found) and variables.elements(found) is not None


def _is_marked(argument: ir.BlockArgument) -> bool:
    function = argument.owner.owner
    if "arg_attrs" not in function.attributes:
        return False
    return CONSTANT in ir.DictAttr(ir.ArrayAttr(function.attributes["arg_attrs"])[argument.arg_number])
