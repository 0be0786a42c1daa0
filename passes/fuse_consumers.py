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

Everything that would leave more than one result stays behind: the consumers moved are the most whose results are only
used among themselves, but for the last one's.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp import build
from mxcomp.options import Options
from mxcomp.passes.inline import inline
from mxcomp.passes.trace import indexing_maps, is_elementwise

ATTRIBUTE = "mxcomp.epilogue"
_CALCULATIONS = ("arith.", "math.")
"""Dialects whose operations do nothing but calculate."""


def run(module: ir.Operation, options: Options) -> None:
    """Fuses the consumers of every encoded result below `module`."""
    for op in [op for op in build.walk(module) if op.name == "iree_encoding.unset_encoding"]:
        if consumers := find(op):
            _fuse(op, consumers)


def find(unset: ir.Operation) -> list[ir.Operation]:
    """Consumers to fuse, in order; none of their results but the last one's is used by anything else."""
    values, inside, best = [unset.results[0]], [], []
    operations = [view.operation for view in unset.block.operations]
    for op in operations[operations.index(unset) + 1 :]:
        if any(operand in values for operand in op.operands) and _is_fusable(op, values):
            inside.append(op)
            if all(user in inside or user.name == "tensor.dim" for value in values for user in _users(value)):
                best = list(inside)
            values.append(op.results[0])
    return best


def _users(value: ir.Value) -> list[ir.Operation]:
    return [use.owner.operation for use in value.uses]


def _is_fusable(op: ir.Operation, values: list[ir.Value]) -> bool:
    """Whether it maps [M, N] to [M, N] elementwise, and reads the matmul's result at the same place."""
    if not is_elementwise(op) or ATTRIBUTE in op.attributes:  # or another matmul's already
        return False
    if build.static_sizes(op.results[0]) != build.static_sizes(values[0]):
        return False
    with op.context:
        identity = ir.AffineMap.get_identity(2)
        *maps, output = indexing_maps(op) or []
    inputs = list(op.operands)[:-1]
    body = op.regions[0].blocks[0]
    if output != identity or any(True for _ in body.arguments[len(inputs)].uses):
        return False
    if any(not view.operation.name.startswith(_CALCULATIONS) for view in list(body.operations)[:-1]):
        return False
    return all(
        m == identity if value in values else all(_is_plain(expr) for expr in m.results)
        for value, m in zip(inputs, maps, strict=True)
    )


def _is_plain(expr: ir.AffineExpr) -> bool:
    return isinstance(expr, ir.AffineDimExpr | ir.AffineConstantExpr)


def _take_dims(value: ir.Value, unset: ir.Operation) -> None:
    """Lets those that ask `value`, which goes, for its dynamic dimensions have what unset_encoding was given."""
    sizes = iter(list(unset.operands)[1:])
    known = {d: next(sizes) for d, size in enumerate(build.static_sizes(value)) if size is None}
    for op in _users(value):
        if op.name == "tensor.dim":
            at = ir.IntegerAttr(op.operands[1].owner.operation.attributes["value"]).value
            op.results[0].replace_all_uses_with(known[at])
            op.erase()


def _fuse(unset: ir.Operation, consumers: list[ir.Operation]) -> None:
    """One generic of all consumers, on the encoded result, and a new unset_encoding behind it."""
    encoded, last = unset.operands[0], consumers[-1]
    inner = [unset.results[0], *(op.results[0] for op in consumers)]
    read = [
        (operand, affine_map)
        for op in consumers
        for operand, affine_map in zip(list(op.operands)[:-1], (indexing_maps(op) or [])[:-1], strict=True)
        if operand not in inner
    ]
    kind, final = ir.RankedTensorType(encoded.type), ir.RankedTensorType(last.results[0].type)
    with last.context, last.location, ir.InsertionPoint(last):
        result = ir.RankedTensorType.get(kind.shape, final.element_type, encoding=kind.encoding)
        init = build.empty(result, build.dynamic_sizes(unset.results[0]))
        identity = ir.AffineMap.get_identity(2)

        def body(element: ir.Value, *arguments: ir.Value) -> ir.Value:
            elements, outer = [element], iter(arguments[:-1])
            for op in consumers:
                operands = list(op.operands)[:-1]
                given = [elements[inner.index(o)] if o in inner else next(outer) for o in operands]
                elements.append(inline(op, given))
            return elements[-1]

        maps = [identity, *(affine_map for _, affine_map in read), identity]
        inputs = [encoded, *(operand for operand, _ in read)]
        fused = build.generic(result, inputs, init, maps, ["parallel"] * 2, body)
        fused.attributes[ATTRIBUTE] = ir.UnitAttr.get()
        unset_sizes = list(unset.operands)[1:]
        new = ir.Operation.create(
            "iree_encoding.unset_encoding",
            results=[final],
            operands=[fused.results[0], *unset_sizes],
            attributes={"operandSegmentSizes": unset.attributes["operandSegmentSizes"]},
        )
    last.results[0].replace_all_uses_with(new.results[0])
    for value in inner[:-1]:
        _take_dims(value, unset)
    for op in (*reversed(consumers), unset):
        build.erase_dead(op)
