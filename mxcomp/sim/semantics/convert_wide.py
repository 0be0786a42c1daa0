"""Scaled conversions of 32 elements at once, to and from FP6 (v_cvt_scalef32_2xpk16_*, v_cvt_scalef32_pk32_*)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mxcomp.formats import ElementFormat
from mxcomp.sim.semantics import small_floats as sf
from mxcomp.sim.semantics.table import Lanes, VectorTable, f32, f64, u8, u32, vector

Function = Callable[..., Any]

TABLE: VectorTable = {}
_add = partial(vector, TABLE, cross_lane=True)


def _pack(values: Lanes, scale: Lanes, fmt: ElementFormat) -> Lanes:
    """Packs float64[lanes, 32] into six registers [6, lanes]."""
    codes = sf.encode(values, fmt, scale=sf.scale_of_f32(scale)[:, None]).astype(u8)
    bits = np.unpackbits(codes[:, :, None], axis=2, bitorder="little")[:, :, :6].reshape(len(codes), 192)
    return np.packbits(bits, axis=1, bitorder="little").view(u32).T


def _unpack(words: Lanes, scale: Lanes, fmt: ElementFormat) -> Lanes:
    raw = np.ascontiguousarray(words.T).view(u8)
    bits = np.unpackbits(raw, axis=1, bitorder="little").reshape(64, 32, 6)
    codes = (bits << np.arange(6, dtype=u8)).sum(2)
    return sf.decode(codes, fmt) * sf.scale_of_f32(scale)[:, None]


def _from_two(fmt: ElementFormat) -> Function:
    """Returns a conversion of two operands of 16 float32, whose elements alternate."""

    def convert(active: Lanes, a: Lanes, b: Lanes, scale: Lanes) -> Lanes:
        values = np.stack((a.view(f32), b.view(f32)), 1).reshape(32, 64).T.astype(f64)
        return _pack(values, np.broadcast_to(scale, 64), fmt)

    return convert


def _from_halves(fmt: ElementFormat, kind: str) -> Function:
    def convert(active: Lanes, a: Lanes, scale: Lanes) -> Lanes:
        low, high = sf.halves(a, kind)
        return _pack(np.stack((low, high), 1).reshape(32, 64).T, np.broadcast_to(scale, 64), fmt)

    return convert


def _to(fmt: ElementFormat, kind: str) -> Function:
    def convert(active: Lanes, a: Lanes, scale: Lanes) -> Lanes:
        values = _unpack(a, np.broadcast_to(scale, 64), fmt)
        if kind == "f32":
            return values.astype(f32).view(u32).T
        narrow = sf.to_half(values) if kind == "f16" else sf.f32_to_bfloat(values.astype(f32))
        return np.ascontiguousarray(narrow).view(u32).T

    return convert


for _name in ("fp6", "bf6"):
    _fmt = sf.FORMATS[_name]
    _add(f"v_cvt_scalef32_2xpk16_{_name}_f32", "w<xxu", _from_two(_fmt))
    _add(f"v_cvt_scalef32_pk32_f32_{_name}", "y<wu", _to(_fmt, "f32"))
    for _kind in ("f16", "bf16"):
        _add(f"v_cvt_scalef32_pk32_{_name}_{_kind}", "w<xu", _from_halves(_fmt, _kind))
        _add(f"v_cvt_scalef32_pk32_{_kind}_{_name}", "x<wu", _to(_fmt, _kind))
