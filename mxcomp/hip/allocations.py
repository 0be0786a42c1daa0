"""Manages memory of the simulated devices: allocations, and which devices can access them."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from mxcomp.hip.protocol import Answer, ErrorCode, MemoryKind, Refusal
from mxcomp.sim import Buffer, Device
from mxcomp.sim.memory import UNWRITTEN

_ALWAYS_ALLOWED = 64 << 20
"""Allocations up to this number of bytes are made without checking the free memory."""


@dataclass(frozen=True)
class Allocation:
    device: int
    buffer: Buffer
    kind: MemoryKind


class Allocations:
    """Serves the requests of the protocol that concern memory."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = devices
        self._allocations: dict[int, Allocation] = {}
        self._peers: defaultdict[int, set[int]] = defaultdict(set)
        self._unmarked: dict[int, Buffer] = {}

    def alloc(self, device: int, nbytes: int, kind: int, payload: bytes) -> Answer:
        check_room(nbytes)
        of_host = kind == MemoryKind.HOST
        buffer = self._devices[device].memory.alloc(nbytes, fill=not of_host)
        self._allocations[buffer.address] = allocation = Allocation(device, buffer, MemoryKind(kind))
        for k in self._others(allocation):
            self._devices[k].memory.map(buffer)
        if of_host:
            self._unmarked[buffer.address] = buffer
        return buffer.address, b""

    def free(self, device: int, address: int, b: int, payload: bytes) -> Answer:
        allocation = self._allocations.pop(address, None)
        if allocation is None:
            raise Refusal(ErrorCode.INVALID_VALUE, f"{address:#x} is not the start of an allocation")
        for k in self._others(allocation):
            self._devices[k].memory.unmap(allocation.buffer)
        self._devices[allocation.device].memory.free(allocation.buffer)
        self._unmarked.pop(address, None)
        return 0, b""

    def _others(self, allocation: Allocation) -> set[int]:
        """Returns the devices that can access an allocation of another one."""
        if allocation.kind is MemoryKind.HOST:
            return set(range(len(self._devices))) - {allocation.device}
        return self._peers[allocation.device]

    def add_peer(self, owner: int, device: int, b: int, payload: bytes) -> Answer:
        if device in self._peers[owner]:
            raise Refusal(
                ErrorCode.PEER_ACCESS_ALREADY_ENABLED, f"device {device} already has access to device {owner}"
            )
        self._peers[owner].add(device)
        for allocation in self._allocations.values():
            if allocation.device == owner and allocation.kind is MemoryKind.DEVICE:
                self._devices[device].memory.map(allocation.buffer)
        return 0, b""

    def mark_host_memory(self, kernarg: bytes) -> None:
        """Marks host memory whose pointer a kernel gets as written. Marking all of it at once would commit it."""
        if not self._unmarked:
            return
        for address in {word for (word,) in struct.iter_unpack("<Q", kernarg[: len(kernarg) & ~7])}:
            for start, buffer in list(self._unmarked.items()):
                if start <= address < start + buffer.nbytes:
                    marks = self._devices[0].memory.written
                    marks[buffer.start : buffer.start + buffer.nbytes] = 1
                    del self._unmarked[start]

    def unmark(self) -> None:
        """Makes all device memory what it was before it was written: what kernels have stored must not affect what
        follows."""
        for allocation in self._allocations.values():
            if allocation.kind is MemoryKind.DEVICE:
                memory, buffer = self._devices[0].memory, allocation.buffer
                marks = memory.written[buffer.start : buffer.start + buffer.nbytes]
                memory.data[buffer.start : buffer.start + buffer.nbytes][marks != 0] = UNWRITTEN
                marks[:] = 0


def check_room(nbytes: int) -> None:
    """Raises Refusal where this machine does not have that many bytes left."""
    if nbytes > _ALWAYS_ALLOWED and nbytes > (free := available_bytes()):
        raise Refusal(ErrorCode.OUT_OF_MEMORY, f"{nbytes} bytes asked for, this machine has {free} left")


def available_bytes() -> int:
    """Returns the memory of this machine that is still available."""
    with open("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 1 << 62
