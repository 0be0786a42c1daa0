"""Packed parameters that are stored in another order than is needed, or hold more than an operand."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from modules import KINDS, Bytes
from parts import (
    NAMES,
    Part,
    Recipe,
    Weights,
    expert,
    in_bytes,
    padded,
    reshaped,
    straddling,
    strided,
    transposed,
    typed,
    width,
    within_bytes,
)

import mxcomp
from mxcomp.compiler import Program
from mxcomp.layout import OPERAND_NAMES
from mxcomp.layout.inner_tiles import MFMA
from mxcomp.packing import parameter_operand
from mxcomp.packing.origins import Bits, NotStoredError
from mxcomp.run import runtime
from mxcomp.weights import checkpoint
from mxcomp.weights.checkpoint import Checkpoint, Tensor
from mxcomp.weights.manifest import Packing

FP4, FP6, FP8 = "f4E2M1FN", "f6E3M2FN", "f8E4M3FN"


def compiled(weights: Weights, packed: bool = True, compile_to: str = "end") -> Program:
    return mxcomp.compile(weights.text(), packed_parameters=packed, compile_to=compile_to)


def archive(program: Program, weights: Weights) -> Mapping[str, Bytes]:
    found = Checkpoint({name: Tensor(data) for name, data in weights.tensors.items()})
    return checkpoint.pack(program.report.manifest, found)


def expected(weights: Weights, packing: Packing) -> Bytes:
    """Packed codes of an operand; how one matrix is packed, other tests know."""
    i, tiles = NAMES.index(packing.source), OPERAND_NAMES.index(packing.operand)
    codes = weights.codes[i]
    if i < 2:
        bits = np.unpackbits(codes[..., None], axis=-1, count=width(packing.element), bitorder="little")
        columns = packing.k // MFMA.lane_unit(packing.element)
        codes = np.packbits(bits.reshape(*codes.shape[:2], columns, -1), axis=-1, bitorder="little")
    codes = np.broadcast_to(codes, (weights.batch, (weights.m, weights.n)[i % 2], *codes.shape[2:]))
    swizzle = packing.tiles.packing(tiles, packing.element if i < 2 else None)
    return np.stack([swizzle.pack(matrix) for matrix in codes])


ALWAYS = {
    "rows innermost, 6 bits": Weights(16, 40, 96, orders=("rki", "kir", "rk", "kr"), types=(FP4, FP6)),
    "a batch of K/32, scales of one": Weights(16, 40, 96, batch=2, orders=("brki", "bkri", "brk", "rk")),
    "LHS": Weights(16, 40, 96, orders=("kri", "rki", "kr", "rk"), recipes=(expert, None, strided, None)),
}
SELDOM = {
    "shared scales": Weights(16, 40, 96, orders=("rki", "rki", "rk", "k")),
    "an expert in bytes": Weights(16, 40, 96, recipes=(None, in_bytes, None, in_bytes)),
    "K/32 outermost": Weights(16, 40, 96, orders=("rki", "kri", "rk", "kr")),
    "an expert": Weights(16, 40, 96, recipes=(None, expert, None, expert)),
    "strides, 8 bits": Weights(16, 40, 96, recipes=(None, strided, None, strided), types=(FP6, FP8)),
    "rows innermost": Weights(16, 40, 96, orders=("rki", "kir", "rk", "kr")),
    "blocks innermost": Weights(16, 40, 64, orders=("rki", "irk", "rk", "rk"), types=(FP8, FP4)),
    "an expert, 6 bits": Weights(16, 40, 96, recipes=(None, expert, None, expert), types=(FP8, FP6)),
    "an expert, 8 bits": Weights(16, 40, 96, recipes=(None, expert, None, expert), types=(FP4, FP8)),
    "an expert in another order": Weights(
        16, 40, 96, orders=("rki", "kir", "rk", "kr"), recipes=(None, expert, None, expert)
    ),
    "within bytes": Weights(16, 40, 96, recipes=(None, within_bytes, None, typed), types=(FP4, FP6)),
    "within bytes in another order": Weights(
        16, 40, 96, orders=("rki", "kir", "rk", "rk"), recipes=(None, within_bytes, None, typed), types=(FP4, FP6)
    ),
    "strides": Weights(16, 40, 96, recipes=(None, strided, None, strided)),
    "reshaped": Weights(16, 40, 96, recipes=(None, reshaped, None, reshaped)),
    "transposed": Weights(16, 40, 96, recipes=(None, typed, None, transposed)),
    "a batch": Weights(16, 40, 96, batch=3, orders=("brki", "brki", "brk", "brk")),
    "a batch innermost": Weights(16, 40, 96, batch=2, orders=("brki", "rkib", "brk", "rkb"), types=(FP4, FP8)),
}
PARAMETRISED = [
    *(pytest.param(weights, id=name) for name, weights in ALWAYS.items()),
    *(pytest.param(weights, id=name, marks=pytest.mark.slow) for name, weights in SELDOM.items()),
]


@pytest.mark.parametrize("weights", PARAMETRISED)
def test_same_results(weights: Weights, tmp_path: Path) -> None:
    """As the program that packs its parameters itself, to the bit."""
    packed, plain = compiled(weights), compiled(weights, packed=False)
    tensors = archive(packed, weights)
    assert len(tensors) == 2 and all(".packed." in key for key in tensors)
    assert len(packed.report.matmuls[0].dispatches) == len(plain.report.matmuls[0].dispatches) - 2
    results = []
    for program, file in ((packed, tensors), (plain, weights.tensors)):
        checkpoint.save(tmp_path / "p.irpa", file)
        files = {"": tmp_path / "p.irpa"}
        results += runtime.run(program.vmfb, None, weights.inputs, "sim", engine="numpy", parameters=files)
    assert weights.error(results[0]) <= weights.bound
    assert results[0].tobytes() == results[1].tobytes()


@st.composite
def framed(draw: st.DrawFn) -> Recipe:
    """Slices of slices, of elements or of bytes: of each dimension every step-th from one on, of a stack one."""
    cuts = st.tuples(st.integers(0, 2), st.sampled_from([1, 1, 1, 2]), st.integers(0, 2))
    layer = st.tuples(
        st.booleans(), st.lists(cuts, min_size=6, max_size=6), st.sampled_from([None, (2, 0), (3, 1), (3, 2)])
    )
    layers = draw(st.lists(layer, max_size=2))

    def recipe(name: str, shape: Sequence[int], element: str) -> Part:
        frames, sizes = [], list(shape)
        for as_bytes, cut, stack in layers:  # from the operand on outwards
            whole = as_bytes and sizes[-1] * width(element) % 8 == 0
            inner = [*sizes[:-1], sizes[-1] * width(element) // 8] if whole else sizes
            offsets, steps, ends = (list(each) for each in zip(*cut[: len(inner)], strict=True))
            if whole:  # rows in bytes have no steps, and elements of 6 bits lie across them
                offsets[-1], steps[-1], ends[-1] = (0, 1, 0) if width(element) == 6 else (offsets[-1], 1, ends[-1])
            outer = [o + (n - 1) * s + 1 + e for o, n, s, e in zip(offsets, inner, steps, ends, strict=True)]
            outer[-1] += 0 if whole else -outer[-1] % 4
            if stack is not None:
                outer, offsets, inner, steps = [stack[0], *outer], [stack[1], *offsets], [1, *inner], [1, *steps]
            frames.append((whole, outer, offsets, inner, steps, stack is not None))
            sizes = [*outer[:-1], outer[-1] * 8 // width(element)] if whole else outer
        part = typed(name, sizes, element)
        for whole, outer, offsets, inner, steps, drop in reversed(frames):
            part = part.cast(outer, "i8" if whole else element) if whole != (part.element == "i8") else part
            part = part.sliced(offsets, inner, steps, int(drop))
        return part.cast(shape, element) if part.element != element else part

    return recipe


@st.composite
def matmuls(draw: st.DrawFn) -> Weights:
    """All four operands are parameters."""
    batch = draw(st.sampled_from([1, 1, 2]))
    b = "b" if batch > 1 else ""
    scales = [draw(st.sampled_from(["rk", "rk", "k"])) for _ in range(2)]
    letters = [f"{b}rki", f"{b}rki", *(b * draw(st.booleans()) + order for order in scales)]
    m, n, k = draw(st.integers(1, 20)), draw(st.integers(1, 20)), 32 * draw(st.integers(1, 3))
    orders = tuple("".join(draw(st.permutations(order))) for order in letters)
    types = draw(st.sampled_from(list(KINDS))), draw(st.sampled_from(list(KINDS)))
    recipes = tuple(draw(framed()) for _ in range(4))
    return Weights(m, n, k, batch, orders, types, recipes=recipes)


def check(weights: Weights) -> None:
    """That all operands are packed, and right."""
    program = compiled(weights, compile_to="flow")
    packed = archive(program, weights)
    packings = [parameter.packing for parameter in program.report.manifest.parameters if parameter.packing]
    assert sorted(packing.source for packing in packings) == sorted(NAMES), weights.text()
    for packing in packings:
        assert packed[packing.key].tobytes() == expected(weights, packing).tobytes(), weights.text()


@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(matmuls())
def test_any_part_in_any_order(weights: Weights) -> None:
    check(weights)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, phases=[Phase.generate])
@given(matmuls())
def test_more_parts_in_any_order(weights: Weights) -> None:
    check(weights)


KRI = ("kri", "kri", "kr", "kr")
CHECKED = {
    "straddling": Weights(4, 6, 128, recipes=(straddling,) * 4),
    "straddling blocks": Weights(4, 6, 128, orders=KRI, recipes=(straddling,) * 4),
    "padded": Weights(4, 6, 96, types=(FP6, FP4), recipes=(padded,) * 4),
    "within bytes": Weights(4, 6, 96, types=(FP6, FP4), recipes=(within_bytes, within_bytes, typed, typed)),
    "padded blocks": Weights(4, 6, 96, types=(FP6, FP8), orders=KRI, recipes=(padded,) * 4),
}


@pytest.mark.parametrize("weights", CHECKED.values(), ids=CHECKED)
def test_right_bytes(weights: Weights) -> None:
    check(weights)


def test_experts_of_one_parameter() -> None:
    """Each is a parameter of its own; one that is read twice is packed once."""
    loads, main = FEW.text().split("func.func ")
    functions = [
        f"func.func {main.replace('[2, 0, 0, 0]', f'[{place}, 0, 0, 0]').replace('@main', f'@main{i}')}"
        for i, place in enumerate((1, 2, 2))
    ]
    program = mxcomp.compile(loads + "".join(functions), packed_parameters=True, compile_to="flow")
    packings = [parameter.packing for parameter in program.report.manifest.parameters]
    experts = [packing for packing in packings if packing.source == "b"]
    assert len(experts) == 2 and len(packings) == 3
    packed = archive(program, FEW)
    stored, swizzle = FEW.tensors["b"].reshape(3, FEW.n, -1, 16), experts[0].swizzle
    assert {packed[packing.key].tobytes() for packing in experts} == {swizzle.pack(stored[e]).tobytes() for e in (1, 2)}


FEW = Weights(16, 40, 96, recipes=(None, expert, None, typed))
DYNAMIC = [
    ("func.func @main(", "func.func @main(%at: index, "),
    ("[2, 0, 0, 0] ", "[%at, 0, 0, 0] "),
]
MUTABLE = [("global private @b ", "global private mutable @b ")]
COMPUTED = [
    ("iree_tensor_ext.bitcast %b_0", "iree_tensor_ext.bitcast %b_x"),
    ("%b_1 =", "%b_x = arith.addi %b_0, %b_0 : tensor<3x40x3x16xi8>\n  %b_1 ="),
]
OPEN = [
    ("%b_2 =", "%b_y = tensor.cast %b_1 : tensor<3x40x3x32xf4E2M1FN> to tensor<3x?x3x32xf4E2M1FN>\n  %b_2 ="),
    ("extract_slice %b_1", "extract_slice %b_y"),
    ("[1, 1, 1, 1] : tensor<3x40", "[1, 1, 1, 1] : tensor<3x?"),
]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What becomes of each operand: None, a reason or a value."""
    results, load = [], parameter_operand.load_packed

    def noted(*args: Any) -> Any:
        results.append(load(*args))
        return results[-1]

    monkeypatch.setattr(parameter_operand, "load_packed", noted)
    return results


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (DYNAMIC, "a slice of it is taken at a place that only the running program knows"),
        (MUTABLE, "the program may change it"),
        (COMPUTED, "it is computed in the program, by arith.addi"),
        (OPEN, "only the running program knows its size"),
    ],
    ids=["slice", "mutable", "computed", "size"],
)
def test_left_as_it_is(changes: list[tuple[str, str]], reason: str, told: list[Any]) -> None:
    """And the reason is told; of operands that are no parameters there is none."""
    text = FEW.text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    program = mxcomp.compile(text, packed_parameters=True, compile_to="flow")
    assert [value for value in told if value is None or isinstance(value, str)] == [None, reason, None]
    assert "pack_rhs" in program.report.matmuls[0].dispatches
    assert [parameter.packing is None for parameter in program.report.manifest.parameters] == [True, False]


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        (Weights(4, 7, 96, recipes=(None, straddling, None, None)), "its elements lie at no regular distances"),
        (
            Weights(4, 8, 96, orders=("rki", "kir", "rk", "rk"), types=(FP4, FP6), recipes=(None, padded, None, None)),
            "its elements begin inside of others",
        ),
    ],
    ids=["irregular", "6 bits behind a byte"],
)
def test_no_view(weights: Weights, reason: str, told: list[Any]) -> None:
    compiled(weights, compile_to="flow")
    assert told == [None, reason, None, None]


def test_axes_that_carry_into_each_other() -> None:
    """Places 0 and 1 plus 0 and 3: together they are in the next four."""
    bits = Bits(0, (np.array([0, 1]), np.array([0, 3])))
    with pytest.raises(NotStoredError, match="a part of it ends within a row of another part"):
        bits.through([2, 4], [8, 1], 0)
    moved = bits.through([2, 4], [4, 1], 5)  # nothing lies between the fours
    assert moved.start == 5 and [list(table) for table in moved.tables] == [[0, 1], [0, 3]]


def test_memory() -> None:
    """Packing takes several times the memory of the operand, not of tables of its elements' places."""
    rows, blocks = 2048, 128
    weights = Weights(16, rows, 32 * blocks, orders=("rki", "irk", "rk", "rk"))
    program = compiled(weights, compile_to="flow")
    packing = next(p.packing for p in program.report.manifest.parameters if p.packing and p.packing.source == "b")
    source = np.zeros(rows * blocks * 16, np.uint8)
    tracemalloc.start()
    packing.pack(source)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * source.size
