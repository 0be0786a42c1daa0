"""Finds the driver library, and sets IREE's flag or variable for it and the environment that it reads."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

from mxcomp.errors import InputError
from mxcomp.hip import build
from mxcomp.support import caches

PYTHON_VARIABLE = "MXCOMP_PYTHON"
IREE_VARIABLE = "IREE_HIP_DYLIB_PATH"
"""The environment variable that IREE's driver reads where no --hip_dylib_path is given."""

_PACKAGED = Path(__file__).parent / "_lib" / build.NAME


def hip_dylib() -> Path:
    """Returns the library: installed, or built into the user's cache; into a temporary directory if that is not
    trusted.

    Raises InputError where it cannot be had.
    """
    try:
        return lasting_hip_dylib()
    except caches.CacheError as error:
        caches.say_once(f"the HIP driver library is built again each time: {error}")
        return _built(_of_process() / build.NAME)


def lasting_hip_dylib() -> Path:
    """Returns a library that other processes can use later. Raises InputError, or CacheError where there is none."""
    if build.is_current(_PACKAGED):
        return _PACKAGED
    return _built(caches.own("hip", build.digest()[:16]) / build.NAME)


def hip_dylib_directory() -> Path:
    """Returns the value for --hip_dylib_path."""
    return hip_dylib().parent


def interrupt(path: Path) -> None:
    """Ends the simulation in this process: calls that wait for it fail, and simulated devices are lost.

    A device that is made afterwards is on a new simulation. Does nothing where the library is not in use.
    """
    if (loaded := _loaded(path)) is not None:
        loaded.mxcomp_interrupt()


def reported(path: Path) -> None:
    """Tells the library that its last failure has been shown; else it prints it when this process ends."""
    if (loaded := _loaded(path)) is not None:
        loaded.mxcomp_reported()


def environment(**settings: str | None) -> dict[str, str]:
    """Returns environment variables for the library: this Python, and MXCOMP_SIM_* for each setting that is given."""
    given = {f"MXCOMP_SIM_{name.upper()}": value for name, value in settings.items() if value is not None}
    return {PYTHON_VARIABLE: sys.executable} | given


def _loaded(path: Path) -> ctypes.CDLL | None:
    """Returns the library, if it is loaded."""
    try:
        return ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return None


def _built(library: Path) -> Path:
    """Returns the library, built if it is missing or not this user's own. Raises InputError."""
    try:
        if not (build.is_current(library) and caches.is_own(library.stat())):
            build.build(library)
            library.chmod(0o700)
    except (build.BuildError, OSError) as error:
        raise InputError(f"the simulated device needs its HIP driver library: {error}") from None
    return library


@cache
def _of_process() -> Path:
    """Returns a directory that exists until this process ends."""
    made = tempfile.mkdtemp(prefix="mxcomp-hip-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)
