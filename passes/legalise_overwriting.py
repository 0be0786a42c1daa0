"""mxcomp-legalise-overwriting: operations that write over tensors, where IREE 3.13 gets them wrong or fails.

What an operation reads and writes over at once, as in x[:, 1:3] = x[:, 0:2], IREE takes for one buffer: elements that
are written are read again, or the kernel cannot be compiled. It writes over a copy instead.

Before:

    %s = tensor.extract_slice %x[0, 0] [64, 2] [1, 1] : tensor<64x4xf32> to tensor<64x2xf32>
    %r = tensor.insert_slice %s into %x[0, 1] [64, 2] [1, 1] : tensor<64x2xf32> into tensor<64x4xf32>

After:

    %c = flow.dispatch.region -> (tensor<64x4xf32>) { (an elementwise linalg.generic that yields its operand %x) }
    %r = tensor.insert_slice %s into %c[0, 1] [64, 2] [1, 1] : tensor<64x2xf32> into tensor<64x4xf32>

A sort that has an operand twice has it once: elements of both go the same ways. Operands that are computed alike are
made one first, as IREE does it later (CSE).

Before:

    %r:3 = iree_linalg_ext.sort dimension(1) outs(%x, %i, %i : …) { ^bb0(%a, %b, %c, %d, %e, %f): … }

After:

    %r:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : …) { ^bb0(%a, %b, %c, %d): … }     (%r#2 is %r#1)

Constants that are written over are copied, too: small ones IREE puts into the kernel, as memory that is only read, and
then refuses it. It copies those of one value itself.

A result that nothing reads, as the keys of an argsort, is read by a barrier. Else its dispatch does not return it, and
what it would be written over is copied, by IREE, into memory that all threads of a workgroup share, where each sorts a
row of its own; unless it is of less than 32 elements. Nor can it be copied where there are more at dynamic sizes.

    %r:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : …) { … }        (of which %r#1 alone is used)
    %k = util.optimization_barrier %r#0
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from mxcomp.matching.symmetry import are_alike
from mxcomp.mlir import build, graph
from mxcomp.options import Options

PIPELINE = "any(cse)"
_SORT, _SCATTER, _GATHER = "iree_linalg_ext.sort", "iree_linalg_ext.scatter", "iree_linalg_ext.gather"
_SEGMENTS, _SIZE = "operandSegmentSizes", "tensor.dim"
_SLICES = ("tensor.extract_slice", "tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")
_PURE = ("linalg.", "tensor.", "iree_linalg_ext.", "iree_tensor_ext.", "arith.")
_WRITTEN = {
    _SCATTER: [-1],
    "iree_linalg_ext.map_store": [1],
    "iree_linalg_ext.scan": [-2, -1],
    "iree_linalg_ext.fft": [-2, -1],
    "tensor.insert_slice": [1],
}
"""The operands that operations write over."""


def _written(op: ir.Operation) -> list[int]:
    """Which of its operands an operation writes over."""
    count = len(op.operands)
    return list(range(count)) if op.name == _SORT else [i % count for i in _WRITTEN.get(op.name, ())]


def written(op: ir.Operation) -> list[ir.Value]:
    """What an operation writes over."""
    return [op.operands[i] for i in _written(op)]


def repeats(op: ir.Operation) -> bool:
    """Whether an operation reads what it writes over by another operand, or writes over it twice."""
    roots = [graph.behind(value, _SLICES) for value in op.operands]
    return any(roots.count(graph.behind(value, _SLICES)) > 1 for value in written(op))


def may_be_one(op: ir.Operation) -> bool:
    """Whether CSE may make one of what an operation writes over and another operand, or of what these are parts of."""
    sides = [list(op.operands), [graph.behind(value, _SLICES) for value in op.operands]] if _written(op) else []
    pairs = ((side[i], other) for side in sides for i in _written(op) for other in side[:i])
    return any(a != b and a.type == b.type and are_alike(a, b) for a, b in pairs)


def unread(op: ir.Operation) -> list[ir.Value]:
    """The results of a sort that nothing reads, beside others that are read."""
    found = [result for result in op.results if _is_unread(result)] if op.name == _SORT else []
    return found if len(found) < len(op.results) else []


def _is_unread(value: ir.Value) -> bool:
    """Whether nothing comes of a value's elements: sizes alone, and what is dead itself, which IREE removes later."""
    seen: set[ir.Operation] = set()
    pending = [value]
    while pending:
        users = {_around(use.owner.operation) for use in pending.pop().uses} - seen
        seen |= users
        if any(not user.name.startswith(_PURE) for user in users):
            return False
        pending += [result for user in users if user.name != _SIZE for result in user.results]
    return True


def _around(op: ir.Operation) -> ir.Operation:
    """The operation itself, or the one whose body it is in."""
    while op.parent is not None and op.parent.name.startswith(_PURE):
        op = op.parent.operation
    return op


def run(module: ir.Operation, options: Options) -> None:
    """Rewrites operations outside of dispatches below `module`."""
    with module.context:
        for function in [view.operation for view in graph.module_block(module).operations]:
            if any(may_be_one(op) for op in graph.walk(function, bodies=False)):
                PassManager.parse(PIPELINE).run(function)
        for op in [op for op in graph.walk(module, bodies=False) if not graph.is_in_dispatch(op)]:
            with op.location, ir.InsertionPoint(op):
                for written in _WRITTEN.get(op.name, ()):
                    _write_over_copy(op, written % len(op.operands))
                if op.name == _SORT:
                    _drop_repetitions(op)
        for op in [op for op in graph.walk(module, bodies=False) if _written(op) and not graph.is_in_dispatch(op)]:
            with op.location, ir.InsertionPoint(op):
                _copy_constants(op)
        for op in [op for op in graph.walk(module, bodies=False) if unread(op) and not graph.is_in_dispatch(op)]:
            with op.location, ir.InsertionPoint.after(op):
                for value in unread(op):
                    ir.Operation.create("util.optimization_barrier", results=[value.type], operands=[value])


def _write_over_copy(op: ir.Operation, written: int) -> None:
    """Gives an operation a copy to write over if another operand of it is the same tensor, or a part of it."""
    others = [value for i, value in enumerate(op.operands) if i != written]
    target = op.operands[written]
    if graph.behind(target, _SLICES) in [graph.behind(value, _SLICES) for value in others]:
        op.operands[written] = _copy(target)


def _copy_constants(op: ir.Operation) -> None:
    """Writes over copies of constants, but for those of one value."""
    for i in _written(op):
        constant = graph.producer(graph.behind(op.operands[i], _SLICES))
        if constant is not None and constant.name == "arith.constant" and not _is_splat(constant):
            op.operands[i] = _copy(build.barrier(op.operands[i]))


def _is_splat(constant: ir.Operation) -> bool:
    value = constant.attributes["value"]
    return isinstance(value, ir.DenseElementsAttr) and value.is_splat


def _apart(value: ir.Value) -> ir.Value:
    """A value that IREE computes in no kernel but its own; it repeats gathers in those of what reads them."""
    op = graph.producer(graph.viewed(value))
    return build.barrier(value) if op is not None and op.name == _GATHER else value


def _copy(value: ir.Value) -> ir.Value:
    value = _apart(value)
    kind, sizes = ir.RankedTensorType(value.type), build.dynamic_sizes(value)
    maps, loops = [ir.AffineMap.get_identity(kind.rank)] * 2, ["parallel"] * kind.rank
    with build.dispatch_region([kind], sizes) as region:
        region.returned = [
            build.generic(kind, [value], build.empty(kind, sizes), maps, loops, lambda x, _: x).results[0]
        ]
    return region.results[0]


def _drop_repetitions(op: ir.Operation) -> None:
    """Sorts each tensor once."""
    values = list(op.operands)
    first = [values.index(value) for value in values]
    kept = sorted(set(first))
    if len(kept) == len(values):
        return
    attributes = {name: op.attributes[name] for name in op.attributes}
    attributes[_SEGMENTS] = ir.DenseI32ArrayAttr.get([0, len(kept)])
    kinds = [values[i].type for i in kept]
    new = ir.Operation.create(op.name, kinds, [values[i] for i in kept], attributes, regions=1, loc=op.location)
    old = op.regions[0].blocks[0]
    elements = [ir.RankedTensorType(kind).element_type for kind in kinds for _ in range(2)]
    block = new.regions[0].blocks.append(*elements, arg_locs=[op.location] * len(elements))
    for i, argument in enumerate(old.arguments):
        argument.replace_all_uses_with(block.arguments[2 * kept.index(first[i // 2]) + i % 2])
    for view in list(old.operations):
        block.append(view.operation)
    for i, result in enumerate(op.results):
        result.replace_all_uses_with(new.results[kept.index(first[i])])
    op.erase()
