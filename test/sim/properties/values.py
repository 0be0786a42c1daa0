"""Types of operands and results, between registers and Python values, and inputs to test them with.

A signature is "results < sources". Types: u and i with a width in bits (u16 is the lower half of a register, wider than
32 are consecutive registers), f16, f32, f64, bf16, and

====  =============================================================
mask  a bit per lane in a pair of SGPRs
sgpr  an SGPR
scc   the scalar condition code
exec  EXEC, in scalar instructions
mode  FP16_OVFL, bit 23 of MODE, as 0 or 1; no operand
lane  the number of the lane; no operand
old   what the result's registers hold before; no operand
====  =============================================================

A constant operand has the type constant, and no value: its instruction's row knows it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from properties.exact import FORMATS, to_bits, to_float

NO_OPERAND = ("mode", "lane", "old")


def parse(signature: str) -> tuple[list[str], list[str]]:
    """Types of results and sources."""
    results, sources = signature.split("<")
    return results.split(), sources.split()


def size(kind: str) -> int:
    """Bits."""
    known = {"mask": 64, "sgpr": 32, "mode": 0, "lane": 0, "scc": 1, "exec": 64}
    return known[kind] if kind in known else int(kind.lstrip("uifb"))


def dwords(kind: str) -> int:
    return -(-size(kind) // 32)


def decode(raw: int, kind: str) -> Any:
    """The Python value of the bits of registers."""
    bits = raw & (1 << size(kind)) - 1
    if kind in FORMATS:
        return to_float(bits, kind)
    return bits - (bits >> size(kind) - 1 << size(kind)) if kind[0] == "i" else bits


def encode(value: Any, kind: str) -> int:
    """The bits that a result leaves in its registers; 16 bits leave the upper half zero."""
    return to_bits(value, kind) if kind in FORMATS else int(value) & (1 << size(kind)) - 1


def distance(a: int, b: int, kind: str) -> int:
    """Representable numbers from one float to the other."""
    fmt = FORMATS[kind]
    if (a == fmt.nan) != (b == fmt.nan):
        return 1 << 64
    top = 1 << fmt.bits - 1
    ordered = [top - (x & top - 1) if x & top else top + x for x in (a, b)]
    return abs(ordered[0] - ordered[1])


_INTEGERS = (0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000,
             0x7FFFFF, 0x800000, 0xFFFFFF, 0x01000000, 0x20001F, 0x100008)  # fmt: skip
_FLOATS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.5, 4.0, 6.0, 0.25, 0.49999997, 255.5, 256.0, 448.0, 464.0, 65504.0, 65519.0,
           65520.0, 32767.5, 65535.0, 2.0**31, 2.0**32, 4294967040.0, 2147483520.0, 1e-7, 6e-8, 1e38)  # fmt: skip


@cache
def corners(kind: str) -> tuple[int, ...]:
    """Bit patterns at which something changes."""
    bits = size(kind)
    every = (1 << bits) - 1
    if kind not in FORMATS:
        top = 1 << bits - 1
        low = [x for x in _INTEGERS if x <= every]
        return tuple({*low, *(every - x for x in low), top, top - 1, top + 1, top >> 1})
    fmt = FORMATS[kind]
    one = 1 << fmt.mantissa
    tiny = (0, 1, 2, one - 1, one, one + 1, fmt.infinity - 1, fmt.infinity, fmt.infinity | 1, fmt.nan, fmt.nan | 1)
    positive = {*tiny, *(to_bits(x, kind) for x in _FLOATS)}
    return tuple(sorted(positive | {x | 1 << bits - 1 for x in positive}))


def random_bits(rng: np.random.Generator, kind: str, count: int) -> list[int]:
    """A third corners, a third any bits, a third moderate values: floats about 1 or with few bits, short integers."""
    bits = size(kind)
    special = corners(kind)
    return [
        (special[int(rng.integers(len(special)))], _any(rng, bits), _moderate(rng, kind))[int(rng.integers(3))]
        for _ in range(count)
    ]


def _any(rng: np.random.Generator, bits: int) -> int:
    return int.from_bytes(rng.bytes(-(-bits // 8)), "little") & (1 << bits) - 1


def _moderate(rng: np.random.Generator, kind: str) -> int:
    if kind not in FORMATS:
        short = _any(rng, int(rng.integers(1, size(kind) + 1)))
        return short if rng.integers(2) else ~short & (1 << size(kind)) - 1
    span = 12 if rng.integers(2) else 40
    value = float(rng.standard_normal()) * 2.0 ** int(rng.integers(-span, span))
    return to_bits(round(value * 4) / 4 if rng.integers(3) == 0 else value, kind)
