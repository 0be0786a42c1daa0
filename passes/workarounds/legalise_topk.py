"""mxcomp-legalise-topk: rewrites top-k, which IREE miscompiles on GPUs, as a sort.

All threads of a workgroup insert each element into one table of the k first, which then has it twice. So rows are
sorted, equal elements by their place, as one thread does for each row.

Before:

    %r:2 = iree_linalg_ext.topk dimension(1) ins(%x : tensor<8x64xf32>)
        outs(%v, %i : tensor<8x4xf32>, tensor<8x4xi32>) {
    ^bb0(%a: f32, %b: f32):
      %0 = arith.cmpf ogt, %a, %b : f32
      iree_linalg_ext.yield %0 : i1
    } -> tensor<8x4xf32>, tensor<8x4xi32>

After:

    %places = linalg.generic … { linalg.index 1 }
    %s:2 = iree_linalg_ext.sort dimension(1) outs(%x, %places : tensor<8x64xf32>, tensor<8x64xi32>) {
      (%a before %b, or neither before the other, and the place of %a less)
    }
    %r0 = tensor.extract_slice %s#0[0, 0] [8, 4] [1, 1]      (and %r1 of %s#1)

What the results are written over has to be a constant, as it is where models come from: no element is less.
"""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.errors import InputError
from mxcomp.mlir import build, graph, inline, linalg

NAMES = ("iree_linalg_ext.topk", "iree_linalg_ext.topk_v2")
_YIELD = "iree_linalg_ext.yield"


def run(module: ir.Operation) -> None:
    """Rewrites each top-k below `module`."""
    graph.rewrite(module, NAMES, _sort, outside=True)


def _sort(op: ir.Operation) -> None:
    *inputs, values, indices = op.operands
    if any(not _is_filled(value) for value in (values, indices)):
        raise InputError(
            f"{op.location}: {op.name} that writes over tensors with values: fill both with a constant "
            "(linalg.fill), and concatenate what else competes with the input"
        )
    axis = ir.IntegerAttr(op.attributes["dimension"]).value
    kind = ir.RankedTensorType(indices.type).element_type
    indices = inputs[1] if len(inputs) > 1 else _indices(inputs[0], axis, kind)
    sorted_ = _sorted([inputs[0], indices], axis, op.regions[0].blocks[0])
    graph.replace(op, *(_first(new, old, axis) for old, new in zip(op.results, sorted_, strict=True)))


def _is_filled(value: ir.Value) -> bool:
    return graph.constant(value) is not None or graph.producer(value, "linalg.fill", "tensor.splat") is not None


def _indices(x: ir.Value, axis: int, element: ir.Type) -> ir.Value:
    """Returns the index of each element along an axis."""
    kind = build.tensor_type(build.static_sizes(x), element)

    def index() -> ir.Value:
        return arith.IndexCastOp(element, linalg.IndexOp(axis).result).result

    return build.elementwise(kind, [], index, build.dynamic_sizes(x))


def _sorted(tensors: Sequence[ir.Value], axis: int, order: ir.Block) -> Sequence[ir.Value]:
    """Returns both tensors sorted by the first, in the order of a block of two arguments, else by the second."""
    i64 = ir.IntegerType.get_signless(64)
    attributes = {
        "dimension": ir.IntegerAttr.get(i64, axis),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, len(tensors)]),
    }
    kinds = [value.type for value in tensors]
    op = ir.Operation.create(graph.SORT, kinds, list(tensors), attributes, regions=1)
    elements = [ir.RankedTensorType(kind).element_type for kind in kinds for _ in range(2)]
    block = op.regions[0].blocks.append(*elements, arg_locs=[op.location] * len(elements))
    a, b, place_a, place_b = block.arguments
    with ir.InsertionPoint(block):
        before, behind = _inlined(order, a, b), _inlined(order, b, a)
        less = arith.CmpIOp(arith.CmpIPredicate.slt, place_a, place_b).result
        true = arith.ConstantOp(ir.IntegerType.get_signless(1), 1).result
        equal = arith.AndIOp(arith.XOrIOp(behind, true).result, less).result
        ir.Operation.create(_YIELD, [], [arith.OrIOp(before, equal).result])
    return list(op.results)


def _inlined(block: ir.Block, *arguments: ir.Value) -> ir.Value:
    """Returns what a block yields for other arguments, computed at the insertion point."""
    values = dict(zip(block.arguments, arguments, strict=True))
    *body, last = (view.operation for view in block.operations)
    inline.copy(body, values)
    return values.get(last.operands[0], last.operands[0])


def _first(value: ir.Value, like: ir.Value, axis: int) -> ir.Value:
    """Returns the first elements along an axis, as many as another tensor has, whose other sizes are equal."""
    known = build.static_sizes(like)
    sources = [like.owner.operands[-1] if i == axis else value for i in range(len(known))]
    sizes = [build.dim(sources[i], i) if size is None else size for i, size in enumerate(known)]
    return build.sliced(value, [0] * len(sizes), sizes)
