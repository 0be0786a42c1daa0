"""Scaled matmuls of any shape and storage order, run on the simulator with all checks on, against float64 NumPy."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from assembly import FLAG, read_dump
from modules import BITS, FP4, KINDS
from shapes import Shaped

import mxcomp
from mxcomp.options import FASTEST
from mxcomp.run.runtime import RunError

SLOW = pytest.mark.slow
PARTS = ["pack_lhs", "pack_rhs", "pack_lhs_scale", "pack_rhs_scale", "matmul"]
E2M3, E3M2, E4M3, E5M2 = [kind for kind in KINDS if kind != FP4]
TURNED = ("rki", "kir", "rk", "kr")
BATCHED = ("brki", "brki", "brk", "brk")
FOLDED = ("brki", "rki", "brk", "rk")


@pytest.fixture(autouse=True, params=["numpy", pytest.param("fast", marks=SLOW)])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs here are small: the simulator would compile their kernels for longer than it then runs them."""
    monkeypatch.setenv("MXCOMP_SIM_ENGINE", request.param)


@cache
def built(shaped: Shaped, data_tiling: bool = True, ukernels: str = "fastest") -> mxcomp.Program:
    return mxcomp.compile(shaped.text(), data_tiling=data_tiling, ukernels=ukernels)


def check(shaped: Shaped, program: mxcomp.Program) -> None:
    (result,) = program.run(*shaped.inputs)
    assert shaped.error(result) <= shaped.bound


@pytest.mark.parametrize(
    "shaped",
    [
        pytest.param(Shaped(40, 132, 96, orders=TURNED), marks=SLOW),
        Shaped(40, 132, 96, orders=TURNED, types=(E4M3, E2M3)),
        pytest.param(Shaped(40, 131, 96, orders=("kir", "kri", "kr", "rk"), types=(E5M2, FP4)), marks=SLOW),
        pytest.param(Shaped(40, 132, 96, orders=("irk", "kir", "kr", "kr"), types=(E3M2, E4M3)), marks=SLOW),
        Shaped(40, 132, 96, orders=TURNED, types=(FP4, E3M2), constant_rhs=True),
        Shaped(40, 132, 96, batch=2, orders=("rbki", "kirb", "krb", "brk"), types=(FP4, E2M3)),
        pytest.param(Shaped(40, 132, 96, sliced="0123"), marks=SLOW),
        Shaped(40, 132, 96, sliced="13", orders=TURNED, types=(E4M3, E2M3)),
        pytest.param(Shaped(40, 132, 96, byte_sliced="0123", types=(E2M3, FP4)), marks=SLOW),
        pytest.param(Shaped(40, 132, 96, cast="0123", types=(E5M2, E3M2)), marks=SLOW),
        Shaped(40, 132, 96, batch=3, orders=BATCHED, types=(E2M3, E4M3)),
        pytest.param(Shaped(130, 300, 544, batch=2, orders=BATCHED), marks=SLOW),
        pytest.param(Shaped(1, 1, 32, batch=2, orders=BATCHED), marks=SLOW),
    ],
    ids=str,
)
def test_storage(shaped: Shaped) -> None:
    """All through packing and a ukernel; a constant RHS is packed at compile time."""
    program = built(shaped)
    (matmul,) = program.report.matmuls
    expected = [part for part in PARTS if not (shaped.constant_rhs and "rhs" in part)]
    assert matmul.dispatches == expected
    assert matmul.ukernel
    check(shaped, program)


@pytest.mark.parametrize("ukernels", ["fastest", pytest.param("none", marks=SLOW)])
@pytest.mark.parametrize(
    ("shaped", "runs"),
    [
        pytest.param(Shaped(64, 128, 256, dynamic="n"), [(64, 1, 256), (64, 300, 256)], marks=SLOW),
        pytest.param(
            Shaped(64, 128, 256, dynamic="k", types=(E4M3, FP4)), [(64, 128, 32), (64, 128, 1056)], marks=SLOW
        ),
        (Shaped(64, 128, 256, dynamic="mnk"), [(1, 1, 32), (130, 260, 544)]),
        (Shaped(64, 128, 256, batch=2, orders=BATCHED, dynamic="mk", types=(E5M2, FP4)), [(7, 128, 288)]),
    ],
    ids=lambda value: str(value) if isinstance(value, Shaped) else "",
)
def test_dynamic(shaped: Shaped, runs: list[tuple[int, int, int]], ukernels: str) -> None:
    """One program, several sizes."""
    program = built(shaped, ukernels=ukernels)
    assert program.report.matmuls[0].dispatches == PARTS
    for m, n, k in runs:
        check(replace(shaped, m=m, n=n, k=k), program)


@SLOW
def test_dynamic_and_turned() -> None:
    shaped = Shaped(40, 132, 96, orders=TURNED, types=(E4M3, E2M3), dynamic="mnk")
    program = built(shaped)
    for m, n, k in ((40, 132, 96), (3, 4, 160)):
        check(replace(shaped, m=m, n=n, k=k), program)


def test_sizes_that_do_not_agree() -> None:
    shaped = Shaped(64, 128, 256, dynamic="mnk")
    program = built(shaped, ukernels="fastest")  # that of `test_dynamic`
    inputs = shaped.inputs
    with pytest.raises(RunError, match="LHS and RHS scales must have the same K"):
        program.run(*inputs[:3], inputs[3][:, :-1])
    with pytest.raises(RunError, match="RHS and RHS scales must have the same N"):
        program.run(*inputs[:3], inputs[3][:-1])
    with pytest.raises(RunError, match="K must be between 32 and 65536"):
        program.run(*Shaped(1, 1, 65568).inputs)


@pytest.mark.parametrize("dynamic", [pytest.param("", marks=SLOW), "m", pytest.param("b", marks=SLOW)])
def test_batch_of_lhs(dynamic: str) -> None:
    """The batch counts as rows, static or not."""
    shaped = Shaped(20, 132, 96, batch=3, orders=FOLDED, dynamic=dynamic, types=(E4M3, FP4))
    program = built(shaped)
    assert program.report.matmuls[0].dispatches == PARTS
    check(shaped, program)


@pytest.mark.parametrize(
    "shaped",
    [
        Shaped(40, 132, 96, orders=TURNED),
        Shaped(40, 132, 96, types=(E2M3, FP4)),
        pytest.param(Shaped(40, 132, 96, dynamic="n"), marks=SLOW),
        pytest.param(Shaped(40, 132, 96, dynamic="mnk", orders=TURNED, types=(E4M3, E3M2)), marks=SLOW),
        pytest.param(Shaped(40, 132, 96, batch=2, orders=BATCHED), marks=SLOW),
    ],
    ids=str,
)
def test_left_to_iree(shaped: Shaped) -> None:
    """What is recognised and gets no layout is dequantised from wherever its bytes are, and right."""
    program = built(shaped, data_tiling=False, ukernels="none")
    assert program.report.matmuls[0].reason.startswith("left to IREE: --data-tiling=off")
    check(shaped, program)


@pytest.mark.parametrize(
    "types",
    [(E5M2, E4M3), pytest.param((FP4, E3M2), marks=SLOW), pytest.param((FP4, FP4), marks=SLOW)],
    ids="-".join,
)
def test_what_is_not_recognised(types: tuple[str, str]) -> None:
    """Blocks of 16 elements."""
    shaped = Shaped(40, 132, 96, types=types)
    text = shaped.text()
    for kind in {*types}:
        text = text.replace(f"x3x32x{kind}", f"x6x16x{kind}")
    for kind in ("i8", "f8E8M0FNU"):
        text = text.replace(f"x3x{kind}", f"x6x{kind}")
    program = mxcomp.compile(text)
    assert program.report.matmuls[0].reason == "block size 16: expected a multiple of 32"
    a, b, a_scales, b_scales = shaped.inputs
    (result,) = program.run(a, b, a_scales.repeat(2, axis=1), b_scales.repeat(2, axis=1))
    assert shaped.error(result) <= shaped.bound


@pytest.mark.parametrize("types", [(FP4, E4M3), pytest.param((E3M2, FP4), marks=SLOW)], ids="-".join)
@pytest.mark.parametrize("block", [64, pytest.param(192, marks=SLOW)])
def test_larger_blocks(types: tuple[str, str], block: int) -> None:
    """Several blocks of 32 that share a scale."""
    shaped, count = Shaped(40, 132, 192, types=types), block // 32
    for scales in shaped.codes[2:]:
        scales[:] = scales[..., ::count].repeat(count, -1)
    text = shaped.text()
    for kind in {*types}:
        text = text.replace(f"x6x32x{kind}", f"x{6 // count}x{block}x{kind}")
        text = text.replace(f"x6x{4 * BITS[kind]}xi8", f"x{6 // count}x{block * BITS[kind] // 8}xi8")
    for kind in ("i8", "f8E8M0FNU"):
        text = text.replace(f"x6x{kind}", f"x{6 // count}x{kind}")
    program = mxcomp.compile(text, strict=True)
    assert program.report.matmuls[0].ukernel is not None
    a, b, a_scales, b_scales = shaped.inputs
    a, b = (each.reshape(len(each), 6 // count, -1) for each in (a, b))
    (result,) = program.run(a, b, a_scales[:, ::count], b_scales[:, ::count])
    assert shaped.error(result) <= shaped.bound


@pytest.mark.parametrize("types", [pytest.param((E5M2, E4M3), marks=SLOW), (E2M3, FP4)], ids="-".join)
def test_dynamic_batch_of_both(types: tuple[str, str]) -> None:
    shaped = Shaped(10, 36, 64, batch=2, orders=BATCHED, dynamic="b", types=types)
    program = built(shaped)
    assert program.report.matmuls[0].reason == "a dynamic batch of both operands: expected a static one"
    check(shaped, program)


@pytest.mark.parametrize("orders", [("rki", "rki", "rk", "rk"), BATCHED], ids=["plain", "batch"])
def test_accumulator(orders: tuple[str, str, str, str]) -> None:
    """C + A · Bᵀ."""
    shaped = Shaped(40, 132, 96, batch=2, orders=orders, types=(E4M3, FP4))
    result_type = "x".join(map(str, shaped.expected.shape))
    text = shaped.text().replace(") -> tensor", f", %start: tensor<{result_type}xf32>) -> tensor", 1)
    program = mxcomp.compile(text.replace("outs(%zeros :", "outs(%start :"))
    assert program.report.matmuls[0].dispatches == PARTS
    start = (np.random.default_rng(1).standard_normal(shaped.expected.shape) * shaped.magnitude.mean()).astype("f4")
    (result,) = program.run(*shaped.inputs, start)
    error = np.abs(result - (shaped.expected + start)) / (shaped.magnitude + np.abs(start))
    assert error.max() <= shaped.bound + 2.0**-23


@pytest.mark.parametrize(
    ("shaped", "ukernels"),
    [
        (Shaped(60, 132, 96, batch=3, orders=BATCHED, types=(FP4, FP4)), f"mx_{FP4}_{FP4}_f32_m128_n128_k512"),
        pytest.param(Shaped(60, 132, 96, batch=3, orders=BATCHED), FASTEST, marks=SLOW),
        pytest.param(Shaped(60, 132, 96, batch=3, orders=BATCHED, dynamic="m", types=(E4M3, FP4)), FASTEST, marks=SLOW),
        pytest.param(Shaped(60, 132, 96, batch=3, orders=FOLDED), FASTEST, marks=SLOW),
        (Shaped(60, 132, 96, batch=3, orders=FOLDED, dynamic="b", types=(E2M3, E4M3)), FASTEST),
    ],
    ids=str,
)
def test_consumers_of_a_batch(shaped: Shaped, ukernels: str, tmp_path: Path) -> None:
    """A factor for each row, a bias and a residual become part of the matmul's kernel, without scratch memory."""
    b, m, n = ("?" if axis in shaped.dynamic else str(size) for axis, size in zip("bmn", (3, 60, 132), strict=True))
    result = f"tensor<{b}x{m}x{n}xf32>"
    others = [f"tensor<{b}x{m}xf32>", f"tensor<{n}xf32>", result]
    names = ["%rows", "%bias", "%other"]
    arguments = "".join(f", {name}: {kind}" for name, kind in zip(names, others, strict=True))
    sizes = {"b": "%a_f0", "m": "%a_f1"}.get(shaped.dynamic, "")
    consumer = CONSUMER.format(r=result, sizes=sizes, others=", ".join(others), names=", ".join(names))
    text = shaped.text().replace(f") -> {result}", f"{arguments}) -> {result}", 1)
    text = text.replace("  return %r", f"{consumer}  return %y")
    program = mxcomp.compile(text, ukernels=ukernels, iree_flags=(f"{FLAG}={tmp_path}",))
    kernels = read_dump(tmp_path)
    assert len(kernels) == 5
    assert [kernel.scratch_bytes for kernel in kernels] == [0] * 5
    rng = np.random.default_rng(2)
    factor = 2.0 ** -round(np.log2(shaped.magnitude.mean()))
    rows, bias, other = (rng.standard_normal(shape).astype("f4") for shape in ((3, 60), (132,), (3, 60, 132)))
    rows *= np.float32(factor)
    (y,) = program.run(*shaped.inputs, rows, bias, other)
    terms = [shaped.expected * rows[..., None], np.broadcast_to(bias, other.shape), other]
    magnitude = shaped.magnitude * np.abs(rows[..., None]) + np.abs(bias) + np.abs(other)
    assert (np.abs(y - sum(terms)) / magnitude).max() <= shaped.bound + 2.0**-22


CONSUMER = """
  %y_empty = tensor.empty({sizes}) : {r}
  %y = linalg.generic {{
    indexing_maps = [affine_map<(z, m, n) -> (z, m, n)>, affine_map<(z, m, n) -> (z, m)>, affine_map<(z, m, n) -> (n)>,
                     affine_map<(z, m, n) -> (z, m, n)>, affine_map<(z, m, n) -> (z, m, n)>],
    iterator_types = ["parallel", "parallel", "parallel"]
  }} ins(%r, {names} : {r}, {others}) outs(%y_empty : {r}) {{
  ^bb0(%v: f32, %f: f32, %c: f32, %o: f32, %out: f32):
    %vf = arith.mulf %v, %f : f32
    %vc = arith.addf %vf, %c : f32
    %vo = arith.addf %vc, %o : f32
    linalg.yield %vo : f32
  }} -> {r}
"""
