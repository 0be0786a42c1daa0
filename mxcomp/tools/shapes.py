"""Sizes of matmuls on command lines: 64x14336x4096."""

from __future__ import annotations

import re

from mxcomp.errors import InputError

RESULTS = ("bf16", "f16", "f32")
"""The possible values of --result."""

_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)")


def sizes(text: str) -> tuple[int, int, int]:
    """Returns M, N and K. Raises InputError."""
    found = _SHAPE.fullmatch(text)
    if found is None or not all(map(int, found.groups())):
        raise InputError(f"{text}: expected sizes as MxNxK, for example 64x14336x4096")
    m, n, k = map(int, found.groups())
    return m, n, k
