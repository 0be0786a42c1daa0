"""Runs corpus kernels on `mxcomp.sim`: the only module of the corpus that knows its interface."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mxcomp.sim import Device

SCHEDULES = ("forward", "reverse", "random")
MACHINES = (*SCHEDULES, pytest.param("engines", marks=pytest.mark.slow))
"""What `machine` makes: the readable engine with all checks in each schedule, and both engines side by side.

The last is slow where the fast engine has yet to compile all kernels.
"""

Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """One kernel launch: grid in workgroups, block in lanes, addresses and numbers in `kernarg`."""

    kernel: str
    grid: Grid
    block: Grid
    kernarg: bytes
    dynamic_lds: int = 0


class Machine:
    """A simulated device with all checks on, and memory that holds arrays."""

    def __init__(self, schedule: str = "forward", engine: str = "numpy") -> None:
        self.device = Device("gfx950", engine=engine, schedule=schedule, seed=1)

    def allocate(self, nbytes: int) -> Any:
        """A buffer that was never written."""
        return self.device.alloc(nbytes)

    def write(self, buffer: Any, array: np.ndarray) -> None:
        self.device.write(buffer, np.ascontiguousarray(array))

    def read(self, buffer: Any, like: np.ndarray) -> np.ndarray:
        """The buffer's first bytes as an array of the shape and type of `like`."""
        return self.device.read(buffer, like.dtype, like.shape)

    def upload(self, array: np.ndarray) -> Any:
        """A buffer of the array's size and bytes."""
        buffer = self.allocate(array.nbytes)
        self.write(buffer, array)
        return buffer

    def launch(self, code: Iterable[bytes], launches: Iterable[Launch]) -> None:
        """Runs launches in order. Kernels are looked up in all code objects."""
        kernels = {name: kernel for elf in code for name, kernel in self.device.load(elf).kernels.items()}
        for launch in launches:
            self.device.launch(
                kernels[launch.kernel],
                grid=launch.grid,
                block=launch.block,
                kernarg=launch.kernarg,
                dynamic_lds=launch.dynamic_lds,
            )


class Engines(Machine):
    """Both engines side by side: whatever is read must have the same bits on both."""

    def __init__(self) -> None:
        self.machines = Machine(engine="numpy"), Machine(engine="fast")

    def allocate(self, nbytes: int) -> Any:
        first, second = (machine.allocate(nbytes) for machine in self.machines)
        assert first.address == second.address
        return first

    def write(self, buffer: Any, array: np.ndarray) -> None:
        for machine in self.machines:
            machine.write(buffer, array)

    def read(self, buffer: Any, like: np.ndarray) -> np.ndarray:
        first, second = (machine.read(buffer, like) for machine in self.machines)
        np.testing.assert_array_equal(first.view(np.uint8), second.view(np.uint8))
        return first

    def launch(self, code: Iterable[bytes], launches: Iterable[Launch]) -> None:
        code, launches = list(code), list(launches)
        for machine in self.machines:
            machine.launch(code, launches)


def machine(name: str) -> Machine:
    """By a name in `MACHINES`."""
    return Engines() if name == "engines" else Machine(name)
