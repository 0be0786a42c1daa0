"""Packed instructions, two values per operand, and dot products (CDNA4 ISA, chapter 12, VOP3P).

op_sel picks the half (16-bit types) or the register (v_pk_*_f32) that each source gives to the low result, op_sel_hi
the one for the high result; neg and neg_hi negate them. In v_mad_mix* op_sel_hi says which sources are float16.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mxcomp.sim.instruction import Instruction
from mxcomp.sim.semantics.modifiers import limited
from mxcomp.sim.semantics.small_floats import bfloat_to_f32, join, to_half
from mxcomp.sim.semantics.table import DTYPES, Lanes, VectorTable, f16, f32, f64, i8, i32, u8, u16, u32, vector
from mxcomp.sim.semantics.valu_float import TABLE as FLOATS
from mxcomp.sim.semantics.valu_float import fma32
from mxcomp.sim.semantics.valu_int import TABLE as INTEGERS

Function = Callable[..., Any]

TABLE: VectorTable = {}
_add = partial(vector, TABLE)


def select_high(instruction: Instruction) -> int:
    """Returns op_sel_hi of the three sources."""
    return instruction.flag("opsel_hi") | instruction.flag("opsel_hi2") << 2


def _half(word: Lanes, high: int, negate: int, dtype: type) -> Lanes:
    bits = (word >> 16 * high).astype(u16)
    return (bits ^ (negate << 15)).view(dtype)


def _pairs(function: Function, letter: str, saturating: Function | None) -> Function:
    """Returns a 16-bit operation on both halves, and its integer form with the clamp bit."""

    def specialise(instruction: Instruction) -> Function:
        low, high = instruction.flag("opsel"), select_high(instruction)
        negate_low, negate_high = instruction.flag("neg"), instruction.flag("neg_hi")
        clamp = instruction.flag("clmp")
        operation = saturating if clamp and saturating is not None else function

        def part(words: tuple[Lanes, ...], sel: int, negate: int) -> Lanes:
            sources = (_half(w, sel >> k & 1, negate >> k & 1, DTYPES[letter]) for k, w in enumerate(words))
            result = operation(*sources)
            if letter != "h":
                return result
            return to_half(limited(result) if clamp else result)

        return lambda *words: join(part(words, low, negate_low), part(words, high, negate_high))

    return specialise


_HALVES = {
    **{f"v_pk_{name}_f16": (f"v_{name}_f16", FLOATS) for name in ("add", "mul", "fma", "min", "max")},
    **{f"v_pk_{n}_{t}16": (f"v_{n}_{t}16", INTEGERS) for n in ("add", "sub", "min", "max", "mad") for t in "ui"},
    **{f"v_pk_{name}16": (f"v_{name}16", INTEGERS) for name in ("mul_lo_u", "lshlrev_b", "lshrrev_b", "ashrrev_i")},
}  # fmt: skip
for _name, (_single, _table) in _HALVES.items():
    _op = _table[_single]
    _letter = "S" if "S" in _op.src else _op.src[-1]
    _function, _clamps = _pairs(_op.function, _letter, _op.clamped), _letter == "h" or _op.clamped is not None
    _add(_name, f"u<{'P' * len(_op.src)}", _function, specialise=True, clamps=_clamps)
for _name in ("minimum3", "maximum3"):
    _function = _pairs(FLOATS[f"v_{_name}_f32"].function, "h", None)
    _add(f"v_pk_{_name}_f16", "u<PPP", _function, specialise=True, clamps=True)


def _pairs_f32(function: Function) -> Function:
    """Returns a float32 operation on two register pairs or more."""

    def specialise(instruction: Instruction) -> Function:
        low, high = instruction.flag("opsel"), select_high(instruction)
        negate_low, negate_high = instruction.flag("neg"), instruction.flag("neg_hi")

        def part(pairs: tuple[tuple[Lanes, Lanes], ...], sel: int, negate: int) -> Lanes:
            words = (pair[sel >> k & 1] for k, pair in enumerate(pairs))
            return function(*((w ^ u32((negate >> k & 1) << 31)).view(f32) for k, w in enumerate(words)))

        return lambda *pairs: (part(pairs, low, negate_low), part(pairs, high, negate_high))

    return specialise


def _pk_mov(instruction: Instruction) -> Function:
    first, second = instruction.flag("opsel") & 1, instruction.flag("opsel") >> 1 & 1
    return lambda a, b: (a[first], b[second])


def _both(instruction: Instruction, k: int) -> set[int]:
    return {instruction.flag("opsel") >> k & 1, select_high(instruction) >> k & 1}


PAIRS: dict[str, Callable[[Instruction, int], set[int]]] = {
    **dict.fromkeys(("v_pk_fma_f32", "v_pk_mul_f32", "v_pk_add_f32"), _both),
    "v_pk_mov_b32": lambda instruction, k: {instruction.flag("opsel") >> k & 1},
}
"""The registers of a pair that source k reads, for operations on pairs of registers."""

_add("v_pk_fma_f32", "ff<QQQ", _pairs_f32(fma32), specialise=True)
_add("v_pk_mul_f32", "ff<QQ", _pairs_f32(lambda a, b: a * b), specialise=True)
_add("v_pk_add_f32", "ff<QQ", _pairs_f32(lambda a, b: a + b), specialise=True)
_add("v_pk_mov_b32", "uu<QQ", _pk_mov, specialise=True)


# -- mixed precision


def _mad_mix(result: str) -> Function:
    """Computes a float32 fused multiply-add of float32 and float16 sources (LLVM: v_fma_mix*); neg_hi is the absolute
    value."""

    def specialise(instruction: Instruction) -> Function:
        narrow, high = select_high(instruction), instruction.flag("opsel")
        negate, absolute = instruction.flag("neg"), instruction.flag("neg_hi")

        def source(word: Lanes, k: int) -> Lanes:
            value = _half(word, high >> k & 1, 0, f16).astype(f32) if narrow >> k & 1 else word.view(f32)
            value = np.abs(value) if absolute >> k & 1 else value
            return -value if negate >> k & 1 else value

        def mix(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
            total = fma32(source(a, 0), source(b, 1), source(c, 2))
            return limited(total) if instruction.flag("clmp") else total

        def into_half(a: Lanes, b: Lanes, c: Lanes, old: Lanes) -> Lanes:
            bits = to_half(mix(a, b, c)).astype(u32)
            return old & u32(0xFFFF0000) | bits if result == "lo" else old & u32(0xFFFF) | bits << 16

        return into_half if result else mix

    return specialise


_add("v_mad_mix_f32", "f<uuu", _mad_mix(""), specialise=True)
for _half_name in ("lo", "hi"):
    _mix = _mad_mix(_half_name)
    _add(f"v_mad_mix{_half_name}_f16", "u<uuu", _mix, specialise=True, old="preserve", clamps=True)

# -- dot products; float ones are summed in float64, low half first, and rounded once


def _wide(word: Lanes, high: int, negate: int, kind: str) -> Lanes:
    bits = _half(word, high, negate, u16)
    return (bfloat_to_f32(bits) if kind == "bf16" else bits.view(f16)).astype(f64)


def _dot2(kind: str) -> Function:
    def specialise(instruction: Instruction) -> Function:
        packed = instruction.encoding == "VOP3P"
        low, high = (instruction.flag("opsel"), select_high(instruction)) if packed else (0, 3)
        negate_low, negate_high = instruction.flag("neg"), instruction.flag("neg_hi")

        def dot(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
            total = c.astype(f64)
            for sel, negate in ((low, negate_low), (high, negate_high)):
                x, y = (_wide(word, sel >> k & 1, negate >> k & 1, kind) for k, word in enumerate((a, b)))
                total = total + x * y
            return total.astype(f32)

        return dot

    return specialise


def _dot4(dtype: type, signed: bool) -> Function:
    def dot(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        total = c
        for shift in (0, 8, 16, 24):
            x, y = ((word >> shift).astype(u8).view(dtype).astype(i32 if signed else u32) for word in (a, b))
            total = total + (x * y).view(u32)
        return total

    return dot


for _kind in ("f16", "bf16"):
    _add(f"v_dot2_f32_{_kind}", "f<PPf", _dot2(_kind), specialise=True)
    _add(f"v_dot2c_f32_{_kind}", "f<uu", _dot2(_kind), specialise=True, old="accumulate")
_add("v_dot4_i32_i8", "u<uuu", _dot4(i8, True))
_add("v_dot4c_i32_i8", "u<uu", _dot4(i8, True), old="accumulate")
_add("v_dot4_u32_u8", "u<uuu", _dot4(u8, False))
