"""mxcomp-assume-operands: repeats assumptions about sizes in the executables that they are passed to.

Code generation needs it there, and what IREE finds out of operands by itself is nothing in a function that branches on
data.

    func.func @mxcomp_matmul_dispatch_1(%a: index, …) {
      %b = util.assume.int %a<umin = 1, umax = 33554304> : index
      %m = iree_tensor_ext.dispatch.workload.ordinal %b, 0 : index
"""

from __future__ import annotations

from collections import defaultdict

from iree.compiler import ir

from mxcomp.mlir import dispatches, graph
from mxcomp.mlir.assumptions import assume, assumed
from mxcomp.mlir.dispatches import DISPATCH


def run(module: ir.Operation) -> None:
    """Adds assumptions about operands to the executables below `module` that have a single call."""
    calls: dict[str, list[ir.Operation]] = defaultdict(list)
    for op in [op for op in graph.walk(module, bodies=False) if op.name == DISPATCH]:
        for called in dispatches.entry_points(op):
            calls[called.executable].append(op)
    for name, executable in graph.executables(module).items():
        functions = [op for op in graph.walk(executable, bodies=False) if op.name == "func.func"]
        if len(functions) == len(calls[name]) == 1:
            _pass_assumptions(calls[name][0], functions[0])


def _pass_assumptions(call: ir.Operation, function: ir.Operation) -> None:
    block = function.regions[0].blocks[0]
    start = len(dispatches.workload(call))
    given = list(call.operands)[start : start + dispatches.arguments(call)]
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
