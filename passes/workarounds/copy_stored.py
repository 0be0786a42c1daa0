"""mxcomp-copy-stored: copies what a variable (mutable global) gets if another one has it too, or it is constant.

IREE takes a variable that is only ever given the value of another one for that one, and has one buffer for both: also
where the other is given a new value (`renameChainedGlobals`). Of two variables that are exchanged nothing is left. Nor
does it copy what two are given: rows that are written into one in place are in both. And one that is only given a
constant has that from the beginning, whatever it began with.

Before:

    %0 = util.global.load @now : tensor<512x64xf32>
    util.global.store %0, @before : tensor<512x64xf32>

After:

    %0 = util.global.load @now : tensor<512x64xf32>
    %1 = util.optimization_barrier %0 : tensor<512x64xf32>
    %2 = flow.dispatch.region -> (tensor<512x64xf32>) { (an elementwise linalg.generic that yields its operand %1) }
    util.global.store %2, @before : tensor<512x64xf32>
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import build, graph
from mxcomp.mlir.variables import LOAD, STORE, SYMBOL
from mxcomp.passes.workarounds.legalise_overwriting import copy


def run(module: ir.Operation) -> None:
    """Copies values below `module` that variables have in common, or that are known."""
    stored = set[ir.Value]()
    for op in [op for op in graph.walk(module, bodies=False) if op.name == STORE]:
        value = graph.look_through_views(op.operands[0])
        if not build.is_tensor(value):
            continue
        if value in stored or _is_of_another(value, op.attributes[SYMBOL]) or _is_constant(value):
            with op.location, ir.InsertionPoint(op):
                op.operands[0] = copy(build.barrier(op.operands[0]))
        stored.add(value)


def _is_of_another(value: ir.Value, variable: ir.Attribute) -> bool:
    """Returns whether a value is read from another variable."""
    return (op := graph.producer(value, LOAD)) is not None and op.attributes[SYMBOL] != variable


def _is_constant(value: ir.Value) -> bool:
    """Returns whether a value is computed of constants alone, and so perhaps by the compiler.

    A constant that is the same everywhere is what IREE fills memory with.
    """
    pending, seen = [value], set[ir.Value]()
    while pending:
        op = graph.producer(each := pending.pop())
        if op is None or not op.name.startswith(("arith.", "linalg.", "tensor.")):
            return False
        if each == value and graph.constant(each) is not None:
            return False
        seen.add(each)
        pending += [source for user, i in graph.inputs(op) if (source := user.operands[i]) not in seen]
    return True
