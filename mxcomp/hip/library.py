"""Finds the driver library, and says how to use it: IREE's flag or variable for it, and the environment it reads."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from mxcomp.errors import InputError
from mxcomp.hip import build

PYTHON_VARIABLE = "MXCOMP_PYTHON"
IREE_VARIABLE = "IREE_HIP_DYLIB_PATH"
"""What IREE's driver looks at where no --hip_dylib_path is given."""

_PACKAGED = Path(__file__).parent / "_lib" / build.NAME


def hip_dylib() -> Path:
    """The library: installed, or built into the user's cache. Raises InputError where neither is possible."""
    library = _PACKAGED
    if not build.is_current(library):
        library = _cached()
        if not build.is_current(library):
            try:
                build.build(library)
            except (build.BuildError, OSError) as error:
                raise InputError(f"the simulated device needs its HIP driver library: {error}") from None
    return library


def hip_dylib_directory() -> Path:
    """What --hip_dylib_path takes."""
    return hip_dylib().parent


def interrupt(path: Path) -> None:
    """Ends what this process is simulating: the calls that wait for it fail, and simulated devices are lost.

    A device that is made afterwards is on a new simulation. Does nothing where the library is not in use.
    """
    try:
        loaded = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return
    loaded.mxcomp_interrupt()


def environment(**settings: str | None) -> dict[str, str]:
    """Variables for the library: this Python, and MXCOMP_SIM_* for each setting that is given."""
    given = {f"MXCOMP_SIM_{name.upper()}": value for name, value in settings.items() if value is not None}
    return {PYTHON_VARIABLE: sys.executable} | given


def _cached() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "mxcomp" / "hip" / build.digest()[:16] / build.NAME
