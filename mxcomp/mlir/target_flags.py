"""Checks the iree-compile flags that select a GPU against the target."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mxcomp.errors import InputError
from mxcomp.mlir.session import flag_values
from mxcomp.target import Target

_DEVICE, _BACKEND, _GPU = "--iree-hal-target-device", "--iree-hal-target-backends", "--iree-rocm-target"
_DEVICES = re.compile(r"(\w+=)?(hip|amdgpu)(\[\d+\])?")
"""Matches IREE's names of ROCm devices, with an optional name of the user's in front and ordinal behind."""


def missing(target: Target, flags: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns the flags of `target` that are neither in `flags` nor set globally. Raises InputError for those of
    another target."""
    given = flag_values(flags)
    _check(given, target)
    device_is_given = given[_DEVICE] or given[_BACKEND]
    own = {_DEVICE: not device_is_given, _GPU: not given[_GPU]}
    return tuple(flag for flag in target.iree_flags if own.get(flag.partition("=")[0], True))


def _check(given: Mapping[str, str], target: Target) -> None:
    for flag, fits, expected in (
        (_DEVICE, lambda device: _DEVICES.fullmatch(device), "hip"),
        (_BACKEND, lambda backend: backend == "rocm", "rocm"),
        (_GPU, lambda gpu: gpu.lower() in (target.arch, *target.products), target.arch),
    ):
        for value in filter(None, given[flag].split(",")):
            if not fits(value):
                raise InputError(
                    f"{flag}={value}: expected {expected}, since the target is {target.name}: leave the flag out, or "
                    f"compile for {value} with iree-compile"
                )
