"""Builds programs that repeat one dispatch many times; the difference to a single one is the time of the dispatch.

Of a module at IREE's phase `hal`,

    hal.command_buffer.dispatch<%cmd> target(%executable)[%function] workgroups(…) bindings(…)

becomes that operation, a barrier, the operation again, and so on. IREE's own flag for it repeats all dispatches.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from iree.compiler import ir

from mxcomp.errors import CompileError
from mxcomp.mlir import graph
from mxcomp.mlir.session import Session

_DISPATCH, _BARRIER = "hal.command_buffer.dispatch", "hal.command_buffer.execution_barrier"
_ENTRY_POINT = "entry_point"
"""Matches the operation that looks up the function that is launched."""


class Recorded:
    """A program compiled to the end of phase `hal`, from which repeating programs are made. `flags` are those of the
    session."""

    def __init__(self, text: bytes, flags: Sequence[str]) -> None:
        self._text, self._flags = text, flags
        with closing(Session(flags)) as session:
            session.load(text, "program")
            self.kernels = tuple(_kernel(op) for op in _dispatches(session.module))
            """The kernel of each dispatch in order."""

    def program(self, index: int = 0, count: int = 1) -> bytes:
        """Returns the vmfb with the dispatch of this number repeated `count` times. Raises CompileError."""
        with closing(Session(self._flags)) as session:
            session.load(self._text, "program")
            if count > 1:
                _repeat(session.module, _dispatches(session.module)[index], count)
            session.run("hal", "end")
            return session.vm_bytecode()


def _dispatches(module: ir.Operation) -> list[ir.Operation]:
    return [op for op in graph.walk(module) if op.name == _DISPATCH]


def _kernel(dispatch: ir.Operation) -> str:
    """Returns the function that is launched."""
    for operand in dispatch.operands:
        made = graph.producer(operand)
        if made is not None and _ENTRY_POINT in made.attributes:
            return str(ir.SymbolRefAttr(made.attributes[_ENTRY_POINT]).value[-1])
    raise CompileError("a dispatch whose kernel is chosen as the program runs cannot be timed")


def _repeat(module: ir.Operation, dispatch: ir.Operation, count: int) -> None:
    barrier = next((op for op in graph.walk(module) if op.name == _BARRIER), None)
    if barrier is None:
        raise CompileError("a program without a barrier between dispatches cannot be timed")
    point = ir.InsertionPoint(dispatch)
    for _ in range(count - 1):
        dispatch.clone(ip=point)
        copy = barrier.clone(ip=point)
        copy.operation.operands[0] = dispatch.operands[0]
