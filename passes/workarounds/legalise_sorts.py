"""mxcomp-legalise-sorts: removes repeated operands of a sort.

IREE takes what a sort reads and what it writes over for one buffer, and swaps elements of that twice.

Before:

    %r:3 = iree_linalg_ext.sort dimension(1) outs(%x, %i, %i : …) { ^bb0(%a, %b, %c, %d, %e, %f): … }

After:

    %r:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : …) { ^bb0(%a, %b, %c, %d): … }     (%r#2 is %r#1)
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import graph

_SEGMENTS = "operandSegmentSizes"


def run(module: ir.Operation) -> None:
    """Rewrites sorts outside of dispatches below `module`."""
    graph.rewrite(module, (graph.SORT,), _drop_repetitions, outside=True)


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
    graph.replace(op, *(new.results[kept.index(i)] for i in first))
