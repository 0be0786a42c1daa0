"""The readable engine: one closure per instruction, NumPy over the 64 lanes of a wave, with all checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from mxcomp.sim.checks.lds import NO_SHADOW, LdsShadow
from mxcomp.sim.checks.registers import Facts, check_registers
from mxcomp.sim.checks.trial import Trial
from mxcomp.sim.checks.unwritten import UnwrittenCheck
from mxcomp.sim.counters import Counters, events
from mxcomp.sim.engine import Dispatch, Workgroup
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.numpy.matrix import matrix_step
from mxcomp.sim.numpy.memory import memory_step
from mxcomp.sim.numpy.scalar import CONTROL, branch_step, scalar_step
from mxcomp.sim.numpy.vector import vector_step
from mxcomp.sim.numpy.wave import BARRIER, END, Group, Step, Wave
from mxcomp.sim.program import Program
from mxcomp.sim.semantics import SCALAR, VECTOR, is_vector, salu


def _no_step(i: Instruction) -> Step:
    return lambda w: None


_STEPS: dict[str, Callable[[Instruction], Step]] = {
    **dict.fromkeys(VECTOR, vector_step),
    **dict.fromkeys(SCALAR, scalar_step),
    **dict.fromkeys(salu.NO_EFFECT, _no_step),
    **dict.fromkeys(salu.BRANCHES, branch_step),
    **CONTROL,
}


def step_of(i: Instruction) -> Step:
    """Returns the closure that executes an instruction."""
    return matrix_step(i) if i.encoding == "MFMA" else _STEPS.get(i.mnemonic, memory_step)(i)


@dataclass(slots=True, eq=False)
class Line:
    """One instruction with its closure."""

    instruction: Instruction
    step: Step
    end: int
    facts: Facts
    is_vector: bool
    hits: int = 0
    indexed: dict[tuple[int, int], Line] = field(default_factory=dict)

    def under(self, mode: tuple[int, int]) -> Line:
        """Returns the line in GPR-index mode, which changes registers of vector instructions."""
        if self.instruction.mnemonic not in VECTOR:
            return self
        if mode not in self.indexed:
            self.indexed[mode] = Line.of(self.instruction.indexed(*mode))
        return self.indexed[mode]

    @classmethod
    def of(cls, i: Instruction) -> Line:
        return cls(i, step_of(i), i.end, Facts.of(i), is_vector(i))


class NumpyEngine:
    """Executes dispatches instruction by instruction."""

    name = "numpy"

    def __init__(self) -> None:
        self._compiled: dict[Program, dict[int, Line]] = {}

    def run(self, dispatch: Dispatch) -> dict[Workgroup, Counters]:
        program = dispatch.program
        if program not in self._compiled:
            self._compiled[program] = {address: Line.of(i) for address, i in program.instructions.items()}
        return UnwrittenCheck(dispatch, partial(_run_workgroup, self._compiled[program])).run_all()


def _run_workgroup(lines: dict[int, Line], dispatch: Dispatch, number: Workgroup, trial: Trial | None) -> Counters:
    for line in lines.values():
        line.hits = 0
    group = Group(dispatch, number, trial)
    waves = [Wave(group, k, dispatch.wave_start(number, k)) for k in range(dispatch.waves)]
    group.shadow = LdsShadow(len(group.lds), group.report, waves, trial)
    take_turns(group, waves, lambda k, most: run_wave(waves[k], lines, most))
    group.shadow = NO_SHADOW  # ends references in a circle
    return _counters(lines, waves)


def _counters(lines: dict[int, Line], waves: list[Wave]) -> Counters:
    total: Counters = Counter()
    for line in lines.values():
        if line.hits:
            for event in events(line.instruction):
                total[event] += line.hits
    for wave in waves:
        total.update(wave.counters)
    return total


def take_turns(group: Group, waves: list[Wave], run: Callable[[int, int], int]) -> None:
    """Runs the waves of a workgroup to their ends.

    Args:
        run: Executes a wave, by number, for so many instructions at most; returns how many it executed.
    """
    dispatch, executed = group.dispatch, 0
    turns = dispatch.schedule.turns(group.number)
    while not all(wave.state == END for wave in waves):
        running = [wave.number for wave in waves if wave.state == 0]
        if not running:
            open_barrier(group, waves)
        for k, most in turns(running):
            executed += run(k, min(most, dispatch.max_instructions - executed + 1))
            if executed > dispatch.max_instructions:
                raise SimulationError(
                    f"workgroup {group.number}: more than {dispatch.max_instructions} instructions, an endless loop? "
                    f"wave {k} at {waves[k].pc:#x}"
                )


def open_barrier(group: Group, waves: list[Wave]) -> None:
    """Opens the barrier when no wave can run and all that have not ended wait there."""
    waiting = [wave for wave in waves if wave.state == BARRIER]
    ended = [wave for wave in waves if wave.state == END]
    group.shadow.barrier()
    for wave in waiting:
        if ended:
            instruction = group.dispatch.program.instructions[wave.pc - 4]
            message = (
                f"waits at barrier {wave.barriers + 1}, but wave {ended[0].number} has ended after {ended[0].barriers}"
            )
            group.report("barrier", message, wave, instruction)
        wave.state = 0
        wave.barriers += 1


def run_wave(wave: Wave, lines: dict[int, Line], most: int, checked: bool = True) -> int:
    """Executes a wave up to a barrier, its end, or `most` instructions, and returns their number.

    checked: Make the checks of registers.
    """
    report = wave.report
    checked = checked and (report.late or report.uninit or report.hazard)
    pc, count = wave.pc, 0
    try:
        while count < most:
            line = lines.get(pc) or _lost(pc)
            count += 1
            if not wave.is_plain:
                if wave.skips and line.is_vector:
                    pc = line.end
                    continue
                if wave.index_mode is not None:
                    line = line.under(wave.index_mode)
            line.hits += 1
            if checked:
                check_registers(wave, line.facts)
            result = line.step(wave)
            if result is None:
                pc = line.end
            elif result >= 0:
                pc = result
            else:
                pc = line.end
                wave.state = result
                break
    except SimulationError as error:
        raise SimulationError(f"{_place(wave, pc, lines)}: {error}") from error
    except (IndexError, OverflowError, ValueError) as error:  # register or address arithmetic that no program means
        raise SimulationError(f"{_place(wave, pc, lines)}: cannot be executed: {error}") from error
    wave.pc = pc
    return count


def _lost(pc: int) -> Line:
    raise SimulationError(f"jump to {pc:#x}, which is no reachable instruction")


def _place(wave: Wave, pc: int, lines: dict[int, Line]) -> str:
    text = f" ({lines[pc].instruction})" if pc in lines else ""
    return f"workgroup {wave.group.number}, wave {wave.number}, {pc:#x}{text}"
