"""Gate and up that quantise and pack hidden activations in their tile: float64's numbers, and what stays apart."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from iree.compiler import ir
from kernels import compiled
from test_norms_in_front import Case as Norm
from test_norms_in_front import norm
from test_producers import SOURCES

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats, pipeline
from mxcomp.layout import LHS_SCALE
from mxcomp.matching.storage import BITCASTS
from mxcomp.mlir import graph
from mxcomp.options import Options
from mxcomp.plans import hidden_versions, plans_below
from mxcomp.plans.packed_hidden import PackedHidden
from mxcomp.selection import versions
from mxcomp.selection.versions import Range
from mxcomp.target import DEFAULT, get_target
from mxcomp.ukernels import hidden


@dataclass(frozen=True)
class Case:
    """An MLP of activations [m, k], gate and up [n, k], and down [columns, n]; `behind` is the type of its LHS."""

    m: int
    n: int
    k: int
    lhs: str = "E2M1"
    rhs: str = "E2M1"
    behind: str = "E2M1"
    source: str = "bf16"
    columns: int = 96
    is_dynamic: bool = False

    @property
    def matrices(self) -> list[tuple[int, int, formats.ElementFormat]]:
        gate, down = (self.n, self.k, formats.element_format(self.rhs)), (self.columns, self.n, formats.E2M1)
        return [gate, gate, down]

    def module(self, also: str = "") -> ir.Module:
        """`also`: what else reads hidden activations, or what they are made from."""

        def layer(x: ir.Value, *weights: ir.Value) -> list[ir.Value]:
            g, gs, u, us, d, ds, *others = weights
            if also == "norm":
                x = norm(Norm(self.m, self.n, self.k), x, *others)
            a, down = mx.quantise(x, self.lhs), mx.operand(d, ds, formats.E2M1)
            gate, up = (mx.scaled_matmul(a, mx.operand(*each, self.rhs)) for each in ((g, gs), (u, us)))
            gate = mx.elementwise(lambda y: y, gate, result=self.source)
            if also == "bias":
                up = mx.elementwise(mx.add, up, *others)
            made = mx.elementwise(_silu_product, gate, up, result=self.source)
            quantised = mx.quantise(made, self.behind)
            results = [mx.scaled_matmul(quantised, down)]
            if also == "another format":
                results.append(mx.scaled_matmul(mx.quantise(made, "E4M3"), down))
            if also == "another product":
                w, ws = others
                results.append(mx.scaled_matmul(quantised, mx.operand(w, ws, formats.E2M1)))
            return [*results, *{"hidden": [made], "gate": [gate]}.get(also, [])]

        types = [f"{'?' if self.is_dynamic else self.m}x{self.k}x{self.source}"]
        for rows, columns, fmt in self.matrices:
            types += [f"{rows}x{columns * fmt.bits // 8}xi8", f"{rows}x{columns // 32}xi8"]
        types += {"bias": [f"{self.n}xf32"], "norm": [f"{self.k}xbf16"], "another product": types[-2:]}.get(also, [])
        return mx.module(layer, *types)

    def check(self, program: mxcomp.Program) -> list[np.ndarray]:
        """Returns the arguments with which the result is right."""
        rng = np.random.default_rng(self.m)
        given = [rng.standard_normal((self.m, self.k)).astype(SOURCES[self.source])]
        weights = []
        for rows, columns, fmt in self.matrices:
            codes, scales = formats.quantise(rng.standard_normal((rows, columns), np.float32) * 2 / columns**0.5, fmt)
            given += [formats.pack_bits(codes, fmt).view(np.int8), scales.view(np.int8)]
            weights.append(formats.dequantise(codes, scales, fmt, dtype=np.float64))
        gate, up = (_quantised(given[0], self.lhs) @ each.T for each in weights[:2])
        gate = gate.astype(np.float32).astype(given[0].dtype).astype(np.float64)
        made = (gate / (1 + np.exp(-gate)) * up).astype(np.float32).astype(given[0].dtype)
        expected = _quantised(made, self.behind) @ weights[2].T
        error = np.linalg.norm(program.run(*given)[0] - expected) / np.linalg.norm(expected)
        assert (
            error <= 1e-2
        )  # an element on an edge is rounded the other way where a sum of f32 differs in its last bit
        return given


def _quantised(x: np.ndarray, kind: str) -> np.ndarray:
    fmt = formats.element_format(kind)
    return formats.dequantise(*formats.quantise(x.astype(np.float32), fmt, "even"), fmt, dtype=np.float64)


def _silu_product(gate: ir.Value, up: ir.Value) -> ir.Value:
    return mx.multiply(mx.divide(gate, mx.add(mx.exp(mx.subtract(0.0, gate)), 1.0)), up)


def _right(case: Case) -> None:
    """Checks that one dispatch computes gate and up, and packs for down, without spilled registers."""
    program, kernels = compiled(str(case.module()), fuse_quantisers="on")
    gate, _, down = program.report.matmuls
    assert (gate.ukernel or "").startswith("mx_packed_hidden_") and not gate.unfused
    assert down.dispatches == ["pack_rhs", "pack_rhs_scale", "matmul"]
    assert all(each.assembly.spills == each.assembly.scratch_bytes == 0 for each in kernels)
    case.check(program)


def test_right() -> None:
    """Results are right where hidden activations do not fill the last K tile of the product behind."""
    _right(Case(13, 544, 544, columns=32))


OTHERS = [
    Case(16, 992, 1024, "E4M3", behind="E4M3"),
    Case(40, 2080, 1056, "E5M2", behind="E5M2", source="f16"),
    Case(9, 512, 512, "E2M3", source="f32"),
    Case(1, 4096, 4096, "E3M2", behind="E4M3"),
    Case(300, 1056, 1056),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_formats(case: Case) -> None:
    _right(case)


@pytest.mark.slow
@pytest.mark.parametrize("instance", hidden.INSTANCES, ids=lambda instance: instance.name)
def test_every_instance(instance: hidden.Instance) -> None:
    lhs, rhs = (formats.element_format(kind).name for kind in instance.elements)
    _right(Case(instance.layout.workgroup_tile[0] - 3, 1120, 1568, lhs, rhs))


def test_any_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two versions of gate and up runs, for that of the product behind that is for the same rows."""
    _two_ranges(monkeypatch)
    _any_rows(Case(1, 288, 544, is_dynamic=True), (3, 70))


def test_each_version_takes_what_is_made_for_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    _two_ranges(monkeypatch)
    module = Case(1, 288, 544, is_dynamic=True).module()
    passes = *pipeline.PREPARING_PASSES, *pipeline.CHOOSING_PASSES, "mxcomp-fuse-consumers", "mxcomp-materialise"
    pipeline.run(module.operation, passes, Options.make(fuse_quantisers="on"))
    versions_of_down = [op for op in graph.walk(module.operation) if op.name == "iree_codegen.inner_tiled"]
    made = [graph.look_through(op.operands[LHS_SCALE], BITCASTS).owner for op in versions_of_down]
    names = [[graph.location_name(op.location) for op in each] for each in (made, versions_of_down)]
    assert [*zip(*names, strict=True)] == [
        ("mxcomp.0.matmul", "mxcomp.2.matmul"),
        ("mxcomp.0.matmul_up_to_64", "mxcomp.2.matmul_up_to_64"),
    ]


def _two_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (versions, hidden_versions):
        monkeypatch.setattr(module, "RANGES", (Range(64, (64,)), Range(None, (4096,))))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["E2M1", "E4M3"])
def test_all_ranges_of_rows(kind: str) -> None:
    _any_rows(Case(1, 288, 544, kind, behind=kind, is_dynamic=True), (1, 17, 65, 257, 1025))


def _any_rows(case: Case, each: tuple[int, ...]) -> None:
    """Checks results, and that one kernel of each matmul and none that quantises in between has workgroups."""
    program = mxcomp.compile(case.module(), fuse_quantisers="on")
    for rows in each:
        launches = program.profile(*replace(case, m=rows).check(program), execute=False).dispatches
        owners = [launch.owner.split(" ")[0] for launch in launches if not launch.owner.startswith("pack_")]
        assert [owner.partition("_up_to")[0] for owner in owners] == ["quantise_lhs", "matmul", "matmul"]


@pytest.mark.slow
def test_any_number_of_rows_that_are_not_packed_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PackedHidden, "_objection", lambda *_: "of a test")
    case = Case(1, 288, 544, is_dynamic=True)
    program = mxcomp.compile(case.module(), fuse_quantisers="on")
    for rows in (3, 300):
        replace(case, m=rows).check(program)


@pytest.mark.parametrize(
    ("also", "is_dynamic"),
    [
        *((also, False) for also in ("", "hidden", "gate", "bias", "another format", "another product")),
        *((also, True) for also in ("", "hidden")),
    ],
)
def test_what_is_packed(also: str, is_dynamic: bool) -> None:
    """Hidden activations that nothing else reads, and that are made from gate and up alone."""
    plan, case = "hidden_versions" if is_dynamic else "packed_hidden", Case(16, 512, 512, is_dynamic=is_dynamic)
    assert (_plans(case, also, fuse_quantisers="on")[:2] == [plan] * 2) == (not also)


@pytest.mark.parametrize(("rows", "plan"), [(1, "dual"), (16, "packed_hidden")])
def test_a_norm_is_no_dispatch_where_it_is_part_of_a_kernel(rows: int, plan: str) -> None:
    """A layer of Llama 3 8B takes 41.6 µs for a single row, modelled, and would take 46.1 by the kernel that packs."""
    assert _plans(Case(rows, 14336, 4096, columns=4096), "norm")[:2] == [plan] * 2


def test_names_are_the_same_in_each_process() -> None:
    """They have a digest of all parameters: of none that is printed in any order."""
    assert "{" not in repr(hidden.Hidden(hidden.INSTANCES[0], get_target(DEFAULT), (1, 1), 1, 1, "f4E2M1FN", 16, ""))


def _plans(case: Case, also: str = "", **options: str) -> list[str]:
    module = case.module(also)
    passes = (*pipeline.PREPARING_PASSES, *pipeline.CHOOSING_PASSES)
    pipeline.run(module.operation, passes, Options.make(**options))
    return [plan.plan for _, plan in plans_below(module.operation)]


def test_what_cannot_be_packed_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the plan that it would have had, and the report says why."""
    monkeypatch.setattr(PackedHidden, "_objection", lambda *_: "of a test")
    module, options = Case(16, 512, 512).module(), Options.make(fuse_quantisers="on")
    passes = "mxcomp-fuse-consumers", "mxcomp-materialise"
    pipeline.run(module.operation, (*pipeline.PREPARING_PASSES, *pipeline.CHOOSING_PASSES, *passes), options)
    text = str(module)
    assert "mx_fused_quant16_dual_" in text and "in the tile of gate and up: of a test" in text
