"""Simulated devices as the driver library calls them: one handler for each operation of the protocol."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mxcomp.hip.allocations import Allocations
from mxcomp.hip.programs import Programs
from mxcomp.hip.protocol import LAUNCH, Answer, ErrorCode, Operation, Refusal
from mxcomp.hip.settings import Settings
from mxcomp.hip.warned import Warnings
from mxcomp.sim import Device, Kernel, LaunchStats
from mxcomp.sim.device import TIMING
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.findings import CHECKS
from mxcomp.sim.memory import Memory, Storage
from mxcomp.target import DEFAULT

if TYPE_CHECKING:
    from mxcomp.hip.cold import ColdStarts
    from mxcomp.hip.dump import OperandDump

_COMPILED = ("fast", "both")
"""The engines that execute compiled kernels."""


class Devices:
    """Serves settings and launches; `Allocations` and `Programs` serve memory and code."""

    def __init__(self, data_file: int, marks_file: int) -> None:
        self._files = data_file, marks_file
        self._settings: Settings | None = None
        self._unusable: SimulationError | None = None
        self._devices: list[Device] = []
        self._allocations = Allocations(self._devices)
        self._programs = Programs(self._devices)
        self._launched: set[Kernel] = set()
        self._launches = 0
        self._cold: ColdStarts | None = None
        self._timelines = 0
        self._warnings = Warnings()
        self._dump: OperandDump | None = None
        self.handlers: Mapping[Operation, Callable[[int, int, int, bytes], Answer]] = {
            Operation.SETTINGS: self._configure,
            Operation.ALLOC: self._alloc,
            Operation.FREE: self._allocations.free,
            Operation.LOAD: self._programs.load,
            Operation.UNLOAD: self._programs.unload,
            Operation.FUNCTION: self._programs.function,
            Operation.GLOBAL: self._programs.variable,
            Operation.LAUNCH: self._launch,
            Operation.PEER: self._allocations.add_peer,
            Operation.GUESS: self._guess,
        }

    def _configure(self, device: int, a: int, b: int, payload: bytes) -> Answer:
        """Applies settings. Invalid ones also fail later requests, as IREE does not report every error."""
        try:
            self._apply(payload)
            self._unusable = None
        except SimulationError as error:
            self._unusable = error
            raise
        return 0, b""

    def _apply(self, payload: bytes) -> None:
        variables = dict(line.split("=", 1) for line in payload.decode().splitlines() if "=" in line)
        settings = Settings.of(variables)
        how = settings.engine, settings.checks, settings.schedule, settings.seed
        if not self._devices:
            count, region = int(variables["devices"]), int(variables["region"])
            storage = Storage.shared(*self._files, count * region)
            for k in range(count):
                memory = Memory((k + 1) * region, storage, int(variables[f"first.{k}"]))
                self._devices.append(Device(DEFAULT, *how, memory=memory))
        elif self._settings is None or replace(settings, profile=self._settings.profile) != self._settings:
            for each in self._devices:
                each.configure(*how)
        before, self._launches = self._settings, 0
        if settings.engine == TIMING and before is not None and before.engine != TIMING:
            self._allocations.unmark()
        if before is None or (settings.dump_operands, settings.report) != (before.dump_operands, before.report):
            self._dump = None
            if settings.report and settings.dump_operands:
                from mxcomp.hip.dump import OperandDump  # IREE's compiler comes along: half of a worker's start

                self._dump = OperandDump(settings.report, settings.dump_operands)
        self._settings = settings

    def _alloc(self, device: int, nbytes: int, kind: int, payload: bytes) -> Answer:
        if self._unusable is not None:
            raise Refusal(ErrorCode.INVALID_VALUE, str(self._unusable))
        return self._allocations.alloc(device, nbytes, kind, payload)

    def _launch(self, device: int, identity: int, b: int, payload: bytes) -> Answer:
        settings, number = self._settings or Settings(), self._launches
        self._launches += 1
        if settings.skips(number):
            return 0, b""
        kernel = self._programs.kernel(identity)
        *sizes, dynamic_lds, _ = LAUNCH.unpack_from(payload)
        kernarg = payload[LAUNCH.size :]
        if kernel.metadata.symbol:
            kernarg = kernarg[: max((a.offset + a.size for a in kernel.arguments if not a.is_hidden), default=0)]
        self._allocations.mark_host_memory(kernarg)
        if self._dump is not None:
            self._dump.write(self._devices[device], kernel, kernarg)
        self._prepare(kernel, settings)
        launch = partial(
            self._devices[device].launch, kernel, sizes[:3], sizes[3:], kernarg, dynamic_lds,
            max_instructions=settings.max_instructions,
        )  # fmt: skip
        stats, modelled = self._timed(launch, settings) if settings.times(number) else (None, None)
        if stats is None or settings.executes(number):
            stats = launch()
        self._report(device, sizes, stats, modelled, settings.executes(number))
        if kernel not in self._launched:
            self._launched.add(kernel)
            _settle()
        return 0, b""

    def _guess(self, device: int, a: int, b: int, payload: bytes) -> Answer:
        """Refuses what the program does by a result that is not computed, such as how often it repeats something."""
        if self._settings is not None and self._settings.computes_less:
            raise SimulationError("the program looks at a result, but not all is computed: profile while computing")
        return 0, b""

    def _prepare(self, kernel: Kernel, settings: Settings) -> None:
        """Compiles kernels in several processes, if the engine needs that, they never were, and all are executed."""
        if settings.engine in _COMPILED and kernel not in self._launched and not settings.asked:
            if self._cold is None:
                from mxcomp.hip.cold import ColdStarts  # LLVM comes along

                self._cold = ColdStarts()
            self._cold.prepare(kernel, CHECKS if settings.checks is None else settings.checks)

    def _timed(
        self, launch: Callable[..., LaunchStats], settings: Settings
    ) -> tuple[LaunchStats | None, dict[str, object]]:
        """Returns what a launch would do, and what a profile says of its modelled time, or why there is none."""
        from mxcomp.sim.timing.estimates import estimate
        from mxcomp.sim.timing.examination import Examiner
        from mxcomp.sim.timing.timeline import Timeline

        examiner = Examiner()
        try:
            stats = launch(engine=examiner)
            found = estimate(examiner.examination)
            if settings.timeline:
                name = f"{self._timelines:03}_{stats.kernel}.json"
                self._timelines += 1
                (Path(settings.timeline) / name).write_text(Timeline.of(examiner.examination).json())
        except SimulationError as error:
            return None, {"modelled": None, "reason": str(error)}
        return stats, {"modelled": asdict(found), "depends": examiner.examination.depends}

    def _report(
        self, device: int, sizes: list[int], stats: LaunchStats, modelled: dict[str, object] | None, is_executed: bool
    ) -> None:
        self._warnings.say(stats.kernel, stats.findings)  # errors fail the launch
        if self._settings is not None and self._settings.profile and modelled is not None:
            line = {
                "kernel": stats.kernel,
                "device": device,
                "grid": sizes[:3],
                "block": sizes[3:],
                "seconds": stats.seconds,
                "executed": is_executed,
                "counters": dict(stats.counters),
                "warnings": [str(finding) for finding in stats.findings],
                **modelled,
            }
            with open(self._settings.profile, "a") as file:
                file.write(json.dumps(line) + "\n")


def _settle() -> None:
    """Excludes existing objects from garbage collection, so that collecting what launches leave is quick and frequent.

    Python collects the oldest generation when it has grown by a quarter; a decoded kernel is a large generation, and
    launches leave few but large objects.
    """
    gc.collect()
    gc.freeze()
    gc.collect()
