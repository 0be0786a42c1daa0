"""Conversions (CDNA4 ISA, chapter 12: v_cvt_*, v_cvt_pk_*, v_cvt_scalef32_*).

Float to integer truncates and saturates, NaN gives 0. Conversions to FP8 without a scale saturate only with FP16_OVFL
(bit 23) set in the MODE register. The scaled family divides by, or multiplies with, 2**(exponent field of the scale
operand − 127); its results saturate likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mxcomp.formats import ElementFormat, pack_bits, unpack_bits
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.semantics import small_floats as sf
from mxcomp.sim.semantics.table import Lanes, VectorTable, f16, f32, f64, i16, i32, i64, u8, u16, u32, vector

Function = Callable[..., Any]

TABLE: VectorTable = {}
_add = partial(vector, TABLE)


def _to_int(x: Lanes, low: float, high: float) -> Lanes:
    """Truncates float64 to int64 within bounds; NaN gives 0."""
    bounded = np.minimum(np.maximum(np.trunc(x), low), high)
    return np.where(x != x, 0.0, bounded).astype(i64)


def to_u32(x: Lanes) -> Lanes:
    return _to_int(x.astype(f64), 0.0, 2.0**32 - 1).astype(u32)


def to_i32(x: Lanes) -> Lanes:
    return _to_int(x.astype(f64), -(2.0**31), 2.0**31 - 1).astype(i32).view(u32)


# -- integers and floats

_add("v_cvt_f32_u32", "f<u", lambda a: a.astype(f32))
_add("v_cvt_f32_i32", "f<i", lambda a: a.astype(f32))
_add("v_cvt_u32_f32", "u<f", to_u32)
_add("v_cvt_i32_f32", "u<f", to_i32)
_add("v_cvt_rpi_i32_f32", "u<f", lambda a: to_i32(np.floor(a.astype(f64) + 0.5)))
_add("v_cvt_flr_i32_f32", "u<f", lambda a: to_i32(np.floor(a)))
_add("v_cvt_u32_f64", "u<d", to_u32)
_add("v_cvt_i32_f64", "u<d", to_i32)
_add("v_cvt_f64_i32", "d<i", lambda a: a.astype(f64))
_add("v_cvt_f64_u32", "d<u", lambda a: a.astype(f64))
_add("v_cvt_f64_f32", "d<f", lambda a: a.astype(f64))
_add("v_cvt_f32_f64", "f<d", lambda a: a.astype(f32))
_add("v_cvt_f16_f32", "h<f", lambda a: a.astype(f16))
_add("v_cvt_f32_f16", "f<h", lambda a: a.astype(f32))
_add("v_cvt_f32_bf16", "f<b", lambda a: a)
_add("v_cvt_f16_u16", "h<H", lambda a: a.astype(f16))
_add("v_cvt_f16_i16", "h<S", lambda a: a.astype(f16))
_add("v_cvt_u16_f16", "H<h", lambda a: _to_int(a.astype(f64), 0.0, 65535.0).astype(u16))
_add("v_cvt_i16_f16", "H<h", lambda a: _to_int(a.astype(f64), -32768.0, 32767.0).astype(i16).view(u16))
_add("v_cvt_off_f32_i4", "f<u", lambda a: ((a << 28).view(i32) >> 28).astype(f32) * f32(1 / 16))
for _k in range(4):
    _add(f"v_cvt_f32_ubyte{_k}", "f<u", lambda a, shift=8 * _k: (a >> shift & 0xFF).astype(f32))

# -- pairs

_add("v_cvt_pk_bf16_f32", "u<ff", lambda a, b: sf.join(sf.f32_to_bfloat(a), sf.f32_to_bfloat(b)))
_add("v_cvt_pk_f16_f32", "u<ff", lambda a, b: sf.join(sf.to_half(a), sf.to_half(b)))
_rtz = sf.f32_to_half_towards_zero
_add("v_cvt_pkrtz_f16_f32", "u<ff", lambda a, b: sf.join(_rtz(a), _rtz(b)))


def _pack_u8(x: Lanes, position: Lanes, old: Lanes) -> Lanes:
    shift = (position & 3) * 8
    return old & ~(u32(0xFF) << shift) | _to_int(np.rint(x.astype(f64)), 0.0, 255.0).astype(u32) << shift


def _norm(least: float, limit: float, dtype: type) -> Function:
    """Returns a conversion to fixed point, where 1.0 becomes `limit`."""

    def norm(a: Lanes, b: Lanes) -> Lanes:
        return sf.join(*(_to_int(np.rint(x.astype(f64) * limit), least, limit).astype(dtype) for x in (a, b)))

    return norm


_add("v_cvt_pk_u8_f32", "u<fuu", _pack_u8)
_add("v_cvt_pknorm_i16_f32", "u<ff", _norm(-32767.0, 32767.0, i16))
_add("v_cvt_pknorm_u16_f32", "u<ff", _norm(0.0, 65535.0, u16))

# -- FP8 without scale


def _saturates(mode: int) -> bool:
    return bool(mode >> 23 & 1)


def _insert(old: Lanes, value: Lanes, shift: int, mask: int) -> Lanes:
    """Returns a register whose bits `mask` at `shift` are replaced."""
    return old & u32(~(mask << shift) & 0xFFFFFFFF) | value << shift


def _pack_fp8(name: str) -> Function:
    fmt = sf.FORMATS[name]

    def specialise(instruction: Instruction) -> Function:
        shift = 16 * (instruction.flag("opsel") >> 3 & 1)

        def pack(a: Lanes, b: Lanes, mode: int, old: Lanes) -> Lanes:
            low, high = (sf.encode(x.astype(f64), fmt, _saturates(mode)) for x in (a, b))
            return _insert(old, low | high << 8, shift, 0xFFFF)

        return pack

    return specialise


def _unpack_fp8(name: str, packed: bool) -> Function:
    """Returns an unpacking conversion. op_sel picks the byte (bit 0 is the upper bit) or the word; SDWA has picked
    already."""
    fmt = sf.FORMATS[name]

    def specialise(instruction: Instruction) -> Function:
        opsel = instruction.flag("opsel")
        shift = 16 * (opsel & 1) if packed else 8 * ((opsel & 1) * 2 + (opsel >> 1 & 1))

        def unpack(a: Lanes) -> Any:
            low = sf.decode(a >> shift & 0xFF, fmt).astype(f32)
            return (low, sf.decode(a >> shift + 8 & 0xFF, fmt).astype(f32)) if packed else low

        return unpack

    return specialise


for _name in ("fp8", "bf8"):
    _add(f"v_cvt_pk_{_name}_f32", "u<ffm", _pack_fp8(_name), specialise=True, old="preserve")
    _add(f"v_cvt_f32_{_name}", "f<u", _unpack_fp8(_name, packed=False), specialise=True)
    _add(f"v_cvt_pk_f32_{_name}", "ff<u", _unpack_fp8(_name, packed=True), specialise=True)

# -- scaled: float to small float


def _scaled_pack(name: str, source: str) -> Function:
    """Returns a conversion that writes two codes into the byte (FP4) or word (FP8) that op_sel picks. The rest of the
    register stays."""
    fmt = sf.FORMATS[name]

    def specialise(instruction: Instruction) -> Function:
        opsel = instruction.flag("opsel")
        shift = 8 * (opsel >> 2 & 3) if fmt.bits == 4 else 16 * (opsel >> 3 & 1)

        def codes(values: tuple[Lanes, Lanes], scale: Lanes, mode: int, old: Lanes) -> Lanes:
            low, high = (sf.encode(x, fmt, _saturates(mode), sf.scale_of_f32(scale)) for x in values)
            return _insert(old, low | high << fmt.bits, shift, (1 << 2 * fmt.bits) - 1)

        if source == "f32":
            return lambda a, b, scale, mode, old: codes((a.astype(f64), b.astype(f64)), scale, mode, old)
        return lambda a, scale, mode, old: codes(sf.halves(a, source), scale, mode, old)

    return specialise


def _scaled_unpack(name: str, result: str, packed: bool) -> Function:
    fmt = sf.FORMATS[name]

    def specialise(instruction: Instruction) -> Function:
        opsel = instruction.flag("opsel")
        shift = 16 * (opsel & 1) if packed and fmt.bits == 8 else 8 * (opsel & 3)
        mask = (1 << fmt.bits) - 1

        def value(word: Lanes, scale: Lanes, k: int) -> Lanes:
            return sf.decode(word >> shift + k * fmt.bits & mask, fmt) * sf.scale_of_f32(scale)

        if result == "f32":
            if packed:
                return lambda a, s: (value(a, s, 0).astype(f32), value(a, s, 1).astype(f32))
            return lambda a, s: value(a, s, 0).astype(f32)
        narrow = _narrow(result)
        if packed:
            return lambda a, s: sf.join(narrow(value(a, s, 0)), narrow(value(a, s, 1)))
        half = 16 * (opsel >> 3 & 1)
        return lambda a, s, old: _insert(old, narrow(value(a, s, 0)).astype(u32), half, 0xFFFF)

    return specialise


def _narrow(result: str) -> Function:
    """Returns float64 values as 16-bit codes (u16)."""
    if result == "f16":
        return sf.to_half
    return lambda x: sf.f32_to_bfloat(x.astype(f32))


for _name in ("fp8", "bf8", "fp4"):
    _pk = f"v_cvt_scalef32_pk_{_name}"
    _add(f"{_pk}_f32", "u<ffum", _scaled_pack(_name, "f32"), specialise=True, old="preserve")
    _add(f"v_cvt_scalef32_pk_f32_{_name}", "ff<uu", _scaled_unpack(_name, "f32", True), specialise=True)
    for _wide in ("f16", "bf16"):
        _add(f"{_pk}_{_wide}", "u<uum", _scaled_pack(_name, _wide), specialise=True, old="preserve")
        _add(f"v_cvt_scalef32_pk_{_wide}_{_name}", "u<uu", _scaled_unpack(_name, _wide, True), specialise=True)
for _name in ("fp8", "bf8"):
    _add(f"v_cvt_scalef32_f32_{_name}", "f<uu", _scaled_unpack(_name, "f32", False), specialise=True)
    _f16 = _scaled_unpack(_name, "f16", False)
    _add(f"v_cvt_scalef32_f16_{_name}", "u<uu", _f16, specialise=True, old="preserve")

# -- scaled: 32 elements at once, to and from FP6 (v_cvt_scalef32_2xpk16_*, v_cvt_scalef32_pk32_*)

_wide_row = partial(vector, TABLE, cross_lane=True)


def _pack32(values: Lanes, scale: Lanes, fmt: ElementFormat) -> Lanes:
    """Packs float64[lanes, 32] into six registers [6, lanes]."""
    codes = sf.encode(values, fmt, scale=sf.scale_of_f32(scale)[:, None]).astype(u8)
    return pack_bits(codes, fmt).view(u32).T


def _unpack32(words: Lanes, scale: Lanes, fmt: ElementFormat) -> Lanes:
    codes = unpack_bits(np.ascontiguousarray(words.T).view(u8), fmt)
    return sf.decode(codes, fmt) * sf.scale_of_f32(scale)[:, None]


def _from_two(fmt: ElementFormat) -> Function:
    """Returns a conversion of two operands of 16 float32, whose elements alternate."""

    def convert(active: Lanes, a: Lanes, b: Lanes, scale: Lanes) -> Lanes:
        values = np.stack((a.view(f32), b.view(f32)), 1).reshape(32, 64).T.astype(f64)
        return _pack32(values, np.broadcast_to(scale, 64), fmt)

    return convert


def _from_halves(fmt: ElementFormat, kind: str) -> Function:
    def convert(active: Lanes, a: Lanes, scale: Lanes) -> Lanes:
        low, high = sf.halves(a, kind)
        return _pack32(np.stack((low, high), 1).reshape(32, 64).T, np.broadcast_to(scale, 64), fmt)

    return convert


def _to(fmt: ElementFormat, kind: str) -> Function:
    def convert(active: Lanes, a: Lanes, scale: Lanes) -> Lanes:
        values = _unpack32(a, np.broadcast_to(scale, 64), fmt)
        return np.ascontiguousarray(values.astype(f32) if kind == "f32" else _narrow(kind)(values)).view(u32).T

    return convert


for _name in ("fp6", "bf6"):
    _fmt = sf.FORMATS[_name]
    _wide_row(f"v_cvt_scalef32_2xpk16_{_name}_f32", "w<xxu", _from_two(_fmt))
    _wide_row(f"v_cvt_scalef32_pk32_f32_{_name}", "y<wu", _to(_fmt, "f32"))
    for _kind in ("f16", "bf16"):
        _wide_row(f"v_cvt_scalef32_pk32_{_name}_{_kind}", "w<xu", _from_halves(_fmt, _kind))
        _wide_row(f"v_cvt_scalef32_pk32_{_kind}_{_name}", "x<wu", _to(_fmt, _kind))
