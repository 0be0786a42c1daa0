"""mxcomp-keep-for-callers: keeps the value of an argument that a function returns unchanged but also overwrites.

IREE copies what an operation writes over if something reads it later. It overlooks the caller, where a function returns
one of its arguments: the buffer itself is returned then, with nothing between it and what has been written into it. A
value that IREE cannot look through is a reader that it sees.

Before:

    %x = hal.tensor.import %arg0 : !hal.buffer_view -> tensor<64xf32>
    %r = flow.dispatch @sort::@sort(%x) : (tensor<64xf32>) -> %x
    …
    util.return %arg0, %r : !hal.buffer_view, !hal.buffer_view

After:

    %x = hal.tensor.import %arg0 : !hal.buffer_view -> tensor<64xf32>
    %r = flow.dispatch @sort::@sort(%x) : (tensor<64xf32>) -> %x
    …
    %l = util.optimization_barrier %x : tensor<64xf32>
    %y = hal.tensor.export %l : tensor<64xf32> -> !hal.buffer_view
    util.return %y, %r : !hal.buffer_view, !hal.buffer_view

It stands at the end of IREE's phase `flow`, where dispatches have got the operands that they write over.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import hal

from mxcomp.mlir import graph, overwriting

_IMPORT, _ALIAS, _ASKS = "hal.tensor.import", "hal.tensor.alias", "hal.buffer_view."


def run(module: ir.Operation) -> None:
    """Exports arguments below `module` that are overwritten, and returned unchanged."""
    for value, _ in overwriting.written_over(module):
        _keep_for_caller(value)


def _keep_for_caller(value: ir.Value) -> None:
    """Exports an overwritten argument where its original value is used, as by a return."""
    if (op := graph.producer(value, _IMPORT)) is None:
        return
    source, *others = op.operands
    sizes = [each for each in others if isinstance(each.type, ir.IndexType)]
    for use in list(source.uses):
        user = use.owner.operation
        if user.name not in (_IMPORT, _ALIAS) and not user.name.startswith(_ASKS):
            with user.location, ir.InsertionPoint(user):
                encoding = op.attributes["target_encoding"]
                user.operands[use.operand_number] = hal.TensorExportOp(
                    source.type, overwriting.barrier(value), encoding, sizes
                ).target
