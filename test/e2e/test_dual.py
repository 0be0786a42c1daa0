"""Gate and up of one activation in one dispatch, of few rows quantised in it: float64's numbers, and what is left
apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from iree.compiler import ir
from iree.compiler.dialects import arith
from kernels import compiled
from test_producers import SOURCES

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats
from mxcomp.plans.dual_versions import DualVersions
from mxcomp.plans.multi_m import MultiM
from mxcomp.ukernels import dual_packed, quantising

ALONE, TOGETHER, MANY = ["pack_rhs", "pack_rhs_scale", "matmul"], ["pack_rhs", "pack_rhs_scale"], "quantise_lhs"
Combine = Callable[[ir.Value, ir.Value, ir.Value], ir.Value]


@dataclass(frozen=True)
class Case:
    """Activations [m, k] and two matrices [n, k] with a bias for each; `combine` has both results, and makes one."""

    m: int
    n: int
    k: int
    lhs: str = "E2M1"
    rhs: str = "E2M1"
    source: str = "bf16"
    is_dynamic: bool = False

    @property
    def types(self) -> list[str]:
        matrix = [f"{self.n}x{self.k * formats.element_format(self.rhs).bits // 8}xi8", f"{self.n}x{self.k // 32}xi8"]
        rows = "?" if self.is_dynamic else self.m
        return [f"{rows}x{self.k}x{self.source}", *matrix, f"{self.n}xf32", *matrix, f"{self.n}xf32"]

    def module(self, rounded: bool = False, also: bool = False) -> ir.Module:
        """`rounded`: what the gate gives is a bf16 before it goes on; `also`: it is a result by itself, too."""

        def layer(x: ir.Value, g: ir.Value, gs: ir.Value, gb: ir.Value, u: ir.Value, us: ir.Value, ub: ir.Value):  # type: ignore[no-untyped-def]
            a = mx.quantise(x, self.lhs, "even")
            gate = mx.scaled_matmul(a, mx.operand(g, gs, self.rhs))
            up = mx.elementwise(mx.add, mx.scaled_matmul(a, mx.operand(u, us, self.rhs)), ub)
            gate = mx.elementwise(mx.add, gate, gb, result="bf16" if rounded else "f32")
            hidden = mx.elementwise(_silu_product, gate, up, result="bf16")
            return [hidden, gate] if also else hidden

        return mx.module(layer, *self.types)

    def arguments(self) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """What it is called with; float64's results of gate and up behind their bias."""
        rng = np.random.default_rng(self.m)
        x = rng.standard_normal((self.m, self.k)).astype(SOURCES[self.source])
        lhs, rhs = formats.element_format(self.lhs), formats.element_format(self.rhs)
        a = formats.dequantise(*formats.quantise(x, lhs, "even"), lhs, dtype=np.float64)
        given, results = [x], []
        for _ in range(2):
            codes, scales = formats.quantise(rng.standard_normal((self.n, self.k), np.float32) / self.k**0.5, rhs)
            bias = rng.standard_normal(self.n, np.float32)
            given += [formats.pack_bits(codes, rhs).view(np.int8), scales.view(np.int8), bias]
            results.append(a @ formats.dequantise(codes, scales, rhs, dtype=np.float64).T + bias)
        return given, *results

    def check(self, program: mxcomp.Program) -> None:
        given, gate, up = self.arguments()
        y = program.run(*given)[0]
        expected = gate / (1 + np.exp(-gate)) * up
        assert np.linalg.norm(y.astype(np.float64) - expected) <= 4e-3 * np.linalg.norm(expected)


def _silu_product(gate: ir.Value, up: ir.Value) -> ir.Value:
    return mx.multiply(mx.divide(gate, mx.add(mx.exp(mx.subtract(0.0, gate)), 1.0)), up)


CASES = [
    Case(1, 96, 1056),
    Case(16, 80, 1024, source="f32"),
    Case(5, 48, 2080, "E4M3", "E4M3"),
    Case(3, 208, 544, "E4M3", "E2M1", "f16"),
]


@pytest.mark.parametrize(
    ("case", "rounded"),
    [*(pytest.param(case, False, id=f"f32-{case}") for case in CASES), pytest.param(CASES[0], True, id="bf16")],
)
def test_one_dispatch(case: Case, rounded: bool) -> None:
    program = mxcomp.compile(case.module(rounded))
    assert [matmul.dispatches for matmul in program.report.matmuls] == [ALONE, TOGETHER]
    assert all("for both" in (matmul.note or "") and not matmul.unfused for matmul in program.report.matmuls)
    case.check(program)


@pytest.mark.slow
@pytest.mark.parametrize("instance", quantising.PAIRS, ids=lambda instance: instance.name)
def test_every_instance(instance: quantising.Instance) -> None:
    """Right, and without spilled registers."""
    source = next(kind for kind, bits in quantising.SOURCE_BITS.items() if bits == instance.bits)
    lhs, rhs = (formats.element_format(kind).name for kind in instance.elements)
    case = Case(7, 112, 1568, lhs, rhs, source)
    program, kernels = compiled(str(case.module()), ukernels=instance.name)
    assert [matmul.dispatches for matmul in program.report.matmuls] == [ALONE, TOGETHER]
    assert kernels[-1].assembly.spills == kernels[-1].assembly.scratch_bytes == 0
    case.check(program)


def _of_many_rows(instance: dual_packed.Instance) -> None:
    """Checks an instance with results that are no whole tiles."""
    m, n, _ = instance.layout.workgroup_tile
    lhs, rhs = (formats.element_format(kind).name for kind in instance.elements)
    case = Case(m + 40, n + 24, 544, lhs, rhs)
    program, kernels = compiled(str(case.module(True)), ukernels=instance.name)
    assert [matmul.dispatches for matmul in program.report.matmuls] == [[MANY, *TOGETHER, "matmul"], TOGETHER]
    assert kernels[-1].assembly.spills == kernels[-1].assembly.scratch_bytes == 0
    case.check(program)


def test_many_rows() -> None:
    _of_many_rows(next(each for each in dual_packed.INSTANCES if each.layout.workgroup_tile == (128, 64, 512)))


@pytest.mark.slow
@pytest.mark.parametrize("instance", dual_packed.INSTANCES, ids=lambda instance: instance.name)
def test_every_instance_of_many_rows(instance: dual_packed.Instance) -> None:
    """Right, and without spilled registers."""
    _of_many_rows(instance)


@pytest.mark.parametrize("also", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_any_number_of_rows(also: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two versions of both matmuls runs; where something else reads the gate, each has versions of its own."""
    for plan in (MultiM, DualVersions):
        monkeypatch.setattr(plan, "least_gain", -100.0)
    case = Case(1, 144, 1056, is_dynamic=True)
    program = mxcomp.compile(case.module(also=also))
    first, second = program.report.matmuls
    assert ("matmul" in second.dispatches) == also
    assert also or first.dispatches == [MANY, *TOGETHER, "matmul", "matmul_up_to_8"]
    for rows in (3, 40, *((130, 257) if also else ())):
        replace(case, m=rows).check(program)


@pytest.mark.parametrize("size", [(128, 64, 1024), (256, 128, 512), (256, 64, 1024)])
def test_a_single_tile_is_no_pair(size: tuple[int, int, int]) -> None:
    assert not dual_packed.INSTANCES[0].covers(*size)


def test_same_bits() -> None:
    """As each matmul in a dispatch of its own by as many waves."""
    case = Case(16, 64, 1056)
    pair = quantising.PAIRS[0]
    given, *_ = case.arguments()
    together, apart = (mxcomp.compile(case.module(), ukernels=each.name) for each in (pair, replace(pair, matrices=1)))
    assert [matmul.dispatches for matmul in apart.report.matmuls] == [ALONE, ALONE]
    (one,), (other,) = (program.run(*given) for program in (together, apart))
    np.testing.assert_array_equal(one.view(np.uint16), other.view(np.uint16))


def test_a_result_that_is_wanted_by_itself() -> None:
    """Then there are two dispatches."""
    case = CASES[0]
    program = mxcomp.compile(case.module(also=True), compile_to="executable-sources")
    assert [matmul.dispatches for matmul in program.report.matmuls] == [ALONE, ALONE]


@pytest.mark.parametrize("operand", [0, 1])
def test_a_result_that_is_read_in_another_order(operand: int) -> None:
    """Then there are two dispatches, as tiles of both are of the same elements."""
    same, text = "[#map2, #map2, #map2]", str(Case(16, 16, 1056).module())
    maps = ["#map2", "#map2", "#map2"]
    maps[operand] = "affine_map<(m, n) -> (n, m)>"
    front, last, behind = text.rpartition(same)
    assert last and "arith.divf" in behind
    program = mxcomp.compile(f"{front}[{', '.join(maps)}]{behind}", compile_to="executable-sources")
    assert [matmul.dispatches for matmul in program.report.matmuls] == [ALONE, ALONE]


@pytest.mark.parametrize("common", ["elements", "scales"])
def test_what_is_one_for_both(common: str) -> None:
    """They are no pair: IREE hands a dispatch each value once. Scales are equal constants, though not one value."""
    case = CASES[0]
    source, matrix, scales, *_ = case.types

    def ones() -> ir.Value:
        kind = ir.RankedTensorType(ir.Type.parse(f"tensor<{scales}>"))
        one = ir.IntegerAttr.get(kind.element_type, 127)
        return arith.ConstantOp(kind, ir.DenseElementsAttr.get_splat(kind, one)).result

    def layer(x: ir.Value, g: ir.Value, gs: ir.Value, u: ir.Value, us: ir.Value) -> ir.Value:
        a = mx.quantise(x, case.lhs, "even")
        first, second = ((g, gs), (g, us)) if common == "elements" else ((g, ones()), (u, ones()))
        gate, up = (mx.scaled_matmul(a, mx.operand(*each, case.rhs)) for each in (first, second))
        return mx.elementwise(mx.multiply, gate, up)

    program = mxcomp.compile(mx.module(layer, source, *[matrix, scales] * 2))
    assert all("matmul" in matmul.dispatches for matmul in program.report.matmuls)
    (x, g, gs, _, u, us, _), *_ = case.arguments()
    fmt = formats.element_format(case.rhs)
    one = np.full_like(gs, 127)
    (y,) = program.run(x, g, gs, u, us)
    a = formats.dequantise(*formats.quantise(x, fmt, "even"), fmt, dtype=np.float64)
    both = ((g, gs), (g, us)) if common == "elements" else ((g, one), (u, one))
    gate, up = (
        a @ formats.dequantise(formats.unpack_bits(e.view(np.uint8), fmt), s.view(np.uint8), fmt, dtype=np.float64).T
        for e, s in both
    )
    np.testing.assert_allclose(y, gate * up, rtol=1e-4, atol=1e-4 * np.abs(gate * up).max())


def test_too_many_rows() -> None:
    program = mxcomp.compile(Case(17, 96, 1056).module(), compile_to="executable-sources")
    assert [matmul.dispatches for matmul in program.report.matmuls] == [["quantise_lhs", *ALONE], ALONE]


@pytest.mark.parametrize("rows", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_gated_mlp_in_two_dispatches(rows: int) -> None:
    """What is between is bf16, which the last matmul quantises itself."""
    case = Case(rows, 544, 1056)
    down = [f"{case.k}x{case.n // 2}xi8", f"{case.k}x{case.n // 32}xi8"]

    def mlp(x: ir.Value, g: ir.Value, gs: ir.Value, u: ir.Value, us: ir.Value, d: ir.Value, ds: ir.Value) -> ir.Value:
        a = mx.quantise(x, "E2M1")
        gate, up = (mx.scaled_matmul(a, mx.operand(*each, "E2M1")) for each in ((g, gs), (u, us)))
        hidden = mx.quantise(mx.elementwise(_silu_product, gate, up, result="bf16"), "E2M1")
        return mx.elementwise(lambda y: y, mx.scaled_matmul(hidden, mx.operand(d, ds, "E2M1")), result="bf16")

    x, g, gs, _, u, us, _ = case.types
    program = mxcomp.compile(mx.module(mlp, x, g, gs, u, us, *down))
    assert [matmul.dispatches for matmul in program.report.matmuls] == [ALONE, TOGETHER, ALONE]
    given, gate, up = case.arguments()
    x_value, *first, first_bias, second, second_scale, second_bias = given
    gate, up = gate - first_bias, up - second_bias
    fmt = formats.E2M1
    codes, scales = formats.quantise(np.random.default_rng(0).standard_normal((case.k, case.n), np.float32), fmt)
    down_given = formats.pack_bits(codes, fmt).view(np.int8), scales.view(np.int8)
    (y,) = program.run(x_value, *first, second, second_scale, *down_given)
    hidden = (gate / (1 + np.exp(-gate)) * up).astype(SOURCES["bf16"])
    between = formats.dequantise(*formats.quantise(hidden, fmt, "even"), fmt, dtype=np.float64)
    expected = between @ formats.dequantise(codes, scales, fmt, dtype=np.float64).T
    # A hidden value that rounds to the other side moves an element by a step.
    assert np.linalg.norm(y.astype(np.float64) - expected) <= 6e-3 * np.linalg.norm(expected)
