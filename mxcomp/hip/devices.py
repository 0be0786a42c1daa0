"""Simulated devices as the driver library asks for them: one method per operation of the protocol."""

from __future__ import annotations

import gc
import hashlib
import json
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mxcomp.hip import loading
from mxcomp.hip.protocol import ARGUMENT, FUNCTION, LAUNCH, ErrorCode, MemoryKind, Operation
from mxcomp.hip.settings import Settings
from mxcomp.hip.storage import SharedStorage, available_bytes
from mxcomp.hip.warned import Warnings
from mxcomp.sim import Buffer, Device, Kernel, LaunchStats, Module
from mxcomp.sim.device import TIMING
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.findings import CHECKS
from mxcomp.sim.memory import Memory

if TYPE_CHECKING:
    from mxcomp.hip.cold import ColdStarts
    from mxcomp.hip.dump import OperandDump

Answer = tuple[int, bytes]
"""A number and a payload."""

_COMPILED = ("fast", "both")
"""Engines that execute compiled kernels."""

_ALWAYS_ALLOWED = 64 << 20
"""Bytes that are allocated without asking how much memory there is."""


class Refusal(Exception):  # noqa: N818 (not always an error)
    """A request that fails with a code of its own."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Code:
    """A code object on a device, shared by all that load it.

    It stays when the last one unloads it, along with what has been compiled for it: programs are often loaded anew for
    every run.
    """

    data: bytes = field(repr=False)
    module: Module
    users: int = 0


@dataclass
class LoadedModule:
    """One load of a code object, and the kernels that were asked for."""

    code: Code
    kernels: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Allocation:
    device: int
    buffer: Buffer
    kind: MemoryKind


class Devices:
    """See the module."""

    def __init__(self, data_file: int, marks_file: int) -> None:
        self._files = data_file, marks_file
        self._settings: Settings | None = None
        self._unusable: SimulationError | None = None
        self._devices: list[Device] = []
        self._allocations: dict[int, Allocation] = {}
        self._peers: defaultdict[int, set[int]] = defaultdict(set)
        self._unmarked: dict[int, Buffer] = {}
        self._modules: dict[int, LoadedModule] = {}
        self._codes: dict[tuple[int, bytes], Code] = {}
        self._kernels: dict[int, Kernel] = {}
        self._launched: set[Kernel] = set()
        self._cold: ColdStarts | None = None
        self._timelines = 0
        self._last_id = 0
        self._warnings = Warnings()
        self._dump: OperandDump | None = None
        self.handlers: Mapping[Operation, Callable[[int, int, int, bytes], Answer]] = {
            Operation.SETTINGS: self._configure,
            Operation.ALLOC: self._alloc,
            Operation.FREE: self._free,
            Operation.LOAD: self._load,
            Operation.UNLOAD: self._unload,
            Operation.FUNCTION: self._function,
            Operation.GLOBAL: self._global,
            Operation.LAUNCH: self._launch,
            Operation.PEER: self._add_peer,
        }

    def _configure(self, device: int, a: int, b: int, payload: bytes) -> Answer:
        """Settings that make no sense also fail what follows: IREE cannot take every error."""
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
            storage = SharedStorage(*self._files, count * region)
            for k in range(count):
                memory = Memory((k + 1) * region, storage, int(variables[f"first.{k}"]))
                self._devices.append(Device("gfx950", *how, memory=memory))
        elif self._settings is None or replace(settings, profile=self._settings.profile) != self._settings:
            for each in self._devices:
                each.configure(*how)
        before = self._settings
        if before is None or (settings.dump_operands, settings.report) != (before.dump_operands, before.report):
            self._dump = None
            if settings.report and settings.dump_operands:
                from mxcomp.hip.dump import OperandDump  # IREE's compiler comes along: half of a worker's start

                self._dump = OperandDump(settings.report, settings.dump_operands)
        self._settings = settings

    # Memory.

    def _alloc(self, device: int, nbytes: int, kind: int, payload: bytes) -> Answer:
        if self._unusable is not None:
            raise Refusal(ErrorCode.INVALID_VALUE, str(self._unusable))
        _check_room(nbytes)
        of_host = kind == MemoryKind.HOST
        buffer = self._devices[device].memory.alloc(nbytes, fill=not of_host)
        self._allocations[buffer.address] = allocation = Allocation(device, buffer, MemoryKind(kind))
        for k in self._others(allocation):
            self._devices[k].memory.map(buffer)
        if of_host:
            self._unmarked[buffer.address] = buffer
        return buffer.address, b""

    def _free(self, device: int, address: int, b: int, payload: bytes) -> Answer:
        allocation = self._allocations.pop(address, None)
        if allocation is None:
            raise Refusal(ErrorCode.INVALID_VALUE, f"{address:#x} is not the start of an allocation")
        for k in self._others(allocation):
            self._devices[k].memory.unmap(allocation.buffer)
        self._devices[allocation.device].memory.free(allocation.buffer)
        self._unmarked.pop(address, None)
        return 0, b""

    def _others(self, allocation: Allocation) -> set[int]:
        """Devices that can access what another one has allocated."""
        if allocation.kind is MemoryKind.HOST:
            return set(range(len(self._devices))) - {allocation.device}
        return self._peers[allocation.device]

    def _add_peer(self, owner: int, device: int, b: int, payload: bytes) -> Answer:
        if device in self._peers[owner]:
            raise Refusal(
                ErrorCode.PEER_ACCESS_ALREADY_ENABLED, f"device {device} already has access to device {owner}"
            )
        self._peers[owner].add(device)
        for allocation in self._allocations.values():
            if allocation.device == owner and allocation.kind is MemoryKind.DEVICE:
                self._devices[device].memory.map(allocation.buffer)
        return 0, b""

    def _mark_host_memory(self, kernarg: bytes) -> None:
        """Marks host memory that a kernel gets a pointer to as written. Marking all of it at once would commit it."""
        if not self._unmarked:
            return
        for address in {word for (word,) in struct.iter_unpack("<Q", kernarg[: len(kernarg) & ~7])}:
            for start, buffer in list(self._unmarked.items()):
                if start <= address < start + buffer.nbytes:
                    marks = self._devices[0].memory.written
                    marks[buffer.start : buffer.start + buffer.nbytes] = 1
                    del self._unmarked[start]

    # Modules.

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _load(self, device: int, a: int, b: int, payload: bytes) -> Answer:
        number = self._new_id()
        key = device, hashlib.sha256(payload).digest()
        code = self._codes.get(key)
        if code is None or loading.has_variables(payload):
            module = loading.read(payload)
            _check_room(loading.image_bytes(module))
            code = Code(payload, module)
            self._codes.setdefault(key, code)
        if not code.users:
            self._devices[device].place(code.module)
        code.users += 1
        self._modules[number] = LoadedModule(code)
        return number, b""

    def _unload(self, device: int, number: int, b: int, payload: bytes) -> Answer:
        loaded = self._modules.pop(number)
        loaded.code.users -= 1
        if not loaded.code.users:
            self._devices[device].unload(loaded.code.module)
        for kernel in loaded.kernels:
            del self._kernels[kernel]
        return 0, b""

    def _function(self, device: int, number: int, b: int, payload: bytes) -> Answer:
        loaded, name = self._modules[number], payload.decode()
        kernels = loaded.code.module.kernels
        kernel = kernels.get(name)
        if kernel is None:
            raise Refusal(ErrorCode.NOT_FOUND, f"no kernel '{name}': the code object has {', '.join(kernels)}")
        arguments = [argument for argument in kernel.arguments if not argument.is_hidden]
        identity = self._new_id()
        self._kernels[identity] = kernel
        loaded.kernels.append(identity)
        d = kernel.descriptor
        threads = loading.most_threads(kernel)
        info = FUNCTION.pack(d.kernarg_bytes, d.lds_bytes, d.scratch_bytes, d.vgprs, threads, len(arguments))
        return identity, info + b"".join(ARGUMENT.pack(argument.offset, argument.size) for argument in arguments)

    def _global(self, device: int, number: int, b: int, payload: bytes) -> Answer:
        code, name = self._modules[number].code, payload.decode()
        found = loading.find_variable(code.data, code.module, name)
        if found is None:
            raise Refusal(ErrorCode.NOT_FOUND, f"no global '{name}' in the code object")
        return self._devices[device].address_of(code.module, found[0]), struct.pack("<Q", found[1])

    # Launches.

    def _launch(self, device: int, identity: int, b: int, payload: bytes) -> Answer:
        kernel = self._kernels[identity]
        *sizes, dynamic_lds, _ = LAUNCH.unpack_from(payload)
        kernarg = payload[LAUNCH.size :]
        if kernel.metadata:
            kernarg = kernarg[: max((a.offset + a.size for a in kernel.arguments if not a.is_hidden), default=0)]
        self._mark_host_memory(kernarg)
        if self._dump is not None:
            self._dump.write(self._devices[device], kernel, kernarg)
        settings = self._settings or Settings()
        self._prepare(kernel, settings)
        launch = partial(
            self._devices[device].launch, kernel, sizes[:3], sizes[3:], kernarg, dynamic_lds,
            max_instructions=settings.max_instructions,
        )  # fmt: skip
        stats, modelled = self._timed(launch, settings) if settings.profile or settings.timeline else (None, None)
        if stats is None or settings.engine != TIMING:
            stats = launch()
        self._report(device, sizes, stats, modelled)
        if kernel not in self._launched:
            self._launched.add(kernel)
            _settle()
        return 0, b""

    def _prepare(self, kernel: Kernel, settings: Settings) -> None:
        """Has kernels compiled by several processes, if they never were and the engine needs that."""
        if settings.engine in _COMPILED and kernel not in self._launched:
            if self._cold is None:
                from mxcomp.hip.cold import ColdStarts  # LLVM comes along

                self._cold = ColdStarts()
            self._cold.prepare(kernel, CHECKS if settings.checks is None else settings.checks)

    def _timed(
        self, launch: Callable[..., LaunchStats], settings: Settings
    ) -> tuple[LaunchStats | None, dict[str, object]]:
        """What a launch would do and how long it would take, or why that cannot be said."""
        from mxcomp.sim.timing import Examiner, Timeline, estimate

        examiner = Examiner()
        try:
            stats = launch(engine=examiner)
            found = estimate(examiner.examination)
            if settings.timeline:
                name = f"{self._timelines:03}_{stats.kernel}.json"
                self._timelines += 1
                (Path(settings.timeline) / name).write_text(Timeline.of(examiner.examination).json())
        except SimulationError as error:
            return None, {"error": str(error)}
        return stats, asdict(found)

    def _report(self, device: int, sizes: list[int], stats: LaunchStats, modelled: dict[str, object] | None) -> None:
        self._warnings.say(stats.kernel, stats.findings)  # errors fail the launch
        if self._settings is not None and self._settings.profile:
            line = {
                "kernel": stats.kernel,
                "device": device,
                "grid": sizes[:3],
                "block": sizes[3:],
                "seconds": stats.seconds,
                "counters": dict(stats.counters),
                "modelled": modelled,
                "warnings": [str(finding) for finding in stats.findings],
            }
            with open(self._settings.profile, "a") as file:
                file.write(json.dumps(line) + "\n")


def _check_room(nbytes: int) -> None:
    """Raises Refusal where this machine has not as many bytes left."""
    if nbytes > _ALWAYS_ALLOWED and nbytes > (free := available_bytes()):
        raise Refusal(ErrorCode.OUT_OF_MEMORY, f"{nbytes} bytes asked for, this machine has {free} left")


def _settle() -> None:
    """Takes what now exists out of garbage collection, so that collecting what launches leave is quick and frequent.

    Python collects the oldest generation when it has grown by a quarter; a decoded kernel is a large generation, and
    launches leave few but large objects.
    """
    gc.collect()
    gc.freeze()
    gc.collect()
