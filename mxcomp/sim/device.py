"""A simulated device."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mxcomp.sim import code_object
from mxcomp.sim.code_object import PRELOAD_ENTRY, Kernel, Module
from mxcomp.sim.counters import LaunchStats, occupancy
from mxcomp.sim.engine import Dispatch, Engine, Workgroup
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.findings import CHECKS, Findings, Severity
from mxcomp.sim.launch import WaveStarter, all_workgroups, check_sizes, place_arguments
from mxcomp.sim.memory import Buffer, Memory
from mxcomp.sim.program import program_of
from mxcomp.sim.schedule import Order, Schedule
from mxcomp.target import DEFAULT, Target, targets

_SEGMENT_PADDING = 256
"""The number of bytes after the code that instruction prefetch may read."""


TIMING = "timing"

ENGINES = {
    "fast": ("mxcomp.sim.fast", "FastEngine"),
    "numpy": ("mxcomp.sim.numpy.engine", "NumpyEngine"),
    "both": ("mxcomp.sim.both", "BothEngines"),
    TIMING: ("mxcomp.sim.timing.examination", "Examiner"),
}
"""The module and class of each engine. "timing" executes nothing: it finds out what a launch would do, for an estimate
of its time."""


class Device:
    """A GPU with its own memory.

    Args:
        target: Its name.
        engine: "fast", compiled per kernel; "numpy", the readable one; "both": compares the two.
        checks: Which of "late", "race", "hazard", "bounds", "uninit" to make; None: all.
        schedule: Order in which waves run between barriers, see `mxcomp.sim.schedule`.
        seed: Of the random schedule.
        memory_bytes: Size of device memory; only what is touched is committed.
        memory: Memory that others have access to as well, instead.
    """

    def __init__(
        self,
        target: str = DEFAULT,
        engine: str = "fast",
        checks: Sequence[str] | None = None,
        schedule: Order = "forward",
        seed: int = 0,
        memory_bytes: int = 8 << 30,
        memory: Memory | None = None,
    ) -> None:
        self._target = _simulated(target)
        self.configure(engine, checks, schedule, seed)
        self.memory = Memory(memory_bytes) if memory is None else memory
        self._images: dict[Module, Buffer] = {}

    @property
    def name(self) -> str:
        """The name of the GPU."""
        return self._target.name

    def configure(self, engine: str, checks: Sequence[str] | None, schedule: Order, seed: int) -> None:
        """Sets how later launches are executed. Raises SimulationError for an unknown engine, check or schedule."""
        if unknown := set(checks or ()) - set(CHECKS):
            raise SimulationError(f"unknown check '{unknown.pop()}': expected {', '.join(CHECKS)}")
        self._schedule = Schedule(schedule, seed)
        self._engine = make_engine(engine)
        self._checks = frozenset(CHECKS if checks is None else checks)

    def load(self, data: bytes) -> Module:
        """Loads a code object. Raises CodeObjectError if it is none for this GPU."""
        return self.load_module(code_object.load(data))

    def load_module(self, module: Module) -> Module:
        """Loads a code object that has been parsed."""
        size = module.image_bytes + _SEGMENT_PADDING
        image = self.memory.alloc(size)
        self.memory.write(image.address, np.zeros(size, np.uint8))
        for start, content, _ in module.segments:
            self.memory.write(image.address + start, np.frombuffer(content, np.uint8))
        self._images[module] = image
        return module

    def unload(self, module: Module) -> None:
        """Frees a module's memory; its kernels can no longer be launched."""
        self.memory.free(self._images.pop(module))

    def address_of(self, module: Module, virtual_address: int) -> int:
        """Returns the device address of a virtual address in a module."""
        return self._images[module].address + virtual_address

    def alloc(self, nbytes: int) -> Buffer:
        """Reserves device memory; it holds 0xFF bytes that count as never written."""
        return self.memory.alloc(nbytes)

    def free(self, buffer: Buffer) -> None:
        """Gives memory back; accesses to it are out of bounds from now on."""
        self.memory.free(buffer)

    def write(self, buffer: Buffer | int, array: NDArray[Any]) -> None:
        """Copies an array to a buffer or device address."""
        self.memory.write(_address(buffer), array)

    def read(self, buffer: Buffer | int, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
        """Copies from a buffer or device address."""
        return self.memory.read(_address(buffer), dtype, shape)

    def launch(
        self,
        kernel: Kernel,
        grid: Sequence[int],
        block: Sequence[int] | None = None,
        kernarg: bytes = b"",
        dynamic_lds: int = 0,
        workgroups: Iterable[Workgroup] | None = None,
        raise_on_error: bool = True,
        max_instructions: int = 200_000_000,
        engine: Engine | None = None,
    ) -> LaunchStats:
        """Runs a kernel to its end.

        Args:
            kernel: From `load(...).kernels`.
            grid: Workgroups in x, y, z.
            block: Work-items per workgroup; None: the size the kernel was compiled for.
            kernarg: Explicit arguments; hidden ones are filled in.
            dynamic_lds: LDS bytes beyond the kernel's own.
            workgroups: Run only these.
            raise_on_error: Raise SimulationError when a check reports an error; else look at the findings.
            max_instructions: Wave instructions per workgroup before it counts as an endless loop.
            engine: Another than the device's own.
        """
        start = time.perf_counter()
        if kernel.module not in self._images:
            raise SimulationError(f"kernel {kernel.name} was not loaded on this device")
        size = block if block is not None else kernel.workgroup_size
        if size is None:
            raise SimulationError(f"kernel {kernel.name} has no fixed workgroup size: give block=")
        groups, items = _dims(grid), _dims(size)
        check_sizes(self._target, kernel, groups, items, dynamic_lds)
        chosen = all_workgroups(groups) if workgroups is None else tuple(workgroups)
        program, descriptor, findings = program_of(kernel), kernel.descriptor, Findings()
        lds = descriptor.lds_bytes + dynamic_lds
        with self.memory.temporary():
            arguments = place_arguments(self.memory, kernel, bytes(kernarg), groups, items, dynamic_lds)
            dispatch = Dispatch(
                target=self._target,
                program=program,
                memory=self.memory,
                entry=descriptor.entry + (PRELOAD_ENTRY if descriptor.preload_count else 0),
                load_bias=self._images[kernel.module].address,
                grid=groups,
                workgroups=chosen,
                waves=-(-math.prod(items) // self._target.wave_size),
                wave_start=WaveStarter(kernel, items, arguments),
                lds_bytes=lds,
                scratch_bytes=descriptor.scratch_bytes,
                checks=self._checks,
                schedule=self._schedule,
                findings=findings,
                max_instructions=max_instructions,
                arguments=arguments.numbers(kernel),
            )
            counters = (engine or self._engine).run(dispatch)
        found = findings.all()
        if raise_on_error and any(finding.severity is Severity.ERROR for finding in found):
            raise SimulationError(f"kernel {kernel.name}", found)
        shape = occupancy(self._target, descriptor, lds, dispatch.waves)
        total = sum(counters.values(), Counter())
        return LaunchStats(kernel.name, total, counters, found, shape, time.perf_counter() - start)


def _simulated(name: str) -> Target:
    """Returns the GPU's description. Raises SimulationError for a GPU whose instructions are not simulated."""
    found = targets().get(name)
    if found is None or found.arch != code_object.ARCH:
        known = (target.name for target in targets().values() if target.arch == code_object.ARCH)
        raise SimulationError(f"target '{name}': expected {', '.join(known)}")
    return found


def make_engine(name: str) -> Engine:
    """Returns the engine of a name; its module is imported only now."""
    if name not in ENGINES:
        raise SimulationError(f"engine '{name}': expected {', '.join(ENGINES)}")
    module, engine = ENGINES[name]
    made: Engine = getattr(import_module(module), engine)()
    return made


def _address(buffer: Buffer | int) -> int:
    return buffer if isinstance(buffer, int) else buffer.address


def _dims(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*(int(size) for size in sizes), 1, 1)[:3]
    return x, y, z
