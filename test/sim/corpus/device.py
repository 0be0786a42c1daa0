"""Runs corpus kernels on `mxcomp.sim`: the only module of the corpus that knows its interface."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mxcomp.sim import Device, LaunchStats, Module

SCHEDULES = ("forward", "reverse", "random")
MACHINES = (
    ("both", "forward"),
    ("fast", "reverse"),
    ("fast", "random"),
    pytest.param(("both", "reverse"), marks=pytest.mark.slow),
    pytest.param(("both", "random"), marks=pytest.mark.slow),
)
"""Engine and schedule: every schedule with all checks, and both engines side by side."""

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

    def __init__(self, engine: str = "fast", schedule: str = "forward", **options: Any) -> None:
        self.device = Device("gfx950", engine=engine, schedule=schedule, seed=1, **options)
        self._modules: dict[bytes, Module] = {}

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

    def _module(self, elf: bytes) -> Module:
        """Loaded once."""
        if elf not in self._modules:
            self._modules[elf] = self.device.load(elf)
        return self._modules[elf]

    def launch(self, code: Iterable[bytes], launches: Iterable[Launch], **options: Any) -> list[LaunchStats]:
        """Runs launches in order. Kernels are looked up in all code objects."""
        kernels = {name: kernel for elf in code for name, kernel in self._module(elf).kernels.items()}
        return [
            self.device.launch(
                kernels[launch.kernel],
                grid=launch.grid,
                block=launch.block,
                kernarg=launch.kernarg,
                dynamic_lds=launch.dynamic_lds,
                **options,
            )
            for launch in launches
        ]
