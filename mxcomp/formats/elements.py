"""Element formats of OCP Microscaling v1.0 and their conversion from and to float32, one code per byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]

Ties = Literal["even", "away"]


@dataclass(frozen=True)
class ElementFormat:
    """A sign bit, an exponent field and a mantissa field; everything else follows from the widths.

    Attributes:
        name: Short name, e.g. ``"E2M1"``.
        mlir_type: MLIR type of one element, e.g. ``"f4E2M1FN"``.
        hardware_code: Operand selector ``cbsz`` / ``blgp`` of ``v_mfma_scale_*_f8f6f4``.
        has_inf: The all-ones exponent is reserved for infinities and NaN, as in IEEE 754 (E5M2).
        has_nan: The format has NaN; without ``has_inf`` only the all-ones magnitude is one (E4M3 "FN").

    Source: OCP Microscaling v1.0, section 5.3; OCP 8-bit Floating Point v1.0, section 5.
    """

    name: str
    mlir_type: str
    exponent_bits: int
    mantissa_bits: int
    hardware_code: int
    has_inf: bool = False
    has_nan: bool = False

    @property
    def bits(self) -> int:
        """The width of one element."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def loadable(self) -> bool:
        """Whether IREE 3.13 has code generation for it: if its width divides, or is a multiple of, a byte."""
        return 8 % self.bits == 0

    @property
    def bias(self) -> int:
        """The exponent bias."""
        return (1 << self.exponent_bits - 1) - 1

    @property
    def max_code(self) -> int:
        """The code of the largest finite value."""
        reserved = 1 << self.mantissa_bits if self.has_inf else int(self.has_nan)
        return (1 << self.bits - 1) - 1 - reserved

    @property
    def nan_code(self) -> int:
        """The code of a positive NaN: all ones, or the largest finite value in a format without NaN."""
        return (1 << self.bits - 1) - 1

    @property
    def emax(self) -> int:
        """The exponent of the largest power of two in the format."""
        return (self.max_code >> self.mantissa_bits) - self.bias

    @property
    def max_finite(self) -> float:
        """The largest finite value."""
        return float(self.values()[self.max_code])

    def values(self) -> F32:
        """Returns the decode table, float32[2**bits], indexed by code. Shared and read-only."""
        return _decode_table(self)

    def __str__(self) -> str:
        return self.name


E2M1 = ElementFormat("E2M1", "f4E2M1FN", 2, 1, hardware_code=4)
E2M3 = ElementFormat("E2M3", "f6E2M3FN", 2, 3, hardware_code=2)
E3M2 = ElementFormat("E3M2", "f6E3M2FN", 3, 2, hardware_code=3)
E4M3 = ElementFormat("E4M3", "f8E4M3FN", 4, 3, hardware_code=0, has_nan=True)
E5M2 = ElementFormat("E5M2", "f8E5M2", 5, 2, hardware_code=1, has_inf=True, has_nan=True)

FORMATS: dict[str, ElementFormat] = {
    key: fmt for fmt in (E2M1, E2M3, E3M2, E4M3, E5M2) for key in (fmt.name, fmt.mlir_type)
}
"""The formats by name (``"E2M1"``) and by MLIR type (``"f4E2M1FN"``)."""

UNLOADABLE = {fmt.mlir_type: fmt for fmt in FORMATS.values() if not fmt.loadable}
"""The formats that IREE has no code generation for, by MLIR type."""

ELEMENT_TYPES = tuple(fmt.mlir_type for name, fmt in FORMATS.items() if name == fmt.name)
"""The MLIR types of all element formats. Any two may be multiplied."""


def element_format(fmt: ElementFormat | str) -> ElementFormat:
    """Returns ``fmt`` itself or looks it up in `FORMATS`; raises ValueError for an unknown name."""
    if isinstance(fmt, ElementFormat):
        return fmt
    if fmt not in FORMATS:
        raise ValueError(f"unknown element format {fmt!r}; use one of {', '.join(FORMATS)}")
    return FORMATS[fmt]


@np.errstate(invalid="ignore")  # signalling NaN
def encode(x: NDArray[np.generic], fmt: ElementFormat | str, *, ties: Ties = "even") -> U8:
    """Rounds to the nearest element and saturates.

    Infinities saturate as well. NaN keeps its sign and becomes the all-ones magnitude: NaN in E4M3 and E5M2, the
    largest finite value in the formats without NaN. Zero keeps its sign.

    Args:
        x: float32, float16 or bfloat16 array of any shape.
        fmt: Element format or its name.
        ties: What a value halfway between two elements becomes: ``"even"`` takes the even code, ``"away"`` the
            larger magnitude.

    Returns:
        uint8 array of x's shape, one code per byte.

    Raises:
        TypeError: x has another dtype.
        ValueError: unknown format or rule for ties.
    """
    fmt = element_format(fmt)
    if ties not in _ROUND:
        raise ValueError(f"unknown rule for ties {ties!r}; use one of {', '.join(_ROUND)}")
    x = as_float32(x)
    magnitude = np.fmin(np.abs(x), np.float32(fmt.max_finite))  # fmin: a NaN saturates too
    exponent = np.maximum(float32_exponent(magnitude), 1 - fmt.bias)
    # Counted in units in the last place, a significand that rounds up to the next power of two carries into the
    # exponent field by itself, and a subnormal is the case of exponent field 0.
    significand = _ROUND[ties](np.ldexp(magnitude, fmt.mantissa_bits - exponent)).astype(np.int32)
    code = significand + ((exponent + fmt.bias - 1) << fmt.mantissa_bits)
    code = np.where(np.isnan(x), fmt.nan_code, code)
    return (code | np.signbit(x).astype(np.int32) << fmt.bits - 1).astype(np.uint8)


def decode(codes: U8, fmt: ElementFormat | str) -> F32:
    """Returns the float32 values (exact, same shape) of uint8 ``codes``, one code per byte.

    Raises TypeError for another dtype, ValueError for an unknown format or a code wider than the format.
    """
    fmt = element_format(fmt)
    check_codes(codes, fmt)
    return fmt.values()[codes]


def as_float32(x: NDArray[np.generic]) -> F32:
    """Widens float16, bfloat16 or float32 without rounding; raises TypeError for anything else."""
    x = np.asarray(x)
    if x.dtype.name not in ("float32", "float16", "bfloat16"):
        raise TypeError(f"expected a float32, float16 or bfloat16 array, got {x.dtype}; convert it with astype first")
    return x.astype(np.float32, copy=False)


def check_codes(codes: U8, fmt: ElementFormat) -> None:
    """Raises TypeError unless ``codes`` is uint8, ValueError if a code has bits outside the format."""
    if codes.dtype != np.uint8:
        raise TypeError(f"expected uint8 codes, got {codes.dtype}; use encode or quantise to make them")
    if fmt.bits < 8 and codes.size and codes.max() >> fmt.bits:
        raise ValueError(f"code {codes.max():#x} does not fit {fmt}'s {fmt.bits} bits; use unpack_bits on packed bytes")


def float32_exponent(x: F32) -> I32:
    """Returns the unbiased exponent field of non-negative float32: -127 for zero and denormals, 128 for infinity and
    NaN."""
    return (x.view(np.int32) >> 23) - 127


def _half_up(x: F32) -> F32:
    whole = np.floor(x)
    return whole + (x - whole >= 0.5)  # x + 0.5 would round the float32 just below 0.5 up to 1


_ROUND: dict[str, Callable[[F32], F32]] = {"even": np.rint, "away": _half_up}


@cache
def _decode_table(fmt: ElementFormat) -> F32:
    magnitude = np.arange(1 << fmt.bits - 1)
    field, mantissa = magnitude >> fmt.mantissa_bits, magnitude & (1 << fmt.mantissa_bits) - 1
    significand = np.where(field > 0, mantissa + (1 << fmt.mantissa_bits), mantissa)
    values = np.ldexp(significand.astype(np.float32), np.maximum(field, 1) - fmt.bias - fmt.mantissa_bits)
    values[fmt.max_code + 1 :] = np.nan
    if fmt.has_inf:
        values[fmt.max_code + 1] = np.inf
    table = np.concatenate([values, -values])
    table.flags.writeable = False
    return table
