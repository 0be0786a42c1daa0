"""Fetches operands and writes results, by closures over one `Operand` that are made once per instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mxcomp.sim.instruction import EXECZ, SCC, VCC, VCCZ, Operand
from mxcomp.sim.numpy.wave import Wave, lanes_of
from mxcomp.sim.semantics.constants import constant_bits
from mxcomp.sim.semantics.modifiers import Source, fetched
from mxcomp.sim.semantics.table import MASK32, u32

ScalarRead = Callable[[Wave], int]
VectorRead = Callable[[Wave], Any]


def scalar_read(operand: Operand, letter: str) -> ScalarRead:
    """Returns a reader of an SGPR, a pair, or a constant as an unsigned int. A signed letter (i, I) gives a signed
    one."""
    code, wide = operand.code, letter in "UIME"
    constant = constant_bits(code, operand.literal, letter)
    if letter in "iI":
        sign = 1 << (63 if wide else 31)
        unsigned = scalar_read(operand, letter.upper() if wide else "u") if letter == "i" else scalar_read(operand, "U")
        if constant is not None:
            value = (constant ^ sign) - sign
            return lambda w: value
        return lambda w: (unsigned(w) ^ sign) - sign
    if constant is not None:
        return lambda w: constant
    if code == SCC:
        return lambda w: w.scc
    if code == VCCZ:
        return lambda w: int(not w.s[VCC] | w.s[VCC + 1])
    if code == EXECZ:
        return lambda w: int(not w.exec)
    if wide:
        return lambda w: w.s[code] | w.s[code + 1] << 32
    return lambda w: w.s[code]


def register_read(operand: Operand) -> VectorRead:
    """Returns a reader of 32 raw bits per lane, with one element where all lanes agree."""
    if operand.is_vgpr:
        row = operand.vgpr
        return lambda w: w.v[row]
    scalar = scalar_read(operand, "u")
    return lambda w: np.array([scalar(w)], u32)


def vector_read(source: Source) -> VectorRead:
    """Returns a reader of lanes in the type that a letter of the tables asks for."""
    letter, operand, _ = source
    if operand is None:
        return lambda w: w.mode
    if letter == "M":
        mask = scalar_read(operand, "M")
        return lambda w: lanes_of(mask(w))
    if letter == "s":
        return scalar_read(operand, "u")
    if letter in "wxy":
        row, count = operand.vgpr, operand.dwords
        return lambda w: w.v[row : row + count]
    if letter == "u" and operand.is_vgpr and operand == Operand(operand.code):
        return register_read(operand)
    words = words_read(operand, letter)
    return lambda w: fetched(words(w), source)


def words_read(operand: Operand, letter: str) -> Callable[[Wave], tuple[Any, ...]]:
    """Returns a reader of the one or two registers of a source; with one element where all lanes agree. A constant
    stands for both of a pair."""
    two = letter in "UIdQ"
    if operand.is_vgpr:
        row = operand.vgpr
        return (lambda w: (w.v[row], w.v[row + 1])) if two else (lambda w: (w.v[row],))
    constant = constant_bits(operand.code, operand.literal, "f" if letter == "Q" else letter)
    if constant is None:
        scalar = scalar_read(operand, "U" if two else "u")
        return lambda w: _halves(scalar(w))[: 1 + two]
    if letter == "Q":
        constant |= constant << 32
    words = _halves(constant)[: 1 + two]
    return lambda w: words


def _halves(bits: int) -> tuple[Any, Any]:
    return np.array([bits & MASK32], u32), np.array([bits >> 32], u32)
