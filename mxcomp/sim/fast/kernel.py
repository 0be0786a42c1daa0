"""A kernel as one LLVM function: program counters become basic blocks, waves run until something needs attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir as llvm

from mxcomp.sim.fast import ir
from mxcomp.sim.fast.addresses import FAILED
from mxcomp.sim.fast.frame import SCC_SLOT, Env, Frame, Log, Status
from mxcomp.sim.fast.matrix import emit_matrix
from mxcomp.sim.fast.matrix import is_compiled as is_compiled_matrix
from mxcomp.sim.fast.memory import emit_memory, is_logged
from mxcomp.sim.fast.scalar import emit_scalar
from mxcomp.sim.fast.tracing import Untraceable
from mxcomp.sim.fast.vector import emit_vector, is_compiled
from mxcomp.sim.instruction import EXEC, VCC, Instruction
from mxcomp.sim.program import Program
from mxcomp.sim.semantics import SCALAR, VECTOR, salu

NAME = "run"
"""The name of the compiled function: (vectors, scalars, env) → Status."""

_SILENT = salu.NO_EFFECT | {"s_waitcnt"}


@dataclass(frozen=True)
class Segment:
    """Instructions that run without interruption; only the last one may branch, access memory, or wait for it."""

    number: int
    instructions: tuple[Instruction, ...]

    @property
    def start(self) -> int:
        return self.instructions[0].offset


def segments(program: Program) -> list[Segment]:
    """Yields the program's segments: it is cut at branch targets, and after all that can return to the engine or
    concerns other waves."""
    code, kernel = program.instructions, program.kernel
    targets = {i.target for i in code.values() if i.target is not None}
    leaders = {*kernel.entries, *kernel.module.functions.values(), *targets}
    found: list[list[Instruction]] = []
    is_closed = True
    for address, i in code.items():
        if is_closed or address in leaders or found[-1][-1].end != address:
            found.append([])
        found[-1].append(i)
        is_closed = interrupts(i) or i.mnemonic == "s_waitcnt"
    return [Segment(number, tuple(instructions)) for number, instructions in enumerate(found)]


def interrupts(i: Instruction) -> bool:
    """Returns whether an instruction may end a wave's turn, branch, or be seen by other waves."""
    name = i.mnemonic
    if name in VECTOR:
        return not is_compiled(i)
    if i.encoding == "MFMA":
        return not is_compiled_matrix(i)
    return not (name in _SILENT or name in SCALAR)


_TYPE = llvm.FunctionType(ir.i32, [ir.pointer] * 3)


class KernelBuilder:
    """Emits the function of one program."""

    def __init__(self, parts: list[Segment], watched: bool) -> None:
        self._watched = watched
        self.module = llvm.Module(name="kernel")
        self.function = llvm.Function(self.module, _TYPE, NAME)
        entry, self._dispatch = (self.function.append_basic_block(name) for name in ("entry", "dispatch"))
        llvm.IRBuilder(entry).branch(self._dispatch)
        builder = llvm.IRBuilder(self._dispatch)
        frame = self._frame(builder)
        unknown = self.function.append_basic_block("unknown")
        self._returns(unknown, Status.STEP)
        self.blocks = {part.start: self.function.append_basic_block(f"at_{part.start:x}") for part in parts}
        switch = builder.switch(frame.get(Env.PC), unknown)
        for address, block in self.blocks.items():
            switch.add_case(ir.index(address), block)
        for part in parts:
            self._segment(part)

    def _frame(self, builder: llvm.IRBuilder) -> Frame:
        vectors, scalars, env = (ir.Value(builder, each) for each in self.function.args)
        return Frame(builder, vectors, scalars, env, self._watched)

    def _returns(self, block: llvm.Block, status: Status) -> None:
        llvm.IRBuilder(block).ret(ir.constant(ir.i32, int(status)))

    def stop(self, frame: Frame, status: Status, address: int) -> None:
        frame.set(Env.PC, address)
        frame.builder.ret(ir.constant(ir.i32, int(status)))

    def go(self, frame: Frame, address: int) -> None:
        """Continues at an address; what was not compiled is left to the NumPy engine, which reports it."""
        block = self.blocks.get(address)
        if block is None:
            self.stop(frame, Status.STEP, address)
        else:
            frame.builder.branch(block)

    def _segment(self, part: Segment) -> None:
        frame = self._frame(llvm.IRBuilder(self.blocks[part.start]))
        self._account(frame, part)
        *body, last = part.instructions
        for i in body:
            emit_plain(frame, i)
        self.number = part.number
        _LAST.get(last.mnemonic, _default)(self, frame, last)

    def _account(self, frame: Frame, part: Segment) -> None:
        """Takes the segment from the budget, or ends the turn; counts its executions."""
        size, budget = len(part.instructions), frame.get(Env.BUDGET)
        with frame.builder.if_then(budget < size, likely=False):
            self.stop(frame, Status.TURN, part.start)
        frame.set(Env.BUDGET, budget - size)
        self.add(frame, 2 * part.number, 1)
        if frame.watched:
            frame.pointer(Env.TRACE).put(self._next(frame, Env.TRACED), ir.constant(ir.i32, part.number))

    def _next(self, frame: Frame, slot: Env) -> ir.Value:
        """Increments a counter, and returns its old value."""
        number = frame.get(slot)
        frame.set(slot, number + 1)
        return number

    def logged(self, frame: Frame) -> None:
        """Completes the row that a memory instruction has logged."""
        frame.log(Log.SEGMENT).put(0, ir.index(self.number))
        self._next(frame, Env.LOGGED)

    def add(self, frame: Frame, counter: int, amount: ir.Value | int) -> None:
        """Counters are pairs per segment: how often it ran, and lanes of its memory instruction."""
        count = frame.pointer(Env.COUNTS).at(counter, ir.i64)
        count.put(0, count.item(0, ir.i64) + amount)


def emit_plain(frame: Frame, i: Instruction) -> None:
    """Emits an instruction that always continues with the next one."""
    if i.mnemonic in _SILENT:
        return
    if i.encoding == "MFMA":
        emit_matrix(frame, i)
    elif i.mnemonic in VECTOR:
        emit_vector(frame, i)
    else:
        emit_scalar(frame, i)


def _default(kernel: KernelBuilder, frame: Frame, i: Instruction) -> None:
    """Emits the last instruction of a segment that is no branch: memory, something untraceable, or an ordinary one."""
    if not interrupts(i):
        emit_plain(frame, i)
    elif i.memory is None:
        kernel.stop(frame, Status.STEP, i.offset)
        return
    else:
        try:
            lanes = emit_memory(frame, i)
        except Untraceable:
            kernel.stop(frame, Status.STEP, i.offset)
            return
        with frame.builder.if_then(lanes == FAILED, likely=False):
            kernel.stop(frame, Status.STEP, i.offset)
        kernel.add(frame, 2 * kernel.number + 1, lanes)
        if frame.watched and is_logged(i):
            kernel.logged(frame)
    kernel.go(frame, i.end)


def _branch(kernel: KernelBuilder, frame: Frame, i: Instruction) -> None:
    tested, wanted = salu.BRANCHES[i.mnemonic]
    assert i.target is not None
    if tested == "always":
        kernel.go(frame, i.target)
        return
    value = frame.read32(SCC_SLOT) if tested == "scc" else frame.read64(VCC if tested == "vcc" else EXEC)
    with frame.builder.if_then(value != 0 if wanted else value == 0):
        kernel.go(frame, i.target)
    kernel.go(frame, i.end)


def _end(kernel: KernelBuilder, frame: Frame, i: Instruction) -> None:
    kernel.stop(frame, Status.END, i.offset)


def _barrier(kernel: KernelBuilder, frame: Frame, i: Instruction) -> None:
    kernel.stop(frame, Status.BARRIER, i.end)


_LAST: dict[str, Callable[[KernelBuilder, Frame, Instruction], None]] = {
    **dict.fromkeys(salu.BRANCHES, _branch),
    "s_endpgm": _end,
    "s_barrier": _barrier,
}


def kernel_text(parts: list[Segment], watched: bool = False) -> str:
    """Returns the LLVM IR of a program; `watched` is for runs with checks."""
    return str(KernelBuilder(parts, watched).module)
