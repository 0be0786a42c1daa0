"""mxcomp-pass-bytes: gives branches, loops and functions the bytes of 6-bit elements.

IREE counts a tensor of 6-bit elements that goes into a loop or a function, or comes from one, as one of 8-bit elements;
and a branch that only chooses one becomes a kernel that cannot load them.

Before:

    %e = scf.if %c -> tensor<8x2x32xf6E2M3FN> { scf.yield %x : … } else { scf.yield %y : … }

After:

    %e8 = scf.if %c -> tensor<8x2x24xi8> {
      %x8 = iree_tensor_ext.bitcast %x : tensor<8x2x32xf6E2M3FN> -> tensor<8x2x24xi8>
      scf.yield %x8 : tensor<8x2x24xi8>
    } else { … }
    %e = iree_tensor_ext.bitcast %e8 : tensor<8x2x24xi8> -> tensor<8x2x32xf6E2M3FN>

It stands behind mxcomp-inline-calls, which leaves few functions. Those that are public take bytes already
(mxcomp-take-bytes).
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.codes.six_bit import is_six_bit
from mxcomp.mlir import graph, narrow

_FUNCTION, _CALL = "util.func", "util.call"


def run(module: ir.Operation) -> None:
    """Rewrites control flow below `module`."""
    ops = list(graph.walk(module, bodies=False, outside=True))
    functions = [op for op in ops if op.name == _FUNCTION and len(op.regions[0].blocks)]
    names = {graph.symbol_name(op) for op in functions}
    for op in functions:
        narrow.take_function(op, _in_bytes)
        for block in list(op.regions[0].blocks)[1:]:
            narrow.take_arguments(block, op.location, _in_bytes)
    for op in ops:
        if op.name.startswith(("scf.", "cf.")) or (op.name == _CALL and graph.callee(op) in names):
            narrow.pass_operands(op, _in_bytes)
            narrow.take_results(op, _in_bytes)
            for block in [block for region in op.regions for block in region.blocks]:
                narrow.take_arguments(block, op.location, _in_bytes)


def _in_bytes(kind: ir.Type) -> ir.Type:
    return narrow.byte_type(kind) if is_six_bit(kind) else kind
