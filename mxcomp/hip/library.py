"""Finds the driver library, and says how to use it: IREE's flag or variable for it, and the environment it reads."""

from __future__ import annotations

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
    _note_python(library)
    return library


def hip_dylib_directory() -> Path:
    """What --hip_dylib_path takes."""
    return hip_dylib().parent


def environment(**settings: str | None) -> dict[str, str]:
    """Variables for the library: this Python, and MXCOMP_SIM_* for each setting that is given."""
    variables = {PYTHON_VARIABLE: sys.executable}
    variables |= {f"MXCOMP_SIM_{name.upper()}": value for name, value in settings.items() if value is not None}
    return variables


def _cached() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "mxcomp" / "hip" / build.digest()[:16] / build.NAME


def _note_python(library: Path) -> None:
    """Leaves word beside the library of an interpreter that has mxcomp, for programs that do not set the variable."""
    note = library.with_name("python.txt")
    try:
        if not note.exists() or note.read_text().strip() != sys.executable:
            note.write_text(sys.executable + "\n")
    except OSError:
        pass  # the library looks around itself
