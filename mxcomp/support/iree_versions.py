"""Checks that the installed IREE is the version that mxcomp was made for.

Passes build IREE's operations and read what its phases leave, which changes from release to release:
`test/mlir/test_iree_contract.py` has what is relied on. IREE 3.12, for one, does not parse the layouts of our ukernels.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib import metadata
from importlib.util import find_spec

from mxcomp.errors import InputError

MADE_FOR = (3, 13)
"""The version of IREE that pyproject.toml requires."""

PACKAGES = {"iree-base-compiler": "iree.compiler", "iree-base-runtime": "iree.runtime"}
"""The packages of IREE, with a module of each to import."""

_SERIES = ".".join(map(str, MADE_FOR))
_INSTALL = "pip install " + " ".join(f"'{package}~={_SERIES}.0'" for package in PACKAGES)
_CONTRACT = "test/mlir/test_iree_contract.py"


@cache
def check() -> None:
    """Raises InputError where IREE is missing or older, and warns once where it is newer; both say what to do."""
    for package, module in PACKAGES.items():
        found = installed(package, module)
        if found is None:  # IREE's own build, which has no metadata
            continue
        number = tuple(map(int, found.split(".")[:2]))
        if number < MADE_FOR:
            raise InputError(f"{package} {found} is older than IREE {_SERIES}, which mxcomp is made for: {_INSTALL}")
        if number > MADE_FOR:
            warnings.warn(
                f"{package} {found} is newer than IREE {_SERIES}, which mxcomp is made for: if something fails, "
                f"{_CONTRACT} says which assumption does not hold any more, and {_INSTALL} goes back",
                stacklevel=2,
            )
            return


def installed(package: str, module: str) -> str | None:
    """Returns a package's version, or None for a module of unknown version. Raises InputError where neither exists."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        if find_spec("iree") is not None and find_spec(module) is not None:
            return None
        raise InputError(f"{package} is not installed: {_INSTALL}") from None
