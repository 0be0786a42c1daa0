"""Devices to run programs on, by name: this machine's CPU, the simulated GPU, the GPU."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from iree import runtime as rt
from iree.runtime import _binding

from mxcomp.errors import InputError
from mxcomp.hip import library
from mxcomp.hip.settings import Settings
from mxcomp.sim.errors import SimulationError

DRIVERS = {"cpu": "local-sync", "sim": "hip", "hip": "hip"}
"""IREE's driver for each name of a device."""

_environment = threading.Lock()


@dataclass
class Kept:
    """A device that is kept while nothing fails on it, with what programs on it share.

    Giving a simulated one back takes IREE and Python's garbage collection a while.
    """

    device: rt.HalDevice | None = None
    is_simulated: bool = False

    def drop(self) -> None:
        """Forgets the device after a failure, which the caller reports."""
        if self.is_simulated and self.device is not None:
            library.reported(_library())
        self.device = None

    def check_failure(self, device: rt.HalDevice) -> None:
        """Raises RuntimeError if work has failed on this device, by reading a byte of it."""
        if self.is_simulated and device is self.device:
            rt.asdevicearray(device, np.zeros(1, np.uint8)).to_host()


def device_of(device: str, settings: dict[str, str | None], kept: Kept) -> rt.HalDevice:
    """Returns the device of a name; a simulated one has the settings applied. Raises InputError."""
    try:
        if device != "sim":
            kept.device = kept.device or _made(device)
            return kept.device
        driver, variables = simulator(), library.environment(**settings)
        Settings.of(os.environ | variables)
        with _variables(variables):
            driver.query_available_devices()  # which also tells the simulator its settings
            if kept.device is None:
                kept.device, kept.is_simulated = driver.create_default_device(), True
            return kept.device
    except SimulationError as error:
        raise InputError(f"device '{device}': {error}") from None
    except (RuntimeError, ValueError) as error:
        raise InputError(f"device '{device}' cannot be used: {error}") from None


def _made(device: str) -> rt.HalDevice:
    if device == "cpu":
        return rt.get_device(DRIVERS[device])
    return _binding.create_hal_driver(DRIVERS[device]).create_default_device()


@cache
def simulator() -> rt.HalDriver:
    """Returns IREE's HIP driver with the simulator as its GPUs, apart from the one that `iree.runtime` keeps.

    Raises InputError where the library cannot be had, or where --hip_dylib_path has been given to this process.
    """
    path = _library()
    with _variables({library.IREE_VARIABLE: f"file:{path}", **library.environment()}):
        driver = _binding.create_hal_driver(DRIVERS["sim"])
        if f"{path}\n" not in driver.dump_device_info(1):
            raise InputError(f"--hip_dylib_path names another library than {path}: leave the flag out")
        return driver


def end_simulation() -> None:
    """Ends all simulated work of this process."""
    library.interrupt(_library())


@cache
def _library() -> Path:
    return library.hip_dylib()


@contextmanager
def _variables(variables: dict[str, str]) -> Iterator[None]:
    """Sets environment variables while IREE's driver or ours reads them."""
    with _environment:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
