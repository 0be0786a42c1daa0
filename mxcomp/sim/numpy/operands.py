"""Fetches operands and writes results, by closures over one `Operand` that are made once per instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mxcomp.sim.instruction import EXECZ, SCC, VCC, VCCZ, Operand
from mxcomp.sim.numpy.wave import Wave, lanes_of
from mxcomp.sim.semantics.constants import constant_bits
from mxcomp.sim.semantics.modifiers import modified16, modified32, modified64, selected_part
from mxcomp.sim.semantics.table import DTYPES, u32, u64

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


def vector_read(operand: Operand, letter: str) -> VectorRead:
    """Returns a reader of lanes in the type that a letter of the tables asks for."""
    if letter == "M":
        mask = scalar_read(operand, "M")
        return lambda w: lanes_of(mask(w))
    if letter == "s":
        return scalar_read(operand, "u")
    if letter == "Q":
        return _pair(operand)
    if letter in "wxy":
        row, count = operand.vgpr, operand.dwords
        return lambda w: w.v[row : row + count]
    if letter in "UId":
        return _read64(operand, letter)
    raw = _constant_or_register(operand, letter)
    if operand.sel != 6:
        whole = raw
        raw = lambda w: selected_part(whole(w), operand)  # noqa: E731
    if letter in "hHSb":
        return lambda w: modified16(raw(w), operand, letter)
    return _read32(raw, operand, letter)


def _constant_or_register(operand: Operand, letter: str) -> VectorRead:
    constant = constant_bits(operand.code, operand.literal, letter)
    if constant is None:
        return register_read(operand)
    value = np.array([constant & 0xFFFFFFFF], u32)
    return lambda w: value


def _read32(raw: VectorRead, operand: Operand, letter: str) -> VectorRead:
    if DTYPES.get(letter, u32) is u32 and not (operand.absolute or operand.negate):
        return raw
    return lambda w: modified32(raw(w), operand, letter)


def _read64(operand: Operand, letter: str) -> VectorRead:
    if operand.is_vgpr:
        row = operand.vgpr
        return lambda w: modified64(w.v[row] | w.v[row + 1].astype(u64) << 32, operand, letter)
    constant = constant_bits(operand.code, operand.literal, letter)
    scalar: ScalarRead = scalar_read(operand, "U") if constant is None else lambda w: constant
    return lambda w: modified64(np.array([scalar(w)], u64), operand, letter)


def _pair(operand: Operand) -> VectorRead:
    """Returns a reader of two registers; a constant stands for both."""
    if operand.is_vgpr:
        row = operand.vgpr
        return lambda w: (w.v[row], w.v[row + 1])
    if operand.is_sgpr:
        code = operand.code
        return lambda w: (np.array([w.s[code]], u32), np.array([w.s[code + 1]], u32))
    raw = _constant_or_register(operand, "f")
    return lambda w: (raw(w), raw(w))
