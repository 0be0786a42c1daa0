"""mxcomp-outline: turns dispatch regions into executables and calls of them.

Before:

    %p = flow.dispatch.region -> (tensor<8x4x2x4x2x4x16x4xi32>) { … }

After:

    flow.executable private @mxcomp_matmul_dispatch_0 { … }
    %p = flow.dispatch @mxcomp_matmul_dispatch_0::@mxcomp_matmul_dispatch_0(%w) : (…) -> tensor<8x4x2x4x2x4x16x4xi32>

IREE would do the same later. Done now, nothing of IREE's early optimisation reaches into the regions, and functions
have no `iree_codegen` operations left in them, for which IREE's inliner would refuse them.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from mxcomp.mlir import graph

_IN_A_FUNCTION = (
    "iree-dispatch-creation-convert-dispatch-regions-to-workgroups,"
    "iree-dispatch-creation-materialize-default-workgroup-count-region,"
    "iree-flow-capture-dynamic-dims"
)
PIPELINE = (
    f"builtin.module(util.func({_IN_A_FUNCTION}),util.initializer({_IN_A_FUNCTION}),iree-flow-outline-dispatch-regions)"
)

_CALLED = "entry_points"


def run(module: ir.Operation) -> None:
    """Outlines every dispatch region below `module`."""
    if not any(op.name == "flow.dispatch.region" for op in graph.walk(module)):
        return
    before = graph.executables(module)
    PassManager.parse(PIPELINE).run(module)
    outlined = {name: op for name, op in graph.executables(module).items() if name not in before}
    calls = [op for op in graph.walk(module, bodies=False) if op.name == "flow.dispatch"]
    by_name = {ir.SymbolRefAttr(ir.ArrayAttr(op.attributes[_CALLED])[0]).value[0]: op for op in calls}
    for name, executable in outlined.items():  # each has one call
        _rename(executable, by_name[name])


def _rename(executable: ir.Operation, call: ir.Operation) -> None:
    """Renames an executable, as IREE's own outlining numbers from 0 again.

    So it does its function: names of functions must differ where IREE links executables.
    """
    name = graph.symbol_name(executable)
    function = f"mxcomp_{name}"
    for op in (executable, *graph.walk(executable)):
        if graph.symbol_name(op) == name:
            ir.SymbolTable.set_symbol_name(op, function)
        if "function_ref" in op.attributes:
            op.attributes["function_ref"] = ir.FlatSymbolRefAttr.get(function)
    call.attributes[_CALLED] = ir.ArrayAttr.get([ir.SymbolRefAttr.get([function, function])])
