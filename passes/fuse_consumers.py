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
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp.matching import replacing
from mxcomp.matching.elements import Index, UntraceableError, apply_map, loop_subscripts
from mxcomp.matching.replacing import Reading
from mxcomp.mlir import build, graph, notes
from mxcomp.mlir.build import is_narrow, is_sub_byte
from mxcomp.mlir.inline import inline
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise, only_calculates, reads_init, reassociation
from mxcomp.packing.result_tiles import EPILOGUE
from mxcomp.plans import plan_of


def run(module: ir.Operation) -> None:
    """Fuses the consumers of every encoded result below `module`."""
    for op in [op for op in graph.walk(module, bodies=False) if op.name == "iree_encoding.unset_encoding"]:
        consumers, reason = find(op)
        matmul = graph.producer(op.operands[0])
        plan = None if matmul is None else plan_of(matmul)
        if plan is not None and not plan.fuses_consumers:
            continue
        if reason and plan is not None and plan.index is not None:
            notes.note(op, plan.index, reason)
        if consumers:
            _fuse(op, consumers)


def find(unset: ir.Operation) -> tuple[list[ir.Operation], str]:
    """Returns the consumers to fuse, in order, and why the first elementwise one that is not fused is not.

    None of their results but the last one's is used by anything else. A tensor.expand_shape may be among them, never
    the last: a batch of the LHS has been folded into rows.
    """
    values: list[ir.Value] = [unset.results[0]]
    inside: list[ir.Operation] = []
    best: list[ir.Operation] = []
    left: dict[ir.Operation, str] = {}
    is_final = False
    for op in graph.users_in_order(values):
        if reason := _misfit(op, values, inside):
            left[op] = reason
            is_final |= op.name != "tensor.dim"  # it reads one of the values, whatever else is fused
        else:
            inside.append(op)
            reasons = (_stays_behind(value, values, inside) for value in values)
            reason = "it ends in an expansion" if op.name == _EXPAND else next(filter(None, reasons), "")
            if reason:
                left[op] = reason
            else:
                best = list(inside)
            values.append(op.results[0])
        if is_final and _first_left(left, best) is not None:
            break
    if (first := _first_left(left, best)) is None:
        return best, ""
    return best, f"{first.name} at {graph.location_text(first.location)} is not fused: {left[first]}"


def _first_left(left: Mapping[ir.Operation, str], best: Collection[ir.Operation]) -> ir.Operation | None:
    """Returns the first elementwise operation that is not fused for a reason worth reporting."""
    unfused = (op for op, reason in left.items() if op not in best and reason != _QUANTISES)
    return next(filter(is_elementwise, unfused), None)


_EXPAND = "tensor.expand_shape"
_QUANTISES = "it quantises by blocks, which is for the packing of the next matmul to do"


def _stays_behind(value: ir.Value, values: list[ir.Value], inside: list[ir.Operation]) -> str:
    """Returns why `value` is needed without the consumers `inside`; "" if it is not.

    It must be read as it is by all of them, and by nothing else; what asks for its sizes can know them without it.
    """
    at = tuple(Index(str(i), 1, size) for i, size in enumerate(build.static_sizes(value)))
    readings = [
        Reading(op, i, _read_at(op, i, at))
        for op in inside
        for i, operand in enumerate(op.operands)
        if operand == value
    ]
    known = build.static_sizes(value) == build.static_sizes(values[0])
    return replacing.objection(value, readings, at=at, sizes_known=known)


def _read_at(op: ir.Operation, operand: int, at: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """Returns the subscripts at which an operand is read for the result's element at `at`. An expansion reads it
    whole."""
    if op.name == _EXPAND:
        return at
    try:
        return apply_map((indexing_maps(op) or [])[operand], loop_subscripts(op, at))
    except UntraceableError:
        return None


def _misfit(op: ir.Operation, values: list[ir.Value], inside: list[ir.Operation]) -> str:
    """Returns why an operation does not map [(batch,) M, N] elementwise from results of `values`; "" if it does."""
    expansion = _expansion(inside)
    if op.name == _EXPAND:
        return "it is expanded twice" if expansion is not None else ""
    shape = values[0] if expansion is None else expansion.results[0]
    if not is_elementwise(op) or len(op.results) != 1:
        return "it is not elementwise"
    if EPILOGUE in op.attributes:
        return "it is another matmul's already"
    if build.static_sizes(op.results[0]) != build.static_sizes(shape):
        return "its result has another shape"
    kind = ir.RankedTensorType(op.results[0].type).element_type
    if expansion is not None and is_narrow(kind):
        return _QUANTISES
    if is_sub_byte(kind):
        return f"IREE cannot store {kind} from several lanes"
    identity = ir.AffineMap.get_identity(ir.RankedTensorType(op.results[0].type).rank)
    *maps, output = indexing_maps(op) or []
    inputs = list(op.operands)[:-1]
    if output != identity:
        return "its result is in another order"
    if reads_init(op):
        return "it reads what is in its result before"
    if not only_calculates(op):
        return "it does more than to calculate"
    for value, m in zip(inputs, maps, strict=True):
        if value in values and m != identity:
            return "it reads the result in another order or only in part"
        if value not in values and _folded(m, expansion) is None:
            return "it reads another tensor at subscripts that are no plain dimensions"
    return ""


def _expansion(consumers: list[ir.Operation]) -> ir.Operation | None:
    return next((op for op in consumers if op.name == _EXPAND), None)


@dataclass(frozen=True)
class _Folded:
    """An operand's indexing map by the loops before an expansion; `groups` of its dimensions are to be collapsed."""

    map: ir.AffineMap
    groups: list[list[int]]


def _folded(affine_map: ir.AffineMap, expansion: ir.Operation | None) -> _Folded | None:
    """Returns `affine_map` before `expansion`; None if it is not simple, or indexes a part of a dynamic dimension."""
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
    """Returns an expanded dimension in terms of its source dimension; None if that takes a dynamic size."""
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
    """Builds one generic of all consumers on the encoded result, and a new unset_encoding behind it."""
    encoded, last, expansion = unset.operands[0], consumers[-1], _expansion(consumers)
    inner = [unset.results[0], *(op.results[0] for op in consumers)]
    kind, final = ir.RankedTensorType(encoded.type), ir.RankedTensorType(last.results[0].type)
    with last.location, ir.InsertionPoint(last):
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
        fused.attributes[EPILOGUE] = ir.UnitAttr.get()
        plain = build.tensor_type(build.static_sizes(unset.results[0]), final.element_type)
        _, sizes_given, _ = ir.DenseI32ArrayAttr(unset.attributes["operandSegmentSizes"])
        dynamic = list(unset.operands)[1:]
        value = build.unset_encoding(fused.results[0], plain, dynamic[:sizes_given], dynamic[sizes_given:])
        if expansion is not None:
            sizes, shape = list(expansion.operands)[1:], expansion.attributes["static_output_shape"]
            value = tensor.ExpandShapeOp(final, value, reassociation(expansion), sizes, shape).result
    last.results[0].replace_all_uses_with(value)
    _take_collapses(value)
    for old in inner[:-1]:
        _take_dims(old, unset)
    made = [graph.producer(operand) for op in consumers for operand in op.operands if operand not in inner]
    expanded = dict.fromkeys(op for op in made if op is not None and op.name == _EXPAND)
    for op in (*reversed(consumers), unset, *expanded):
        graph.erase_dead(op)


def _take_dims(value: ir.Value, unset: ir.Operation) -> None:
    """Replaces queries of dynamic dimensions of `value`, which is erased, by the operands of unset_encoding."""
    if build.static_sizes(value) != build.static_sizes(unset.results[0]):
        return
    sizes = iter(list(unset.operands)[1:])
    known = {d: next(sizes) for d, size in enumerate(build.static_sizes(value)) if size is None}
    for op in [use.owner.operation for use in value.uses]:
        if op.name == "tensor.dim":
            at = ir.IntegerAttr(op.operands[1].owner.operation.attributes["value"]).value
            graph.replace(op, known[at])


def _read(
    op: ir.Operation, inner: list[ir.Value], expansion: ir.Operation | None
) -> list[tuple[ir.Value, ir.AffineMap]]:
    """Returns what a consumer reads besides the matmul's result, with the subscripts before any expansion."""
    if op.name == _EXPAND:
        return []
    found = []
    for operand, affine_map in zip(list(op.operands)[:-1], (indexing_maps(op) or [])[:-1], strict=True):
        if operand in inner:
            continue
        folded = _folded(affine_map, expansion)
        assert folded is not None
        if any(len(group) > 1 for group in folded.groups):
            operand = _collapsed(operand, folded.groups)
        found.append((operand, folded.map))
    return found


def _collapsed(value: ir.Value, groups: list[list[int]]) -> ir.Value:
    """Returns a value with dimensions collapsed to groups, which undoes an expansion to them."""
    if (op := graph.producer(value, _EXPAND)) is not None and reassociation(op) == groups:
        return op.operands[0]
    return build.collapse(value, groups)


def _take_collapses(value: ir.Value) -> None:
    """Replaces collapses of an expanded value by the source of the expansion."""
    if (op := graph.producer(value, _EXPAND)) is None:
        return
    for user in [use.owner.operation for use in value.uses]:
        if user.name == "tensor.collapse_shape" and user.results[0].type == op.operands[0].type:
            graph.replace(user, op.operands[0])
    graph.erase_dead(op)
