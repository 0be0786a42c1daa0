"""mxcomp-place-results: gives dispatches without tensor operands buffers for results that are overwritten.

IREE lets operations like sort, scatter and tensor.insert_slice write over an operand, and copies it first where
something else reads it too. Where a dispatch without tensors as operands has made it, an iota for example, it does not
copy, but runs the dispatch once more (`PropagateCloneableOps`); and as dispatches are pure, CSE makes one of the two
again, now that nothing stands between two operations that write over its result. Each of several sorts of one iota, as
CSE leaves in the layers of a model, then begins with what the one before has left. (iree-org/iree#23665 is open.) Nor
does it help that each has an iota of its own: CSE makes one of them, and where they are constants, of those in several
initialisers, which IREE combines behind its phase `flow`.

A dispatch that has a tensor as operand is not run twice. So it is given one: that which it writes its result into. It
costs nothing where that is written over once.

Before:

    %i = flow.dispatch @iota::@iota[%n](%n) : (index) -> tensor<?xi32>{%n}
    %r:2 = flow.dispatch @sort::@sort(%x, %i) : (tensor<?xf32>{%n}, tensor<?xi32>{%n}) -> (%x{%n}, %i{%n})
    %s:2 = flow.dispatch @sort::@sort(%y, %i) : (tensor<?xf32>{%n}, tensor<?xi32>{%n}) -> (%y{%n}, %i{%n})

After:

    %e = flow.tensor.empty : tensor<?xi32>{%n}
    %i = flow.dispatch @iota::@iota[%n](%n, %e) : (index, tensor<?xi32>{%n}) -> %e{%n}
    (and the sorts)

Executables stay as they are: operands that are written into stand where results stood. It stands at the end of IREE's
phase `flow`, where dispatches have got the operands that they write over.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import flow

from mxcomp.mlir import build, dispatches, graph, overwriting
from mxcomp.mlir.dispatches import DISPATCH


def run(module: ir.Operation) -> None:
    """Gives dispatches below `module` tensors for their results, where these are overwritten."""
    graph.rewrite(module, (DISPATCH,), _place)


def _place(dispatch: ir.Operation) -> None:
    """Copies a dispatch with tensors for all of its results as operands."""
    if any(map(build.is_tensor, dispatch.operands)) or not any(map(overwriting.writers, dispatch.results)):
        return
    sizes = iter(dispatches.result_dims(dispatch))
    kinds = [ir.RankedTensorType(result.type) for result in dispatch.results]
    dims = [[next(sizes) for i in range(kind.rank) if kind.is_dynamic_dim(i)] for kind in kinds]
    targets = [flow.TensorEmptyOp(kind, dim).result for kind, dim in zip(kinds, dims, strict=True)]
    first = dispatches.arguments(dispatch)
    new = dispatches.with_operands(
        dispatch,
        arguments=targets,
        argument_dims=[size for dim in dims for size in dim],
        tied_operands=dispatches.tied(range(first, first + len(targets))),
    )
    graph.replace(dispatch, *new.results)
