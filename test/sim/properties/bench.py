"""Runs rows of the tables on the NumPy engine and compares everything they leave with a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.fast.frame import MODE_SLOT, SCC_SLOT, SGPR_SLOTS
from mxcomp.sim.instruction import EXEC, SCC, Instruction, Operand
from mxcomp.sim.semantics import SCALAR, VECTOR
from properties.rows import oracle, scalar_instruction, vector_instruction
from properties.values import NO_OPERAND, decode, distance, dwords, encode, parse, random_bits, size

Function = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """What an instruction does, by definition.

    A result None claims nothing.

    Attributes:
        signature: Types of results and sources in the notation of `values`; an old result that counts is a source, the
            last one.
        function: Values of one lane (or of a scalar instruction) to the result, or a tuple of results.
        fields: Settings of bit fields to try; the function then is one from the fields to the function proper.
        ulp: How far a float result may be off, in representable numbers.
        whole: The function gets EXEC as a list of bool, and lists of 64 values; its results are such lists, or SGPRs.
        every_lane: EXEC does not matter for what is written.
        encoding: AMD's name, where it makes a difference.
    """

    signature: str
    function: Function
    fields: tuple[Mapping[str, int], ...] = ()
    ulp: int = 0
    whole: bool = False
    every_lane: bool = False
    encoding: str = "VOP3"


Table = dict[str, Row]


def rows(table: Table, names: str, signature: str, function: Function, **options: Any) -> None:
    """Adds the same row for every name."""
    for name in names.split():
        assert name not in table, name
        table[name] = Row(signature, function, **options)


@dataclass(frozen=True)
class State:
    """Registers.

    Attributes:
        vectors: uint32[512, 64].
        scalars: uint32, SGPRs by operand code, then SCC and MODE.
    """

    vectors: NDArray[np.uint32]
    scalars: NDArray[np.uint32]

    @classmethod
    def random(cls, rng: np.random.Generator, partial: bool) -> State:
        """EXEC has all lanes, or with `partial` any."""
        scalars = np.zeros(SGPR_SLOTS, np.uint32)
        scalars[:128] = rng.integers(0, 1 << 32, 128)
        scalars[SCC_SLOT] = rng.integers(2)
        scalars[MODE_SLOT] = int(rng.integers(2)) << 23
        if not partial:
            scalars[EXEC : EXEC + 2] = 0xFFFFFFFF
        return cls(np.tile(rng.integers(0, 1 << 32, 64, dtype=np.uint32), (512, 1)), scalars)

    def copy(self) -> State:
        return State(self.vectors.copy(), self.scalars.copy())

    def scalar(self, operand: Operand) -> int:
        if operand.code == SCC:
            return int(self.scalars[SCC_SLOT])
        words = self.scalars[operand.code : operand.code + operand.dwords]
        return sum(int(word) << 32 * k for k, word in enumerate(words))

    def lane(self, operand: Operand, lane: int) -> int:
        """The bits an operand has in a lane; a mask has one."""
        if not operand.is_vgpr:
            return self.scalar(operand)
        words = self.vectors[operand.vgpr : operand.vgpr + operand.dwords, lane].tolist()
        return sum(int(word) << 32 * k for k, word in enumerate(words))

    def put(self, operand: Operand, bits: int, lane: int | None = None) -> None:
        if operand.code == SCC:
            self.scalars[SCC_SLOT] = bits
            return
        for k in range(operand.dwords):
            word = bits >> 32 * k & 0xFFFFFFFF
            if operand.is_vgpr:
                self.vectors[operand.vgpr + k, slice(None) if lane is None else lane] = word
            else:
                self.scalars[operand.code + k] = word

    def active(self) -> list[bool]:
        mask = self.scalar(Operand(EXEC, 2))
        return [bool(mask >> lane & 1) for lane in range(64)]


def fill(state: State, operands: list[tuple[str, Operand]], rng: np.random.Generator) -> None:
    """Test values into the sources; later operands sometimes repeat or negate the first."""
    first: list[int] | None = None
    for kind, operand in operands:
        if operand.code in (SCC, EXEC) or kind == "constant":
            continue
        count = 64 if operand.is_vgpr else 1
        wide = kind[0] in "ui" and size(kind) > 64
        values = [int.from_bytes(rng.bytes(size(kind) // 8), "little") for _ in range(count)] if wide else None
        values = values or random_bits(rng, kind if kind not in ("mask", "sgpr") else f"u{size(kind)}", count)
        if first is not None and len(first) == count:
            repeated = rng.random(count) < 1 / 16
            top = int(rng.integers(2)) << size(kind) - 1
            values = [x ^ top if again else y for x, y, again in zip(first, values, repeated, strict=True)]
        first = first or values
        junk = int(rng.integers(1 << 16)) << 16 if size(kind) == 16 else 0  # the half that is not read
        for lane, value in enumerate(values):
            state.put(operand, value | junk, lane if operand.is_vgpr else None)


def check_vector(name: str, row: Row, seed: int = 0, rounds: int = 2) -> str | None:
    """What differs first between the instruction and the reference, or None."""
    for fields in row.fields or ({},):
        plain = vector_instruction(name, VECTOR[name], fields=dict(fields))
        i = plain._replace(encoding=row.encoding)
        function = row.function(fields) if row.fields else row.function
        for number in range(max(2, rounds // max(1, len(row.fields) // 3))):
            rng = np.random.default_rng((seed, number, *name.encode()))
            problem = check_instruction(i, replace(row, function=function), rng, partial=number % 2 == 1)
            if problem is not None:
                return f"{name} {dict(fields) or ''}: {problem}"
    return None


def check_instruction(i: Instruction, row: Row, rng: np.random.Generator, partial: bool) -> str | None:
    """One wave of test values; `i` may have any operands and modifiers, the row's function then includes them."""
    results, sources = parse(row.signature)
    kinds = [kind for kind in sources if kind not in NO_OPERAND]
    assert len(kinds) == len(i.src), f"{i.mnemonic}: {len(i.src)} sources"
    assert [dwords(kind) for kind in results] == [x.dwords for x in i.dst[: len(results)]], f"{i.mnemonic}: results"
    before = State.random(rng, partial)
    fill(before, list(zip(kinds, i.src, strict=True)), rng)
    after, wanted = before.copy(), before.copy()
    oracle(i, after.vectors, after.scalars)
    operands = iter(i.src)
    values = [_values(before, i, kind, None if kind in NO_OPERAND else next(operands)) for kind in sources]
    active = before.active()
    found = row.function(active, *values) if row.whole else _by_lane(row.function, values, active, len(results))
    for operand, kind, result in zip(i.dst, results, found if len(results) > 1 else (found,), strict=False):
        _expect(wanted, after, operand, kind, result, [True] * 64 if row.every_lane else active)
    if len(i.dst) > len(results):  # v_cmpx: EXEC too
        wanted.put(i.dst[-1], wanted.scalar(i.dst[0]))
    return difference(i, row, before, after, wanted)


def _values(state: State, i: Instruction, kind: str, operand: Operand | None) -> list[Any]:
    """One value per lane."""
    if kind == "constant":
        return [None] * 64
    if kind == "lane":
        return list(range(64))
    if kind == "mode":
        return [int(state.scalars[MODE_SLOT]) >> 23 & 1] * 64
    bits = [state.lane(operand or i.dst[0], lane) for lane in range(64)]
    if operand is None:
        return bits
    return [x >> lane & 1 for lane, x in enumerate(bits)] if kind == "mask" else [decode(x, kind) for x in bits]


def _by_lane(function: Function, values: list[list[Any]], active: list[bool], count: int) -> Any:
    none = 0 if count == 1 else (0,) * count
    results = [function(*lane) if on else none for on, *lane in zip(active, *values, strict=True)]
    return results if count == 1 else tuple(zip(*results, strict=True))


def _expect(wanted: State, after: State, operand: Operand, kind: str, result: Any, active: list[bool]) -> None:
    if kind == "mask":
        wanted.put(operand, sum(1 << lane for lane in range(64) if active[lane] and result[lane]))
    elif not operand.is_vgpr:
        wanted.put(operand, encode(result, kind))
    else:
        for lane in range(64):
            if active[lane]:
                unknown = result[lane] is None
                wanted.put(operand, after.lane(operand, lane) if unknown else encode(result[lane], kind), lane)


def difference(i: Instruction, row: Row, before: State, after: State, wanted: State) -> str | None:
    for at in np.flatnonzero(after.scalars != wanted.scalars).tolist():
        return f"s{at} is {after.scalars[at]:#x}, not {wanted.scalars[at]:#x}"
    kinds = {operand.vgpr: kind for operand, kind in zip(i.dst, parse(row.signature)[0], strict=False)}
    for register, lane in np.argwhere(after.vectors != wanted.vectors).tolist():
        got, right = int(after.vectors[register, lane]), int(wanted.vectors[register, lane])
        kind = kinds.get(register, "u32")
        if row.ulp and kind[0] == "f":
            operand = next(x for x in i.dst if x.vgpr <= register < x.vgpr + x.dwords)
            if distance(after.lane(operand, lane), wanted.lane(operand, lane), kind) <= row.ulp:
                continue
        sources = ", ".join(f"{before.lane(x, lane):#x}" for x in i.src if x.is_vgpr or x.is_sgpr)
        return f"v{register} lane {lane} is {got:#010x}, not {right:#010x}, from {sources}"
    return None


def check_scalar(name: str, row: Row, count: int) -> str | None:
    rng = np.random.default_rng(list(name.encode()))
    i = scalar_instruction(name, SCALAR[name])
    results, sources = parse(row.signature)
    for _ in range(count):
        before = State.random(rng, partial=True)
        fill(before, list(zip(sources, i.src, strict=True)), rng)
        after, wanted = State(before.vectors, before.scalars.copy()), State(before.vectors, before.scalars.copy())
        oracle(i, after.vectors, after.scalars)
        values = [decode(before.scalar(operand), kind) for kind, operand in zip(sources, i.src, strict=True)]
        found = row.function(*values)
        for operand, kind, result in zip(i.dst, results, found if len(results) > 1 else (found,), strict=True):
            wanted.put(operand, encode(result, kind))
        for at in np.flatnonzero(after.scalars != wanted.scalars).tolist():
            return f"{name} {values}: s{at} is {after.scalars[at]:#x}, not {wanted.scalars[at]:#x}"
    return None
