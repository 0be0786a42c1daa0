"""Operand kinds and modifiers: instructions with them, and what they then do, on a few plain operations."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from mxcomp.sim.instruction import Dpp, Instruction, Operand
from mxcomp.sim.semantics import VECTOR
from properties import exact
from properties.bench import Function, Row
from properties.exact import FORMATS, Number, rounded, to_bits, to_float
from properties.integer import signed
from properties.lanes import DPP
from properties.packed import clamp
from properties.rows import vector_instruction
from properties.small import SMALL

Case = tuple[Instruction, Row]

FLOATS = ("f16", "f32", "f64")


def instruction(name: str, **changes: Any) -> Instruction:
    return vector_instruction(name, VECTOR[name])._replace(**changes)


def _sources(i: Instruction, *changes: dict[str, Any]) -> Instruction:
    """Changes to the sources, one after another."""
    changed = tuple(source._replace(**change) for source, change in zip(i.src, changes, strict=True))
    return i._replace(src=changed)


# -- floats: |x|, then −x; multiplication and limits of the result


def _signs() -> Iterator[Case]:
    for kind, (negate, absolute) in itertools.product(FLOATS, itertools.product((False, True), repeat=2)):

        def modified(x: float, negate: bool = negate, absolute: bool = absolute) -> float:
            x = abs(x) if absolute else x
            return -x if negate else x

        fma: Function = lambda a, b, c, m=modified: exact.mad("f16")(m(a), b, m(c))  # noqa: E731
        change = {"negate": negate, "absolute": absolute}
        add: Function = lambda a, b, m=modified: exact.add(m(a), m(b))  # noqa: E731
        yield _sources(instruction(f"v_add_{kind}"), change, change), Row(f"{kind}<{kind} {kind}", add)
        if kind == "f16":
            yield _sources(instruction("v_mad_f16"), change, {}, change), Row("f16<f16 f16 f16", fma)


def _outputs() -> Iterator[Case]:
    for kind, omod, limited in itertools.product(FLOATS, range(4), (0, 1)):

        def result(a: float, b: float, kind: str = kind, omod: int = omod, limited: int = limited) -> Number:
            product = rounded(exact.multiply(a, b), kind)
            product = rounded(exact.multiply(product, (1.0, 2.0, 4.0, 0.5)[omod]), kind)
            return clamp(product) if limited else product

        i = instruction(f"v_mul_{kind}", fields={"omod": omod, "clmp": limited})
        yield i, Row(f"{kind}<{kind} {kind}", result)


# -- halves: op_sel of the sources, and bit 3 for the result, which then keeps its lower half


def _halves() -> Iterator[Case]:
    for low, high, into in itertools.product((0, 1), repeat=3):

        def merged(bits: int, old: int, into: int = into) -> int:
            return old & 0xFFFF | bits << 16 if into else bits

        def half(word: int, high: int) -> int:
            return word >> 16 * high & 0xFFFF

        def product(a: int, b: int, old: int, low: int = low, high: int = high, merged: Function = merged) -> int:
            x, y = to_float(half(a, low), "f16"), to_float(half(b, high), "f16")
            return merged(to_bits(exact.multiply(x, y), "f16"), old)

        def total(a: int, b: int, old: int, low: int = low, high: int = high, merged: Function = merged) -> int:
            return merged(half(a, low) + half(b, high) & 0xFFFF, old)

        for name, function in (("v_mul_f16", product), ("v_add_u16", total)):
            i = instruction(name, fields={"opsel": low | high << 1 | into << 3})
            yield _sources(i, {"high": bool(low)}, {"high": bool(high)}), Row("u32<u32 u32 old", function)


# -- SDWA: a byte (0–3), a word (4, 5) or all (6) of a source, zero- or sign-extended; likewise of the result

_PARTS = {0: (0, 8), 1: (8, 8), 2: (16, 8), 3: (24, 8), 4: (0, 16), 5: (16, 16), 6: (0, 32)}


def part(word: int, select: int, extend: bool) -> int:
    shift, width = _PARTS[select]
    field = word >> shift & (1 << width) - 1
    return signed(field, width) % 2**32 if extend else field


def placed(result: int, old: int, select: int, unused: int) -> int:
    """unused: 0 zeroes the other bits, 1 also extends the sign, 2 keeps them."""
    shift, width = _PARTS[select]
    field = (result & (1 << width) - 1) << shift
    if unused == 2:
        return old & ~(((1 << width) - 1) << shift) | field
    return signed(result, width) << shift if unused == 1 else field


def _sdwa() -> Iterator[Case]:
    choices = itertools.product(_PARTS, range(3), ((0, False), (1, True), (3, True), (4, True), (5, False), (6, False)))
    for select, unused, (sel, extend) in choices:

        def total(
            a: int, b: int, old: int, where: tuple[int, int] = (select, unused), what: tuple[int, bool] = (sel, extend)
        ) -> int:
            return placed((part(a, *what) + part(b, 6 - what[0], False)) % 2**32, old, *where)

        def product(
            a: int, b: int, old: int, where: tuple[int, int] = (select, unused), what: tuple[int, bool] = (sel, extend)
        ) -> int:
            x, y = to_float(part(a, *what) & 0xFFFF, "f16"), -to_float(part(b, 5, False), "f16")
            return placed(to_bits(exact.multiply(x, y), "f16"), old, *where)

        options: dict[str, Any] = {
            "sdwa": True,
            "encoding": "VOP2",
            "fields": {"dst_sel": select, "dst_unused": unused},
        }
        first = {"sel": sel, "signed": extend}
        i = _sources(instruction("v_add_u32", **options), first, {"sel": 6 - sel})
        yield i, Row("u32<u32 u32 old", total, encoding="VOP2")
        i = _sources(instruction("v_mul_f16", **options), first, {"sel": 5, "negate": True})
        yield i, Row("u32<u32 u32 old", product, encoding="VOP2")
    conversions: dict[str, tuple[Iterable[int], Function]] = {
        "v_cvt_f32_ubyte0": (range(4), float),
        "v_cvt_f32_f16": ((4, 5), lambda x: to_float(x, "f16")),
        "v_cvt_f32_fp8": (range(4), SMALL["fp8"].decode),
    }
    for name, (selectors, function) in conversions.items():
        for sel in selectors:
            i = instruction(name, sdwa=True, encoding="VOP1", fields={"dst_sel": 6, "dst_unused": 0})
            convert: Function = lambda a, s=sel, f=function: f(part(a, s, False))  # noqa: E731
            yield _sources(i, {"sel": sel}), Row("f32<u32", convert, encoding="VOP1")


# -- DPP: the first source comes from another lane


def exchanged(dpp: Dpp, operation: Function) -> Function:
    """Lanes whose row or bank is off keep their result; those without an active source too, or they read 0."""

    def whole(active: list[bool], *sources: list[int]) -> list[int]:
        first, *others, old = sources
        results = []
        for lane in range(64):
            source = DPP[dpp.control](lane)
            there = source is not None and active[source]
            enabled = dpp.row_mask >> lane // 16 & dpp.bank_mask >> lane // 4 % 4 & 1
            value = first[source] if there else 0
            on = enabled and (there or dpp.bound_control)
            results.append(operation(value, *(x[lane] for x in others)) if on else old[lane])
        return results

    return whole


def _dpp() -> Iterator[Case]:
    masks = itertools.cycle(((15, 15), (0b1011, 0b1110), (15, 0b0101), (0b0110, 15)))
    for control, bound in itertools.product(DPP, (False, True)):
        dpp = Dpp(control, *next(masks), bound)
        i = instruction("v_sub_u32", dpp=dpp, encoding="VOP2")
        yield i, Row("u32<u32 u32 old", exchanged(dpp, lambda a, b: a - b), whole=True, encoding="VOP2")
        i = instruction("v_mul_f16", dpp=dpp, encoding="VOP2")
        i = _sources(i, {"negate": True}, {"absolute": True})
        product: Function = lambda a, b: to_bits(exact.multiply(_half(-1, a), abs(_half(1, b))), "f16")  # noqa: E731
        yield i, Row("u32<u32 u32 old", exchanged(dpp, product), whole=True, encoding="VOP2")
        i = instruction("v_mov_b64", dpp=dpp, encoding="VOP1")
        yield i, Row("u64<u64 old", exchanged(dpp, lambda a: a), whole=True, encoding="VOP1")


def _half(sign: int, word: int) -> float:
    return sign * to_float(word & 0xFFFF, "f16")


# -- constants: integers and floats in the operand's type, and literals

_CONSTANTS: dict[int, int | float] = {
    128: 0,
    129: 1,
    192: 64,
    193: -1,
    208: -16,
    240: 0.5,
    243: -1.0,
    245: -2.0,
    247: -4.0,
}
_INVERSE_2PI = {"f16": 0x3118, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}


def constant_bits(code: int, kind: str, literal: int = 0) -> int:
    """Integers are sign-extended to the operand's width, floats have its type; float64 takes literals as upper half."""
    if code == 255:
        return literal << 32 if kind == "f64" else literal & (1 << int(kind[1:])) - 1
    float_kind = "f" + kind[1:]
    if code == 248:
        return _INVERSE_2PI[float_kind]
    value = _CONSTANTS[code]
    return to_bits(value, float_kind) if isinstance(value, float) else value & (1 << int(kind[1:])) - 1


def _constants() -> Iterator[Case]:
    operations: dict[str, tuple[str, Function]] = {
        "f16": ("v_add_f16", exact.add),
        "f32": ("v_add_f32", exact.add),
        "f64": ("v_add_f64", exact.add),
        "u32": ("v_add_u32", lambda a, b: a + b),
        "u16": ("v_add_u16", lambda a, b: a + b),
    }
    for kind, code in itertools.product(operations, (*_CONSTANTS, 248, 255)):
        name, function = operations[kind]
        literal = 0x4479F00D if code == 255 else 0
        raw = constant_bits(code, kind, literal)
        value = to_float(raw, kind) if kind in FORMATS else raw
        i = instruction(name)
        i = i._replace(src=(Operand(code, i.src[0].dwords, literal), i.src[1]))
        yield i, Row(f"{kind}<constant {kind}", lambda _, b, v=value, f=function: f(v, b))
    for kind in ("f32", "f64", "u32"):
        name, function = operations[kind]
        i = instruction(name)
        yield i._replace(src=(Operand(30, i.src[0].dwords), i.src[1])), Row(f"{kind}<{kind} {kind}", function)


def cases() -> dict[str, list[Case]]:
    kinds = {
        "signs": _signs,
        "outputs": _outputs,
        "halves": _halves,
        "sdwa": _sdwa,
        "dpp": _dpp,
        "constants": _constants,
    }
    return {name: list(make()) for name, make in kinds.items()}
