"""mxcomp-outline: turns dispatch regions into executables and calls of them.

Before:

    %p = flow.dispatch.region -> (tensor<8x4x2x4x2x4x16x4xi32>) { … }

After:

    flow.executable private @mxcomp_matmul_dispatch_0 { … }
    %p = flow.dispatch @mxcomp_matmul_dispatch_0::@matmul_dispatch_0(%w) : (…) -> tensor<8x4x2x4x2x4x16x4xi32>

IREE would do the same later. Done now, nothing of IREE's early optimisation reaches into the regions, and functions
have no `iree_codegen` operations left in them, for which IREE's inliner would refuse them.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from mxcomp.mlir import graph
from mxcomp.options import Options

PIPELINE = (
    "builtin.module(util.func(iree-dispatch-creation-convert-dispatch-regions-to-workgroups,"
    "iree-dispatch-creation-materialize-default-workgroup-count-region,"
    "iree-flow-capture-dynamic-dims),iree-flow-outline-dispatch-regions)"
)


def run(module: ir.Operation, options: Options) -> None:
    """Outlines every dispatch region below `module`."""
    if not any(op.name == "flow.dispatch.region" for op in graph.walk(module)):
        return
    before = [op for op in graph.walk(module) if op.name == "flow.executable"]
    with module.context:
        PassManager.parse(PIPELINE).run(module)
        for op in graph.walk(module):
            if op.name == "flow.executable" and op not in before:
                _rename(op, module)


def _rename(executable: ir.Operation, module: ir.Operation) -> None:
    """Takes an executable out of the way of IREE's own outlining, which numbers from 0 again."""
    name = ir.SymbolTable.get_symbol_name(executable).value
    ir.SymbolTable.replace_all_symbol_uses(name, f"mxcomp_{name}", module)
    ir.SymbolTable.set_symbol_name(executable, f"mxcomp_{name}")
