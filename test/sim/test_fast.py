"""The fast engine gives the NumPy engine's bits: every table row on random and special inputs, operand modifiers
included."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
from properties.rows import SCALAR_SOURCE, oracle, scalar_instruction, vector_instruction

from mxcomp.sim.fast import jit
from mxcomp.sim.fast.frame import MODE_SLOT, SCC_SLOT, SGPR_SLOTS, Env, Status
from mxcomp.sim.fast.kernel import NAME, Segment, interrupts, kernel_text
from mxcomp.sim.fast.matrix import forms, matrix_text
from mxcomp.sim.instruction import EXEC, Dpp, Instruction, MemoryOperands, Operand
from mxcomp.sim.semantics import SCALAR, VECTOR, unsupported
from mxcomp.sim.semantics.memory import ATOMICS, parse
from mxcomp.sim.semantics.table import VectorOp

SPECIAL = {
    2: (0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7FFF, 0xFFFF),
    4: (0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x3F800000, 0xBF800000, 0x3F000000, 0x4B000000, 0x477FF000,
        0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 31, 32, 0x38800000),
    8: (0, 1 << 63, 1, (1 << 52) - 1, 1 << 52, 0x3FF0000000000000, 0xBFF0000000000000, 0x7FEFFFFFFFFFFFFF,
        0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, (1 << 64) - 1, 0x41DFFFFFFFC00000, 63, 64),
}  # fmt: skip


@cache
def registers(seed: int, size: int) -> np.ndarray[Any, Any]:
    """uint32[512, 64] for operands of `size` bytes: a third random bits, a third special, a third near 1."""
    rng = np.random.default_rng((seed, size))
    kind = {2: np.uint16, 4: np.uint32, 8: np.uint64}[size]
    count = 512 * 64 * 4 // size
    random = rng.integers(0, 1 << 8 * size, count, dtype=kind)
    special = rng.choice(np.array(SPECIAL[size], kind), count)
    floats = {2: np.float16, 4: np.float32, 8: np.float64}[size]
    moderate = (rng.standard_normal(count) * 2.0 ** rng.integers(-3, 9, count)).astype(floats).view(kind)
    mixed = np.choose(rng.integers(0, 3, count), [random, special, moderate])
    if size == 8:
        low_high = mixed.view(np.uint32).reshape(256, 64, 2)
        return np.ascontiguousarray(low_high.transpose(0, 2, 1)).reshape(512, 64)
    return mixed.view(np.uint32).reshape(512, 64)


def variants(name: str, op: VectorOp) -> Iterator[Instruction]:
    """The instruction plain and with modifiers that its types allow."""
    plain = vector_instruction(name, op)
    yield plain
    if "v_cmp" in name or op.cross_lane:
        return
    scalar = Operand(SCALAR_SOURCE, plain.src[0].dwords) if op.src[0] in "uifUIdhHSbQ" else plain.src[0]
    yield plain._replace(src=(scalar, *plain.src[1:]))
    yield plain._replace(src=(Operand(244, plain.src[0].dwords), *plain.src[1:]))
    if op.specialise:
        for field in ("opsel", "opsel_hi", "neg", "neg_hi"):
            yield plain._replace(fields={field: 5})
        yield plain._replace(fields={"opsel": 10, "omod": 1, "abs": 6, "neg": 3})
    elif op.src[0] in "fdh" and op.dst[0] in "fdh":
        changed = tuple(o._replace(negate=k != 1, absolute=k != 0, high=k < 2) for k, o in enumerate(plain.src))
        yield plain._replace(src=changed, fields={"omod": 3, "clmp": 1, "opsel": 8})
    if op.clamped is not None or op.clamps:
        yield plain._replace(fields={"clmp": 1, "opsel_hi": 3})
    if op.dst in ("u", "f", "h", "H") and op.src[0] in "uifhHS" and not op.old and not op.specialise:
        sdwa = tuple(o._replace(sel=(1, 5)[k % 2], signed=k == 0) for k, o in enumerate(plain.src))
        for unused in range(3):
            yield plain._replace(encoding="VOP2", sdwa=True, src=sdwa, fields={"dst_sel": 2, "dst_unused": unused})
        for control in (0x111, 0x142):
            for bound in (False, True):
                yield plain._replace(encoding="VOP2", dpp=Dpp(control, 0xB, 0xE, bound))


class Bench:
    """Instructions compiled together, each of which can be run alone."""

    def __init__(self, instructions: Iterable[Instruction]) -> None:
        self.instructions: list[Instruction] = []
        parts: list[Segment] = []
        for number, i in enumerate(instructions):
            placed = i._replace(offset=64 * number)
            barrier = Instruction(placed.end, 4, "s_barrier", "SOPP")
            self.instructions.append(placed)
            for segment in ((placed,), (barrier,)) if interrupts(i) else ((placed, barrier),):
                parts.append(Segment(len(parts), segment))
        self._counts = np.zeros((len(parts), 2), np.int64)
        texts = [kernel_text(parts), *map(matrix_text, forms(self.instructions))]
        self._library = jit.Compiled(map(jit.compile_module, texts), NAME)
        self._call = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(self._library.address)

    def run(
        self, i: Instruction, vectors: np.ndarray[Any, Any], scalars: np.ndarray[Any, Any],
        lds: np.ndarray[Any, Any] | None = None,
    ) -> None:  # fmt: skip
        env = np.zeros(len(Env), np.int64)
        if lds is not None:
            env[Env.LDS], env[Env.LDS_BYTES] = lds.ctypes.data, lds.nbytes
        env[Env.PC], env[Env.BUDGET], env[Env.COUNTS] = i.offset, 2, self._counts.ctypes.data
        assert self._call(vectors.ctypes.data, scalars.ctypes.data, env.ctypes.data) == Status.BARRIER


def check(bench: Bench, seed: int = 0, rounds: int = 3) -> None:
    """Runs every instruction on both sides; lists all that differ."""
    rng = np.random.default_rng(seed)
    wrong: list[str] = []
    for i in bench.instructions:
        for number in range(rounds):
            op = VECTOR.get(i.mnemonic)
            letters = "" if op is None else op.src + op.dst
            size = 8 if any(x in letters for x in "UId") else 2 if any(x in letters for x in "HShbP") else 4
            vectors = registers(seed + number % 3, size).copy()  # making them takes longer than running the instruction
            scalars = np.zeros(SGPR_SLOTS, np.uint32)
            scalars[:128] = np.where(rng.random(128) < 0.5, rng.integers(0, 1 << 32, 128), rng.choice(SPECIAL[4], 128))
            scalars[EXEC : EXEC + 2] = 0xFFFFFFFF if number % 2 else rng.integers(0, 1 << 32, 2)
            scalars[SCC_SLOT] = number >> 1 & 1
            scalars[MODE_SLOT] = (number & 1) << 23
            expected_vectors, expected_scalars = vectors.copy(), scalars.copy()
            before = vectors.copy()
            oracle(i, expected_vectors, expected_scalars)
            bench.run(i, vectors, scalars)
            if not (np.array_equal(vectors, expected_vectors) and np.array_equal(scalars, expected_scalars)):
                wrong.append(f"{i} {i.src} {i.dpp}: {difference(before, vectors, expected_vectors)} {scalars[50:52]}")
                break
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:40])


def difference(before: np.ndarray[Any, Any], found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> str:
    rows, lanes = np.nonzero(found != expected)
    if not len(rows):
        return "scalars"
    row, lane = int(rows[0]), int(lanes[0])
    sources = " ".join(f"{x:08x}" for x in before[:6, lane])
    return f"v{row} lane {lane}: {found[row, lane]:08x}, expected {expected[row, lane]:08x} from {sources}"


def compiled(names: Iterable[str], modified: int = 1) -> list[Instruction]:
    """Instructions, one in `modified` of them with modifiers as well: what these do is not each instruction's own."""
    found: list[Instruction] = []
    for k, name in enumerate(names):
        found += islice(variants(name, VECTOR[name]), None if k % modified == 0 else 1)
    return [i for i in found if unsupported(i) is None and not interrupts(i)]


@pytest.mark.parametrize("part", range(4))
def test_vector_rows(part: int) -> None:
    check(Bench(compiled(list(VECTOR)[part::4], modified=6)))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_vector_rows_with_all_modifiers(part: int) -> None:
    check(Bench(compiled(list(VECTOR)[part::6])), seed=1)


def test_scalar_rows() -> None:
    check(Bench(scalar_instruction(name, op) for name, op in SCALAR.items()), rounds=40)


def test_what_the_oracle_does() -> None:
    """Nothing else is left out of the compiler."""
    left = {name for name, op in VECTOR.items() if interrupts(vector_instruction(name, op))}
    allowed = ("v_exp_", "v_log_", "v_sin_", "v_cos_", "v_cvt_scalef32_2xpk16_", "v_cvt_scalef32_pk32_")
    assert all(name.startswith(allowed) for name in left), left


def test_integer_atomics() -> None:
    """Lanes one after another, four of them on each dword of LDS; old values are returned."""
    names = [f"ds_{name}_rtn_{kind}" for kind, each in (
        ("u32", "add sub rsub inc dec min max"), ("i32", "min max"), ("b32", "and or xor"),
    ) for name in each.split()] + ["ds_wrxchg_rtn_b32"]  # fmt: skip
    address, data, result = (Operand(256 + k) for k in range(3))
    bench = Bench(
        Instruction(
            0, 8, name, "DS", (result,), (address, data),
            memory=MemoryOperands(op, address=address, data=data, result=result),
        )
        for name in names if (op := parse(name))
    )  # fmt: skip
    for i in bench.instructions:
        assert i.memory is not None
        op = i.memory.op
        vectors, scalars = registers(3, 4).copy(), np.zeros(SGPR_SLOTS, np.uint32)
        vectors[0], lds = np.arange(64) // 4 * 4, registers(4, 4)[0, :16].copy()
        scalars[EXEC : EXEC + 2] = 0xFFFFFFFF, 0x7FFFFFFF
        expected, old = lds.copy(), vectors[2].copy()
        for lane in range(63):
            before, x = int(expected[lane // 4]), int(vectors[1, lane])
            expected[lane // 4], old[lane] = ATOMICS[op.atomic](before, x, 4) & 0xFFFFFFFF, before
        bench.run(i, vectors, scalars, lds)
        assert np.array_equal(lds, expected) and np.array_equal(vectors[2], old), i.mnemonic
