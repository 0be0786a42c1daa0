"""mxcomp-fuse-consumers: moves elementwise consumers of a scaled matmul in front of unset_encoding.

Before (bias, activation, residual, multiplication, cast: any number of elementwise linalg.generic):

    %r = iree_encoding.unset_encoding %re : tensor<64x128xf32, #acc> -> tensor<64x128xf32>
    %b = linalg.generic … ins(%r, %bias : tensor<64x128xf32>, tensor<128xf32>) { arith.addf }
    %y = linalg.generic … ins(%b : tensor<64x128xf32>) { arith.truncf } -> tensor<64x128xbf16>

After, one generic on the encoded result; what else it reads stays as it is:

    %ye = linalg.generic {…, mxcomp.epilogue} ins(%re, %bias : tensor<64x128xf32, #acc>, tensor<128xf32>) {
      arith.addf … arith.truncf
    } -> tensor<64x128xbf16, #acc>
    %y = iree_encoding.unset_encoding %ye : tensor<64x128xbf16, #acc> -> tensor<64x128xbf16>

With a batch there are three dimensions. If it is one of the LHS, folded into rows, the result is expanded before its
consumers: they are fused by rows, and what they produce is expanded.

Everything that would leave more than one result stays behind: the consumers moved are the most whose results are only
used among themselves, but for the last one's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp import build
from mxcomp.options import Options
from mxcomp.passes.inline import inline
from mxcomp.passes.trace import indexing_maps, is_elementwise, is_narrow, reassociation

ATTRIBUTE = "mxcomp.epilogue"
_CALCULATIONS = ("arith.", "math.")
"""Dialects whose operations do nothing but calculate."""


def run(module: ir.Operation, options: Options) -> None:
    """Fuses the consumers of every encoded result below `module`."""
    for op in [op for op in build.walk(module) if op.name == "iree_encoding.unset_encoding"]:
        if consumers := find(op):
            _fuse(op, consumers)


def find(unset: ir.Operation) -> list[ir.Operation]:
    """Consumers to fuse, in order; none of their results but the last one's is used by anything else.

    A tensor.expand_shape may be among them, never the last: a batch of the LHS has been folded into rows.
    """
    values: list[ir.Value] = [unset.results[0]]
    inside: list[ir.Operation] = []
    best: list[ir.Operation] = []
    operations = [view.operation for view in unset.block.operations]
    for op in operations[operations.index(unset) + 1 :]:
        if not any(operand in values for operand in op.operands) or not _is_fusable(op, values, inside):
            continue
        inside.append(op)
        if op.name != _EXPAND and all(_stays_behind(value, values, inside) for value in values):
            best = list(inside)
        values.append(op.results[0])
    return best


_EXPAND = "tensor.expand_shape"


def _stays_behind(value: ir.Value, values: list[ir.Value], inside: list[ir.Operation]) -> bool:
    """Whether nothing else uses `value` than what goes along, or asks for a size that is known without it."""
    same = build.static_sizes(value) == build.static_sizes(values[0])
    users = (use.owner.operation for use in value.uses)
    return all(user in inside or (user.name == "tensor.dim" and same) for user in users)


def _is_fusable(op: ir.Operation, values: list[ir.Value], inside: list[ir.Operation]) -> bool:
    """Whether it maps [(batch,) M, N] to the same elementwise, and reads the matmul's result at the same place."""
    expansion = _expansion(inside)
    if op.name == _EXPAND:
        return expansion is None
    shape = values[0] if expansion is None else expansion.results[0]
    if not is_elementwise(op) or len(op.results) != 1 or ATTRIBUTE in op.attributes:  # or another matmul's already
        return False
    if build.static_sizes(op.results[0]) != build.static_sizes(shape):
        return False
    kind = ir.RankedTensorType(op.results[0].type).element_type
    if expansion is not None and is_narrow(kind):
        return False  # quantised by blocks, which is for the packing of the next matmul to do
    with op.context:
        identity = ir.AffineMap.get_identity(ir.RankedTensorType(op.results[0].type).rank)
        *maps, output = indexing_maps(op) or []
        inputs = list(op.operands)[:-1]
        body = op.regions[0].blocks[0]
        if output != identity or any(True for _ in body.arguments[len(inputs)].uses):
            return False
        if any(not view.operation.name.startswith(_CALCULATIONS) for view in list(body.operations)[:-1]):
            return False
        return all(
            m == identity if value in values else _folded(m, expansion) is not None
            for value, m in zip(inputs, maps, strict=True)
        )


def _expansion(consumers: list[ir.Operation]) -> ir.Operation | None:
    return next((op for op in consumers if op.name == _EXPAND), None)


@dataclass(frozen=True)
class _Folded:
    """An operand's indexing map by the loops before an expansion; `groups` of its dimensions are to be collapsed."""

    map: ir.AffineMap
    groups: list[list[int]]


def _folded(affine_map: ir.AffineMap, expansion: ir.Operation | None) -> _Folded | None:
    """`affine_map` before `expansion`; None if it is not plain, or a part of a dynamic dimension."""
    if not all(isinstance(expr, ir.AffineDimExpr | ir.AffineConstantExpr) for expr in affine_map.results):
        return None
    exprs = list(affine_map.results)
    if expansion is None:
        return _Folded(affine_map, [[i] for i in range(len(exprs))])
    sizes, parts = build.static_sizes(expansion.results[0]), reassociation(expansion)
    results: list[ir.AffineExpr] = []
    groups: list[list[int]] = []
    while (at := sum(map(len, groups))) < len(exprs):
        whole = next((g for g, dims in enumerate(parts) if _positions(exprs[at : at + len(dims)]) == dims), None)
        expr = _part(exprs[at], parts, sizes) if whole is None else ir.AffineExpr.get_dim(whole)
        if expr is None:
            return None
        results.append(expr)
        groups.append(list(range(at, at + (1 if whole is None else len(parts[whole])))))
    return _Folded(ir.AffineMap.get(len(parts), 0, results), groups)


def _positions(exprs: list[ir.AffineExpr]) -> list[int]:
    return [ir.AffineDimExpr(expr).position for expr in exprs if isinstance(expr, ir.AffineDimExpr)]


def _part(expr: ir.AffineExpr, parts: list[list[int]], sizes: list[int | None]) -> ir.AffineExpr | None:
    """An expanded dimension by the one that it is a part of; None if that takes a size known at run time only."""
    if not isinstance(expr, ir.AffineDimExpr):
        return expr
    dim = ir.AffineDimExpr(expr).position
    whole, dims = next((g, dims) for g, dims in enumerate(parts) if dim in dims)
    inner = [sizes[d] for d in dims if d > dim]
    size = sizes[dim]
    if size == 1:
        return ir.AffineExpr.get_constant(0)
    if None in inner or (size is None and dim != dims[0]):
        return None
    result = ir.AffineExpr.get_floor_div(ir.AffineExpr.get_dim(whole), math.prod(s or 1 for s in inner))
    return result if dim == dims[0] or size is None else ir.AffineExpr.get_mod(result, size)


def _fuse(unset: ir.Operation, consumers: list[ir.Operation]) -> None:
    """One generic of all consumers, on the encoded result, and a new unset_encoding behind it."""
    encoded, last, expansion = unset.operands[0], consumers[-1], _expansion(consumers)
    inner = [unset.results[0], *(op.results[0] for op in consumers)]
    kind, final = ir.RankedTensorType(encoded.type), ir.RankedTensorType(last.results[0].type)
    with last.context, last.location, ir.InsertionPoint(last):
        read = [given for i, op in enumerate(consumers) for given in _read(op, inner, _expansion(consumers[:i]))]
        result = ir.RankedTensorType.get(kind.shape, final.element_type, encoding=kind.encoding)
        init = build.empty(result, build.dynamic_sizes(unset.results[0]))
        identity = ir.AffineMap.get_identity(kind.rank)

        def body(element: ir.Value, *arguments: ir.Value) -> ir.Value:
            elements, outer = [element], iter(arguments[:-1])
            for op in consumers:
                operands = list(op.operands)[: 1 if op.name == _EXPAND else -1]
                given = [elements[inner.index(o)] if o in inner else next(outer) for o in operands]
                elements.append(given[0] if op.name == _EXPAND else inline(op, given))
            return elements[-1]

        maps = [identity, *(affine_map for _, affine_map in read), identity]
        inputs = [encoded, *(operand for operand, _ in read)]
        fused = build.generic(result, inputs, init, maps, ["parallel"] * kind.rank, body)
        fused.attributes[ATTRIBUTE] = ir.UnitAttr.get()
        plain = build.tensor_type(build.static_sizes(unset.results[0]), final.element_type)
        value = ir.Operation.create(
            "iree_encoding.unset_encoding",
            results=[plain],
            operands=[fused.results[0], *list(unset.operands)[1:]],
            attributes={"operandSegmentSizes": unset.attributes["operandSegmentSizes"]},
        ).results[0]
        if expansion is not None:
            sizes, shape = list(expansion.operands)[1:], expansion.attributes["static_output_shape"]
            value = tensor.ExpandShapeOp(final, value, reassociation(expansion), sizes, shape).result
    last.results[0].replace_all_uses_with(value)
    for old in inner[:-1]:
        _take_dims(old, unset)
    for op in (*reversed(consumers), unset):
        build.erase_dead(op)


def _take_dims(value: ir.Value, unset: ir.Operation) -> None:
    """Lets those that ask `value`, which goes, for its dynamic dimensions have what unset_encoding was given."""
    if build.static_sizes(value) != build.static_sizes(unset.results[0]):
        return
    sizes = iter(list(unset.operands)[1:])
    known = {d: next(sizes) for d, size in enumerate(build.static_sizes(value)) if size is None}
    for op in [use.owner.operation for use in value.uses]:
        if op.name == "tensor.dim":
            at = ir.IntegerAttr(op.operands[1].owner.operation.attributes["value"]).value
            op.results[0].replace_all_uses_with(known[at])
            op.erase()


def _read(
    op: ir.Operation, inner: list[ir.Value], expansion: ir.Operation | None
) -> list[tuple[ir.Value, ir.AffineMap]]:
    """What a consumer reads besides the matmul's result, and where; before an expansion, if it follows one."""
    if op.name == _EXPAND:
        return []
    found = []
    for operand, affine_map in zip(list(op.operands)[:-1], (indexing_maps(op) or [])[:-1], strict=True):
        if operand in inner:
            continue
        folded = _folded(affine_map, expansion)
        assert folded is not None
        if any(len(group) > 1 for group in folded.groups):
            operand = build.collapse(operand, folded.groups)
        found.append((operand, folded.map))
    return found
