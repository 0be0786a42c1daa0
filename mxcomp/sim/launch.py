"""Prepares a launch: sets up arguments and initial registers, and enumerates workgroups (LLVM's AMDGPUUsage, "Initial
Kernel Execution State")."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from mxcomp.sim.code_object import Argument, Kernel
from mxcomp.sim.engine import UNDEFINED_SGPR, WaveStart, Workgroup
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.instruction import EXEC, VGPR0
from mxcomp.sim.memory import Memory
from mxcomp.target import Target

Dims = tuple[int, int, int]

_LANES = np.arange(64)
_MOST_WORKGROUPS = 1 << 24
"""The largest number of workgroups of a launch: they are listed, and more would take a day."""
_SCRATCH_LIMIT = (1 << 13) - 1 << 10
"""The largest scratch of a wave in bytes: 13 bits of COMPUTE_TMPRING_SIZE count it in KiB."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The device addresses where a launch finds its arguments, and the argument bytes."""

    kernarg: int
    packet: int
    data: bytes

    def numbers(self, kernel: Kernel) -> tuple[int, ...]:
        """Returns explicit arguments as numbers; longer ones by their first 8 bytes."""
        explicit = [a for a in kernel.arguments if not a.is_hidden]
        return tuple(int.from_bytes(self.data[a.offset : a.offset + min(a.size, 8)], "little") for a in explicit)


@dataclass(frozen=True, slots=True)
class WaveStarter:
    """Sets up registers as the packet processor does."""

    kernel: Kernel
    block: Dims
    arguments: Arguments

    def __call__(self, workgroup: Workgroup, wave: int) -> WaveStart:
        sgprs, defined = [UNDEFINED_SGPR] * 128, 0
        for code, value in enumerate(self._user_sgprs() + self._system_sgprs(workgroup)):
            if value is not None:
                sgprs[code] = value
                defined |= 1 << code
        x, y, z = self.block
        item = wave * 64 + _LANES
        ids = (item % x, item // x % y << 10, item // (x * y) << 20)
        v0 = np.bitwise_or.reduce(ids[: self.kernel.descriptor.work_item_dims]).astype(np.uint32)
        active = max(0, min(64, x * y * z - wave * 64))
        mask = (1 << active) - 1
        sgprs[EXEC], sgprs[EXEC + 1] = mask & 0xFFFFFFFF, mask >> 32
        defined |= 3 << EXEC | 1 << VGPR0 | 3 << 102  # architected flat scratch
        return WaveStart(tuple(sgprs), v0, self.kernel.descriptor.mode, defined)

    def _user_sgprs(self) -> list[int | None]:
        descriptor, arguments = self.kernel.descriptor, self.arguments

        def low_high(address: int) -> list[int]:
            return [address & 0xFFFFFFFF, address >> 32]

        parts: tuple[list[int], ...] = (
            [0, 0, 0xFFFFFFFF, 0],  # private segment buffer
            low_high(arguments.packet),
            [0, 0],  # queue
            low_high(arguments.kernarg),
            [0, 0],  # dispatch id
            [0, 0],  # flat scratch
            [descriptor.scratch_bytes],
        )
        result: list[int | None] = []
        for bit, values in enumerate(parts):
            if descriptor.properties >> bit & 1:
                result += values
        count, offset = descriptor.preload_count, descriptor.preload_offset
        preloaded = arguments.data[4 * offset : 4 * (offset + count)].ljust(4 * count, b"\0")
        result += struct.unpack(f"<{count}I", preloaded)
        result = result[: descriptor.user_sgprs]
        return result + [None] * (descriptor.user_sgprs - len(result))

    def _system_sgprs(self, workgroup: Workgroup) -> list[int | None]:
        enabled = self.kernel.descriptor.rsrc2 >> 7
        ids: list[int | None] = [value for bit, value in enumerate(workgroup) if enabled >> bit & 1]
        return [*ids, 0] if enabled >> 3 & 1 else ids


def hidden_values(kernel: Kernel, grid: Dims, block: Dims, dynamic_lds: int) -> Mapping[str, int]:
    """Returns the values of hidden arguments, which the runtime fills in, by kind; others are 0."""
    values = {"hidden_grid_dims": 1 + max(k for k in range(3) if k == 0 or grid[k] > 1 or block[k] > 1)}
    for axis, groups, items in zip("xyz", grid, block, strict=True):
        values[f"hidden_block_count_{axis}"] = groups
        values[f"hidden_group_size_{axis}"] = items
    values["hidden_dynamic_lds_size"] = dynamic_lds
    values["hidden_private_base"], values["hidden_shared_base"] = 0x2000, 0x1000
    return values


def complete_kernarg(kernel: Kernel, kernarg: bytes, hidden: Mapping[str, int]) -> bytes:
    """Returns the whole argument segment. Raises SimulationError when explicit arguments are missing."""
    explicit = max((a.offset + a.size for a in kernel.arguments if not a.is_hidden), default=0)
    if not kernel.metadata.symbol:
        explicit = kernel.argument_bytes
    if len(kernarg) < explicit:
        expected = f"expected {explicit}: {_describe(kernel.arguments)}"
        raise SimulationError(f"kernel {kernel.name}: {len(kernarg)} bytes of arguments, {expected}")
    size = max(kernel.argument_bytes, len(kernarg))
    data = bytearray(kernarg.ljust(size, b"\0"))
    for argument in kernel.arguments:
        if argument.is_hidden and argument.offset >= len(kernarg):
            number = hidden.get(argument.kind, 0)
            if number >> 8 * argument.size:
                raise SimulationError(f"kernel {kernel.name}: {argument.kind} is {number}, in {argument.size} bytes")
            value = number.to_bytes(argument.size, "little")
            data[argument.offset : argument.offset + argument.size] = value
    return bytes(data)


def _describe(arguments: tuple[Argument, ...]) -> str:
    return ", ".join(f"{a.name or a.kind} at {a.offset} ({a.size} bytes)" for a in arguments if not a.is_hidden)


def place_arguments(
    memory: Memory, kernel: Kernel, kernarg: bytes, grid: Dims, block: Dims, dynamic_lds: int
) -> Arguments:
    """Writes the argument segment and the dispatch packet. Raises SimulationError when arguments are missing."""
    kernarg = complete_kernarg(kernel, kernarg, hidden_values(kernel, grid, block, dynamic_lds))
    lds = kernel.descriptor.lds_bytes + dynamic_lds
    kernarg_buffer, packet_buffer = memory.alloc(max(64, len(kernarg))), memory.alloc(64)
    memory.write(kernarg_buffer.address, np.frombuffer(kernarg.ljust(64, b"\0"), np.uint8))
    items = [groups * size for groups, size in zip(grid, block, strict=True)]
    scratch = kernel.descriptor.scratch_bytes
    packet = struct.pack(
        "<6H5I4Q", 2, 3, *block, 0, *items, scratch, lds, kernel.descriptor.entry, kernarg_buffer.address, 0, 0
    )
    memory.write(packet_buffer.address, np.frombuffer(packet, np.uint8))
    return Arguments(kernarg_buffer.address, packet_buffer.address, kernarg)


def check_sizes(target: Target, kernel: Kernel, grid: Dims, block: Dims, dynamic_lds: int) -> None:
    """Raises SimulationError for a launch that the GPU has no room for, and CodeObjectError for wrong arguments."""
    most = target.max_workgroup_threads
    if min(*grid, *block) < 1 or math.prod(block) > most:
        raise SimulationError(f"grid {grid}, block {block}: expected positive sizes, at most {most} threads")
    lds = kernel.descriptor.lds_bytes + dynamic_lds
    if dynamic_lds < 0 or lds > (room := target.lds_bytes):
        raise SimulationError(f"{lds} bytes of LDS, {dynamic_lds} of them dynamic: {target.name} has {room}")
    scratch, most_scratch = kernel.descriptor.scratch_bytes, _SCRATCH_LIMIT // target.wave_size
    if scratch > most_scratch:
        raise SimulationError(f"{scratch} bytes of scratch a lane: {target.name} has {most_scratch}")
    kernel.check_arguments()


def all_workgroups(grid: Dims) -> tuple[Workgroup, ...]:
    """Returns the workgroups of a grid in the order of dispatch. Raises SimulationError where they are too many."""
    if math.prod(grid) > _MOST_WORKGROUPS:
        raise SimulationError(f"grid {grid}: expected at most {_MOST_WORKGROUPS} workgroups; --timing takes any grid")
    return tuple((x, y, z) for z, y, x in product(range(grid[2]), range(grid[1]), range(grid[0])))
