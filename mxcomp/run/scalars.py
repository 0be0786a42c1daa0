"""Converts scalar arguments of programs, numbers of Python and of NumPy, for IREE's VM.

The VM has integers of 32 and 64 bits and floats of these; a bf16 or f16 is passed by its bits. IREE converts nothing
and refuses nothing: a float for an integer is 0, an integer for a float too, and of one too large it takes some bits.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from mxcomp.errors import InputError
from mxcomp.run.arrays import given
from mxcomp.run.signature import ELEMENTS

_FLOATS = ("f16", "bf16", "f32", "f64")
_INTEGER = re.compile(r"(?P<sign>[su]?)i(?P<bits>\d+)")


def of(value: Any, kind: str, index: int) -> int | float | Any:
    """Returns argument `index`, of the scalar type `kind`, for the VM. Raises InputError for other objects.

    A value for a type that is not known here stays as it is.
    """
    array = given(value, index)
    if array.ndim:
        raise InputError(f"argument {index} is of type {kind}: expected a number, got an array of shape {array.shape}")
    if isinstance(value, int | float):
        number: int | float = value
    elif array.dtype.kind in "biuf":
        number = array.item()
    elif array.dtype.kind == "V" and _is_float(array):
        number = float(array)
    else:
        raise InputError(f"argument {index} is of type {kind}: expected a number, got {value!r}")
    if kind in _FLOATS:
        return _float(number, kind, index)
    if kind == "index" or _INTEGER.fullmatch(kind):
        return _integer(number, kind, index)
    return value


def _is_float(array: np.ndarray) -> bool:
    """Returns whether it is a float type of ml_dtypes, which NumPy does not count as one."""
    return array.dtype.name.startswith(("bfloat", "float"))


def _float(number: float, kind: str, index: int) -> int | float:
    if isinstance(number, bool):
        raise InputError(f"argument {index} is of type {kind}: expected a float, got {number}")
    try:
        wide = float(number)
    except OverflowError:
        wide = math.inf
    with np.errstate(over="ignore"):
        value = np.asarray(_odd(wide) if kind == "bf16" else wide, np.float64).astype(ELEMENTS[kind])
    is_finite = isinstance(number, int) or bool(np.isfinite(number))  # a longdouble may be, and no float
    if is_finite and not np.isfinite(value):
        raise InputError(f"argument {index} is of type {kind}: {_shown(number)} is out of its range")
    return int(value.view(np.uint16)) if value.itemsize == 2 else float(value)


def _shown(number: float) -> str:
    return f"an integer of {number.bit_length()} bits" if isinstance(number, int) else str(number)


def _odd(number: float) -> float:
    """Returns a number rounded to odd as f32: ml_dtypes converts to f32 first, which would round twice."""
    near = np.float32(number)
    if float(near) == number or not np.isfinite(near) or near.view(np.uint32) & 1:
        return float(near)
    return float(np.nextafter(near, np.float32(math.copysign(math.inf, number - float(near)))))


def _integer(number: float, kind: str, index: int) -> int:
    if isinstance(number, float):
        raise InputError(f"argument {index} is of type {kind}: expected an integer, got {number}")
    found = _INTEGER.fullmatch(kind)
    sign, bits = (found["sign"], int(found["bits"])) if found else ("s", 64)
    low = 0 if sign == "u" or bits == 1 else -(1 << bits - 1)
    high = (1 << bits - 1) - 1 if sign == "s" else (1 << bits) - 1
    if not low <= number <= high:
        raise InputError(f"argument {index} is of type {kind}: {number} is out of its range, {low} to {high}")
    width = 64 if bits > 32 else 32
    return int(number) - (1 << width) if number >= 1 << width - 1 else int(number)


def parsed(text: str, kind: str, index: int) -> str:
    """Returns a scalar of a command line, as iree-run-module takes it."""
    for read in (lambda digits: int(digits, 0), float):
        try:
            number = read(text.strip())
        except ValueError:
            continue
        if isinstance(number, float) and math.isinf(number) and "inf" not in text.lower():
            raise InputError(f"argument {index} is of type {kind}: {text} is out of its range")
        return repr(of(number, kind, index))
    raise InputError(f"argument {index} is of type {kind}: expected a number, got {text!r}")
