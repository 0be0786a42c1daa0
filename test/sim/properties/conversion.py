"""What the conversions do: integers and floats, 16-bit pairs, and the small floats of the scaled family."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import partial

from properties import exact
from properties.bench import Function, Table, rows
from properties.exact import Number, to_bits, to_float
from properties.integer import saturate, signed
from properties.small import SMALL

TABLE: Table = {}
_add = partial(rows, TABLE)


def _to_int(x: Number, low: int, high: int, rounding: Function = math.trunc) -> int:
    """Saturates; NaN gives 0."""
    if x != x:
        return 0
    return saturate(rounding(x), low, high) if math.isfinite(x) else high if x > 0 else low


_U32, _I32 = (0, 2**32 - 1), (-(2**31), 2**31 - 1)


def _nearest_up(x: Number) -> int:
    return math.floor(Fraction(x) + Fraction(1, 2))


for _t in ("u32", "i32"):
    _limits = _U32 if _t == "u32" else _I32
    _add(f"v_cvt_f32_{_t}", f"f32<{_t}", Fraction)
    _add(f"v_cvt_f64_{_t}", f"f64<{_t}", Fraction)
    for _f in ("f32", "f64"):
        _add(f"v_cvt_{_t}_{_f}", f"{_t}<{_f}", lambda x, limits=_limits: _to_int(x, *limits))
_add("v_cvt_rpi_i32_f32", "i32<f32", lambda x: _to_int(x, *_I32, _nearest_up))
_add("v_cvt_flr_i32_f32", "i32<f32", lambda x: _to_int(x, *_I32, math.floor))
for _t, _limits in (("u16", (0, 2**16 - 1)), ("i16", (-(2**15), 2**15 - 1))):
    _add(f"v_cvt_f16_{_t}", f"f16<{_t}", Fraction)
    _add(f"v_cvt_{_t}_f16", f"{_t}<f16", lambda x, limits=_limits: _to_int(x, *limits))
for _to, _from in (("f64", "f32"), ("f32", "f64"), ("f16", "f32"), ("f32", "f16"), ("f32", "bf16")):
    _add(f"v_cvt_{_to}_{_from}", f"{_to}<{_from}", lambda x: x)
_add("v_cvt_off_f32_i4", "f32<u32", lambda a: Fraction(signed(a, 4), 16))
for _k in range(4):
    _add(f"v_cvt_f32_ubyte{_k}", "f32<u32", lambda a, k=_k: Fraction(a.to_bytes(4, "little")[k]))

# -- pairs


def _pair(narrow: Function) -> Function:
    return lambda a, b: narrow(a) & 0xFFFF | (narrow(b) & 0xFFFF) << 16


def _norm(low: int, high: int) -> Function:
    """Fixed point with 1.0 at `high`."""
    return _pair(lambda x: _to_int(Fraction(x) * high if math.isfinite(x) else x, low, high, round))


_add("v_cvt_pk_bf16_f32", "u32<f32 f32", _pair(lambda x: to_bits(x, "bf16")))
_add("v_cvt_pk_f16_f32", "u32<f32 f32", _pair(lambda x: to_bits(x, "f16")))
_add("v_cvt_pkrtz_f16_f32", "u32<f32 f32", _pair(lambda x: to_bits(x, "f16", towards_zero=True)))
_add("v_cvt_pknorm_i16_f32", "u32<f32 f32", _norm(-32767, 32767))
_add("v_cvt_pknorm_u16_f32", "u32<f32 f32", _norm(0, 65535))


def _insert(old: int, value: int, shift: int, width: int) -> int:
    mask = (1 << width) - 1
    return old & ~(mask << shift) | (value & mask) << shift


_byte: Function = lambda x, at, old: _insert(old, _to_int(x, 0, 255, round), 8 * (at % 4), 8)  # noqa: E731
_add("v_cvt_pk_u8_f32", "u32<f32 u32 u32", _byte)

# -- small floats


def _scale(word: int, by: Number, sign: int) -> Number:
    """Times 2**(± exponent field − 127); field 255 is NaN."""
    field = word >> 23 & 0xFF
    return math.copysign(math.nan, by) if field == 255 else exact.scale(float(by), sign * (field - 127))


def _fp8(name: str) -> None:
    """Without a scale."""
    fmt = SMALL[name]

    def pack(fields: Mapping[str, int]) -> Function:
        def packed(a: float, b: float, saturates: int, old: int) -> int:
            both = fmt.encode(a, bool(saturates)) | fmt.encode(b, bool(saturates)) << 8
            return _insert(old, both, 16 * (fields["opsel"] >> 3), 16)

        return packed

    _add(f"v_cvt_pk_{name}_f32", "u32<f32 f32 mode u32", pack, fields=({"opsel": 0}, {"opsel": 8}))
    _add(f"v_cvt_f32_{name}", "f32<u32", lambda a: fmt.decode(a & 0xFF))
    _add(f"v_cvt_pk_f32_{name}", "f32 f32<u32", lambda a: (fmt.decode(a & 0xFF), fmt.decode(a >> 8 & 0xFF)))


def _scaled(name: str) -> None:
    """op_sel picks a word for FP8 pairs, a byte for FP4 pairs: bits 0 and 1 of a source, 2 and 3 of the result."""
    fmt = SMALL[name]
    each = (1 << fmt.bits) - 1
    places = [16 * k for k in (0, 1)] if fmt.bits == 8 else [8 * k for k in range(4)]
    into = tuple({"opsel": k << 3 if fmt.bits == 8 else k << 2, "shift": p} for k, p in enumerate(places))
    out = tuple({"opsel": k, "shift": p} for k, p in enumerate(places))

    def packed(values: tuple[float, float], scale: int, mode: int, old: int, shift: int) -> int:
        low, high = (fmt.encode(_scale(scale, x, -1), bool(mode)) for x in values)
        return _insert(old, low | high << fmt.bits, shift, 2 * fmt.bits)

    def pack_f32(fields: Mapping[str, int]) -> Function:
        return lambda a, b, scale, mode, old: packed((a, b), scale, mode, old, fields["shift"])

    def pack_pair(kind: str) -> Function:
        def of(fields: Mapping[str, int]) -> Function:
            return lambda a, s, mode, old: packed(
                (to_float(a & 0xFFFF, kind), to_float(a >> 16, kind)), s, mode, old, fields["shift"]
            )

        return of

    def values(word: int, scale: int, shift: int) -> tuple[Number, Number]:
        low, high = (_scale(scale, fmt.decode(word >> shift + k & each), 1) for k in (0, fmt.bits))
        return low, high

    def unpack(fields: Mapping[str, int]) -> Function:
        return lambda a, s: values(a, s, fields["shift"])

    def unpack_pair(kind: str) -> Function:
        return lambda fields: lambda a, s: _pair(lambda x: to_bits(x, kind))(*values(a, s, fields["shift"]))

    family = "v_cvt_scalef32_pk"
    _add(f"{family}_{name}_f32", "u32<f32 f32 u32 mode u32", pack_f32, fields=into)
    _add(f"{family}_f32_{name}", "f32 f32<u32 u32", unpack, fields=out)
    for kind in ("f16", "bf16"):
        _add(f"{family}_{name}_{kind}", "u32<u32 u32 mode u32", pack_pair(kind), fields=into)
        _add(f"{family}_{kind}_{name}", "u32<u32 u32", unpack_pair(kind), fields=out)


def _single(name: str) -> None:
    fmt = SMALL[name]

    def value(a: int, s: int, opsel: int) -> Number:
        return _scale(s, fmt.decode(a >> 8 * (opsel & 3) & 0xFF), 1)

    def into_half(fields: Mapping[str, int]) -> Function:
        opsel = fields["opsel"]
        return lambda a, s, old: _insert(old, to_bits(value(a, s, opsel), "f16"), 16 * (opsel >> 3), 16)

    every = tuple({"opsel": k} for k in (0, 1, 2, 3, 9, 10))
    _add(f"v_cvt_scalef32_f32_{name}", "f32<u32 u32", lambda f: lambda a, s: value(a, s, f["opsel"]), fields=every[:4])
    _add(f"v_cvt_scalef32_f16_{name}", "u32<u32 u32 u32", into_half, fields=every)


def _parts(word: int, bits: int, count: int) -> list[int]:
    return [word >> bits * k & (1 << bits) - 1 for k in range(count)]


def _joined(parts: list[int], bits: int) -> int:
    return sum(part << bits * k for k, part in enumerate(parts))


def _wide(name: str) -> None:
    """32 elements of six bits; register ranges are one long integer."""
    fmt = SMALL[name]

    def pack(kind: str) -> Function:
        width = exact.FORMATS[kind].bits

        def packed(elements: list[int], scale: int) -> int:
            return _joined([fmt.encode(_scale(scale, to_float(x, kind), -1), True) for x in elements], 6)

        if kind != "f32":
            return lambda a, scale: packed(_parts(a, width, 32), scale)

        def alternating(a: int, b: int, scale: int) -> int:
            pairs = zip(_parts(a, 32, 16), _parts(b, 32, 16), strict=True)
            return packed([x for pair in pairs for x in pair], scale)

        return alternating

    def unpack(kind: str) -> Function:
        def values(a: int, scale: int) -> int:
            elements = [to_bits(_scale(scale, fmt.decode(code), 1), kind) for code in _parts(a, 6, 32)]
            return _joined(elements, exact.FORMATS[kind].bits)

        return values

    _add(f"v_cvt_scalef32_2xpk16_{name}_f32", "u192<u512 u512 u32", pack("f32"))
    _add(f"v_cvt_scalef32_pk32_f32_{name}", "u1024<u192 u32", unpack("f32"))
    for kind in ("f16", "bf16"):
        _add(f"v_cvt_scalef32_pk32_{name}_{kind}", "u192<u512 u32", pack(kind))
        _add(f"v_cvt_scalef32_pk32_{kind}_{name}", "u512<u192 u32", unpack(kind))


for _name in ("fp8", "bf8"):
    _fp8(_name)
    _single(_name)
for _name in ("fp8", "bf8", "fp4"):
    _scaled(_name)
for _name in ("fp6", "bf6"):
    _wide(_name)
