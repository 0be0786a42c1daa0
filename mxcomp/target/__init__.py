"""The GPUs: each file of this folder with a `TARGET` adds one, by the name that it has."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module

from mxcomp.errors import TargetError
from mxcomp.target.description import MatrixInstruction, Target

__all__ = ["DEFAULT", "MatrixInstruction", "Target", "get_target", "targets"]

DEFAULT = "gfx950"
"""The name of the GPU that programs are compiled for by default."""


def targets() -> Mapping[str, Target]:
    """Returns all GPUs, by name."""
    return _targets(tuple(__path__))


@cache
def _targets(folders: tuple[str, ...]) -> Mapping[str, Target]:
    modules = (import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(folders))
    found = [module.TARGET for module in modules if hasattr(module, "TARGET")]
    return {target.name: target for target in found}


def get_target(name: str) -> Target:
    """Returns the GPU called `name`; raises TargetError for any other one."""
    try:
        return targets()[name]
    except KeyError:
        known = ", ".join(targets())
        raise TargetError(
            f"unknown target '{name}': expected one of {known} (v_mfma_scale instructions exist on CDNA4 only)"
        ) from None
