"""Lane functions of small floats: elements of `mxcomp.formats`, bfloat16, and rounding to them."""

from __future__ import annotations

from functools import cache

import numpy as np

from mxcomp.formats import E2M1, E2M3, E3M2, E4M3, E5M2, ElementFormat, decode_e8m0
from mxcomp.sim.semantics.table import Lanes, f16, f32, f64, i64, lookup, u16, u32, u64

FORMATS: dict[str, ElementFormat] = {"fp8": E4M3, "bf8": E5M2, "fp6": E2M3, "bf6": E3M2, "fp4": E2M1}
"""The element formats by AMD's names."""

BY_SELECTOR: dict[int, ElementFormat] = {fmt.hardware_code: fmt for fmt in FORMATS.values()}
"""The element formats by the cbsz and blgp fields of v_mfma_*_f8f6f4."""


@cache
def value_table(fmt: ElementFormat) -> Lanes:
    """Returns float64 values by code."""
    table = fmt.values().astype(f64)
    table.setflags(write=False)
    return table


@cache
def scale_table() -> Lanes:
    """Returns the float64 values of E8M0 codes: 2**(code − 127), 0xFF is NaN."""
    table = decode_e8m0(np.arange(256, dtype=np.uint8)).astype(f64)
    table.setflags(write=False)
    return table


def decode(codes: Lanes, fmt: ElementFormat) -> Lanes:
    """Returns the float64 values of codes (any unsigned type)."""
    values: Lanes = lookup(value_table(fmt), codes)
    return values


def decode_scale(codes: Lanes) -> Lanes:
    values: Lanes = lookup(scale_table(), codes)
    return values


def scale_of_f32(scale: Lanes) -> Lanes:
    """Returns the E8M0 value that v_cvt_scalef32_* takes from a float32 given as bits: its exponent field, nothing
    else."""
    return decode_scale(scale >> 23 & 0xFF)


def encode(x: Lanes, fmt: ElementFormat, saturate: bool = True, scale: Lanes | float = 1.0) -> Lanes:
    """Returns the codes (u32) of float64 values divided by a power of two, rounded to nearest even.

    Too large values become the largest finite one, or with saturate=False what the format has for them (infinity in
    E5M2, NaN in E4M3; FP6 and FP4 saturate always). NaN becomes NaN where there is one, else the largest value.
    Signs are those of `x`, so that they do not depend on what a processor makes of two NaN.
    """
    mantissa_bits, smallest = fmt.mantissa_bits, 1 - fmt.bias
    sign = x.view(u64) >> 63
    x = x / scale
    bits = x.view(u64)
    magnitude = np.abs(x)
    exponent = np.maximum((bits >> 52 & 0x7FF).astype(i64) - 1023, smallest)
    exponent = np.minimum(exponent, 900)
    steps = np.rint(magnitude * ((mantissa_bits - exponent + 1023) << 52).view(f64))  # of the last place
    steps = np.where(magnitude < 2.0**800, steps, 0.0)  # keep the conversion to int defined
    code = ((exponent - smallest) << mantissa_bits) + steps.astype(i64)  # a carry goes into the exponent by itself
    beyond = (code > fmt.max_code) | (magnitude >= 2.0**800)
    largest = i64(fmt.max_code)
    overflow = largest if saturate or not fmt.has_nan else i64(fmt.max_code + 1)  # infinity in E5M2, NaN in E4M3
    code = np.where(beyond, overflow, code)
    code = np.where(x != x, i64(fmt.nan_code if fmt.has_nan else fmt.max_code), code)
    return (code.astype(u64) | sign << (fmt.bits - 1)).astype(u32)


def bfloat_to_f32(bits: Lanes) -> Lanes:
    """Returns bfloat16 bits (u16) as float32."""
    return (bits.astype(u32) << 16).view(f32)


def f32_to_bfloat(x: Lanes) -> Lanes:
    """Returns float32 as bfloat16 bits (u16), rounded to nearest even; NaN is canonical."""
    bits = x.view(u32)
    rounded = (bits.astype(u64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(x != x, u16(0x7FC0), rounded.astype(u16))


def to_half(x: Lanes) -> Lanes:
    """Returns any float as float16 bits (u16), rounded to nearest even; NaN is canonical."""
    return np.where(x != x, u16(0x7E00), x.astype(f16).view(u16))


def f32_to_half_towards_zero(x: Lanes) -> Lanes:
    """Returns float32 as float16 bits (u16), rounded towards zero; finite values stay finite, NaN is canonical."""
    nearest = to_half(x)
    beyond = np.abs(nearest.view(f16).astype(f32)) > np.abs(x)
    return np.where(beyond & (np.abs(x) < np.inf), nearest - 1, nearest)


def halves(word: Lanes, kind: str) -> tuple[Lanes, Lanes]:
    """Returns the two 16-bit floats ("f16", "bf16") in a register, as float64."""
    low, high = (word & 0xFFFF).astype(u16), (word >> 16).astype(u16)
    if kind == "f16":
        return low.view(f16).astype(f64), high.view(f16).astype(f64)
    return bfloat_to_f32(low).astype(f64), bfloat_to_f32(high).astype(f64)


def join(low: Lanes, high: Lanes) -> Lanes:
    """Returns a register from two 16-bit parts of any type."""
    return low.view(u16).astype(u32) | high.view(u16).astype(u32) << 16
