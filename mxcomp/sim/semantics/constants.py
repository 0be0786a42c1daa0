"""Constants in operands (CDNA4 ISA, table "Scalar Operands")."""

from __future__ import annotations

import struct

from mxcomp.sim.semantics.table import MASK32, MASK64

SHARED_BASE, PRIVATE_BASE = 0x1000 << 32, 0x2000 << 32
"""The base addresses of the apertures through which flat instructions reach LDS and scratch, 4 GiB each."""

_FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0)
_INVERSE_2PI = {"d": 0x3FC45F306DC9C882, "h": 0x3118}
_WIDE = "UIdM"


def constant_bits(code: int, literal: int, letter: str) -> int | None:
    """Returns the bits a constant operand has for a type letter of `table`, or None for registers.

    Integers are sign-extended to the operand's width. A literal is extended to 64 bits by type: float64 takes it as its
    upper half, signed integers extend the sign.
    """
    mask = MASK64 if letter in _WIDE else MASK32
    if 128 <= code <= 192:
        return code - 128
    if 193 <= code <= 208:
        return (192 - code) & mask
    if 240 <= code <= 247:
        return _float_bits(_FLOATS[code - 240], letter)
    if code == 248:
        return _INVERSE_2PI.get("h" if letter in "hHSP" else letter, 0x3E22F983)
    if code == 255:
        return _literal(literal, letter)
    if code in (235, 237):
        base = SHARED_BASE if code == 235 else PRIVATE_BASE
        return base if letter in _WIDE else base >> 32
    return None


def _literal(literal: int, letter: str) -> int:
    if letter == "d":
        return literal << 32
    if letter == "I":
        return (literal - (literal >> 31 << 32)) & MASK64
    return literal


def _float_bits(value: float, letter: str) -> int:
    if letter == "d":
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    if letter in "hHSP":
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    if letter == "b":
        return int(struct.unpack("<I", struct.pack("<f", value))[0]) >> 16
    return int(struct.unpack("<I", struct.pack("<f", value))[0])
