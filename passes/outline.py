"""mxcomp-outline: turns dispatch regions into executables and calls of them.

Before:

    %p = flow.dispatch.region -> (tensor<8x4x2x4x2x4x16x4xi32>) { … }

After:

    flow.executable private @mxcomp_matmul_dispatch_0 { … }
    %p = flow.dispatch @mxcomp_matmul_dispatch_0::@mxcomp_matmul_dispatch_0(%w) : (…) -> tensor<8x4x2x4x2x4x16x4xi32>

IREE would do the same later. Done now, nothing of IREE's early optimisation reaches into the regions, and functions
have no `iree_codegen` operations left in them, for which IREE's inliner would refuse them.

What is assumed of a size that is passed is said in the executable, too: code generation needs it there, and what IREE
3.13 finds out of operands by itself is nothing in a function that branches on data.

    func.func @mxcomp_matmul_dispatch_1(%a: index, …) {
      %b = util.assume.int %a<umin = 1, umax = 33554304> : index
      %m = iree_tensor_ext.dispatch.workload.ordinal %b, 0 : index
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from mxcomp.mlir import graph
from mxcomp.mlir.assumptions import assume, assumed
from mxcomp.options import Options

PIPELINE = (
    "builtin.module(util.func(iree-dispatch-creation-convert-dispatch-regions-to-workgroups,"
    "iree-dispatch-creation-materialize-default-workgroup-count-region,"
    "iree-flow-capture-dynamic-dims),iree-flow-outline-dispatch-regions)"
)

_CALLED = "entry_points"


def run(module: ir.Operation, options: Options) -> None:
    """Outlines every dispatch region below `module`."""
    if not any(op.name == "flow.dispatch.region" for op in graph.walk(module)):
        return
    before = graph.executables(module)
    with module.context:
        PassManager.parse(PIPELINE).run(module)
        outlined = {name: op for name, op in graph.executables(module).items() if name not in before}
        calls = [op for op in graph.walk(module, bodies=False) if op.name == "flow.dispatch"]
        by_name = {ir.SymbolRefAttr(ir.ArrayAttr(op.attributes[_CALLED])[0]).value[0]: op for op in calls}
        for name, executable in outlined.items():  # each has one call
            call = by_name[name]
            _rename(executable, call)
            _pass_assumptions(call, executable)


def _rename(executable: ir.Operation, call: ir.Operation) -> None:
    """Takes an executable out of the way of IREE's own outlining, which numbers from 0 again.

    So it does its function: names of functions meet where IREE links executables.
    """
    name = graph.symbol_name(executable)
    function = f"mxcomp_{name}"
    for op in (executable, *graph.walk(executable)):
        if graph.symbol_name(op) == name:
            ir.SymbolTable.set_symbol_name(op, function)
        if "function_ref" in op.attributes:
            op.attributes["function_ref"] = ir.FlatSymbolRefAttr.get(function)
    call.attributes[_CALLED] = ir.ArrayAttr.get([ir.SymbolRefAttr.get([function, function])])


def _pass_assumptions(call: ir.Operation, executable: ir.Operation) -> None:
    """Says in an executable what operands of its call are assumed to be."""
    (function,) = (op for op in graph.walk(executable) if op.name == "func.func")
    block = function.regions[0].blocks[0]
    workload, arguments, *_ = ir.DenseI32ArrayAttr(call.attributes["operandSegmentSizes"])
    given = list(call.operands)[workload : workload + arguments]
    for argument, value in zip(list(block.arguments), given, strict=False):  # results that are written follow
        known = assumed(value)
        if known is None:
            continue
        users = [(use.owner.operation, use.operand_number) for use in argument.uses]
        ordinals = [user for user, _ in users if user.name == "iree_tensor_ext.dispatch.workload.ordinal"]
        with function.location, ir.InsertionPoint.at_block_begin(block):
            size = assume(argument, known)
        for ordinal in ordinals[:1]:  # one value for all users: IREE compares sizes of loads with those of tensors
            ordinal.operands[0] = size
            ordinal.move_after(size.owner)
            size = ordinal.results[0]
        for user, number in users:
            if user not in ordinals[:1]:
                user.operands[number] = size
