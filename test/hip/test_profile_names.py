"""Profiles of PyTorch models: dispatches by names of modules, by kinds, at 80 and 120 columns."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest
import torch

import mxcomp
import mxcomp.torch
from mxcomp.profiling import DispatchProfile, Estimate, Profile, Wanted


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)
        self.gate, self.up = (torch.nn.Linear(64, 96, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(96, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        return x + self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[mxcomp.Program, Path]:
    """Two layers, with parameters that are packed when it is loaded."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(Layer(), Layer()).eval()
    mxcomp.torch.replace_linears(model)
    path = tmp_path_factory.mktemp("model") / "model"
    rows = torch.export.Dim("rows", min=2, max=4096)
    module = mxcomp.torch.export(model, (torch.randn(40, 64),), dynamic_shapes=({0: rows},), parameters=path)
    return mxcomp.compile(module), path.with_suffix(".irpa")


@pytest.fixture(scope="module")
def profile(program: tuple[mxcomp.Program, Path]) -> Profile:
    compiled, weights = program
    return compiled.profile(torch.randn(40, 64).numpy(), execute=False, parameters={"model": weights})


def test_modules_are_told_apart(profile: Profile) -> None:
    """Gate and up, of one shape and one kernel, in both layers."""
    matmuls = [d.module for d in profile.called if d.part.startswith("matmul")]
    assert sorted(matmuls) == sorted(f"{k}.{name}" for k in range(2) for name in ("gate", "up", "down"))
    assert len({d.kernel for d in profile.called if d.part.startswith("matmul")}) < len(matmuls)
    assert {d.module for d in profile.called if d.part == "norm"} == {"0.norm", "1.norm"}
    assert all(d.location for d in profile.dispatches)


def test_kinds_add_up(profile: Profile) -> None:
    assert {kind.name for kind in profile.kinds} == {"our matmuls", "our packing", "the rest, by IREE"}
    assert sum(kind.us for kind in profile.kinds) == pytest.approx(profile.modelled_us)
    assert sum(kind.share for kind in profile.kinds) == pytest.approx(1)
    assert [kind.us for kind in profile.kinds] == sorted((kind.us for kind in profile.kinds), reverse=True)


def test_loading_is_apart(profile: Profile) -> None:
    """What packs weights is none of the call's time."""
    assert {d.part for d in profile.loading} >= {"pack_rhs"}
    assert all(d.part != "pack_rhs" for d in profile.called)
    assert 0 < profile.loading_us == pytest.approx(sum(d.us for d in profile.loading))
    assert profile.modelled_us + profile.loading_us == pytest.approx(sum(d.us for d in profile.dispatches))


@pytest.mark.parametrize("width", [80, 120, 200])
def test_table_fits(profile: Profile, width: int) -> None:
    stream = StringIO()
    profile.print(stream, width=width)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for said in ("matmul of 0.gate", "quantise_lhs of 1.down", "once, when the program is loaded", "fitted to GEMMs"):
        assert said in " ".join(text.split())
    assert ("grid" in text) == (width > 80)
    assert width < 200 or "instructions" in text


def test_slowest_first_or_in_order(profile: Profile) -> None:
    def listed(wanted: Wanted) -> list[int]:
        stream = StringIO()
        Profile(profile.called).print(stream, wanted, 200)
        return [int(line.split("│")[2].strip(" .")) - 1 for line in stream.getvalue().splitlines() if ". │" in line]

    order = sorted(range(len(profile.called)), key=lambda k: -profile.called[k].us)
    assert listed(Wanted()) == order
    assert listed(Wanted.of("top:3")) == order[:3]
    assert listed(Wanted.of("in-order")) == sorted(order)
    assert listed(Wanted.of("top:4,in-order")) == sorted(order[:4])


def test_json_and_csv(profile: Profile) -> None:
    data = json.loads(profile.to_json())
    rows = list(csv.DictReader(StringIO(profile.to_csv())))
    assert len(rows) == len(data["dispatches"]) == len(profile.dispatches)
    assert "fitted to GEMMs" in data["model"]
    for d, entry, row in zip(profile.dispatches, data["dispatches"], rows, strict=True):
        assert (entry["module"], entry["kind"], entry["is_loading"]) == (d.module, d.kind, d.is_loading)
        assert (row["module"], row["kind"], row["grid"]) == (d.module, d.kind, "x".join(map(str, d.grid)))
        assert float(row["us"]) == pytest.approx(d.us, abs=1e-4)
        assert int(row["instructions"]) == d.counters["instructions"]


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("main$async_dispatch_3_attention_4x32x128_bf16", "attention"),
        ("main$async_dispatch_3_elementwise_4x32_bf16", "the rest, by IREE"),
    ],
)
def test_kinds_without_a_report(kernel: str, kind: str) -> None:
    modelled = Estimate(3.0, 2.0, 4.0, False, "latency", {}, 0.0, 2.4, 0.0, 0.0, {})
    assert DispatchProfile(kernel, (1, 1, 1), {}, 0.0, modelled).kind == kind
    assert DispatchProfile("_initializer_0_dispatch_0_pack", (1, 1, 1), {}, 0.0, modelled).is_loading
