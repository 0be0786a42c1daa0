"""What each dispatch of a program does, and its modelled time."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from modules import Matmul, source
from rich.console import Console
from test_routed_experts import QUICK as ROUTED

import mxcomp
from mxcomp.profiling import DispatchProfile, Profile
from mxcomp.run.runtime import RunError
from mxcomp.sim.timing.pictures import roofline
from mxcomp.tools import run

MATMUL = Matmul(64, 256, 512)


@pytest.fixture(scope="module")
def program() -> mxcomp.Program:
    return mxcomp.compile(source(MATMUL))


@pytest.fixture(scope="module")
def inputs() -> list[np.ndarray]:
    return [array.view(np.int8) for array in MATMUL.operands]


@pytest.fixture(scope="module")
def profile(program: mxcomp.Program, inputs: list[np.ndarray]) -> Profile:
    return program.profile(*inputs, execute=True)


def test_each_dispatch_has_a_time(program: mxcomp.Program, profile: Profile) -> None:
    kernels = [dispatch.kernel for dispatch in profile.dispatches]
    assert len(kernels) == len(program.report.matmuls[0].dispatches)
    assert kernels[-1] == program.report.matmuls[0].kernel
    for dispatch in profile.dispatches:
        assert dispatch.modelled is not None, dispatch.reason
        assert 0 < dispatch.modelled.low < dispatch.modelled.us < dispatch.modelled.high
        assert dispatch.modelled.bound in dispatch.modelled.saved
    assert profile.modelled_us == sum(d.modelled.us for d in profile.dispatches if d.modelled)
    assert profile.dispatches[-1].counters["mfma"] == 64 // 16 * 256 // 16 * 512 // 128


def test_nothing_need_be_computed(program: mxcomp.Program, inputs: list[np.ndarray], profile: Profile) -> None:
    """The same kernels, times and counters."""
    followed = program.profile(*inputs)
    assert facts(followed) == facts(profile)
    for each, is_executed in ((followed, False), (profile, True)):
        assert {d.executed for d in each.dispatches} == {is_executed}
        assert ("results were not computed" in shown(each)) != is_executed
    assert MATMUL.error(program.run(*inputs)[0]) <= MATMUL.bound  # later runs compute again


def facts(profile: Profile) -> list[tuple[object, ...]]:
    """What must not depend on how it was found out."""
    return [(d.kernel, d.grid, d.us, d.counters["instructions"]) for d in profile.dispatches]


def shown(profile: Profile) -> str:
    stream = io.StringIO()
    Console(width=200, file=stream).print(profile.table())
    return stream.getvalue()


def test_table_and_json(profile: Profile) -> None:
    data = json.loads(profile.to_json())
    assert data["modelled_us"] == profile.modelled_us
    assert [line["kernel"] for line in data["dispatches"]] == [d.kernel for d in profile.dispatches]
    assert "modelled µs" in [column.header for column in profile.table().columns]
    assert profile.table().row_count == len(profile.dispatches)


def test_command(program: mxcomp.Program, inputs: list[np.ndarray], tmp_path: Path) -> None:
    """mxcomp-run writes the same, and a timeline for each dispatch."""
    program.save(tmp_path / "m.vmfb")
    flags = [str(tmp_path / "m.vmfb"), f"--output=@{tmp_path / 'y.npy'}", f"--function={FUNCTION}"]
    for k, array in enumerate(inputs):
        np.save(tmp_path / f"{k}.npy", array)
        flags.append(f"--input=@{tmp_path / f'{k}.npy'}")
    written, timelines = tmp_path / "profile.json", tmp_path / "timelines"
    assert run.main([*flags, f"--profile-json={written}", f"--timeline={timelines}"]) == 0
    assert len(json.loads(written.read_text())["dispatches"]) == len(list(timelines.glob("*.json"))) > 1
    assert MATMUL.error(np.load(tmp_path / "y.npy")) <= MATMUL.bound


def test_roofline(profile: Profile) -> None:
    pytest.importorskip("matplotlib")
    times = [(d.kernel, d.modelled) for d in profile.dispatches if d.modelled]
    assert times[-1][1].flops == 2 * MATMUL.m * MATMUL.n * MATMUL.k
    assert roofline([(name, m.flops, m.unique_bytes, m.us) for name, m in times]).startswith(b"\x89PNG")


FUNCTION = "main"


ROWS = """
func.func @main(%table: tensor<4096x64xf32>, %x: tensor<512xi32>) -> tensor<512x64xf32> {
  %c4095 = arith.constant 4095 : i32
  %none = tensor.empty() : tensor<512xi32>
  %ids = flow.dispatch.region -> (tensor<512xi32>) {
    %0 = linalg.generic {
      indexing_maps = [affine_map<(r) -> (r)>, affine_map<(r) -> (r)>], iterator_types = ["parallel"]
    } ins(%x : tensor<512xi32>) outs(%none : tensor<512xi32>) {
    ^bb0(%a: i32, %_: i32):
      %1 = arith.muli %a, %a : i32
      %2 = arith.andi %1, %c4095 : i32
      linalg.yield %2 : i32
    } -> tensor<512xi32>
    flow.return %0 : tensor<512xi32>
  }
  %init = tensor.empty() : tensor<512x64xf32>
  %rows = flow.dispatch.region -> (tensor<512x64xf32>) {
    %0 = linalg.generic {
      indexing_maps = [affine_map<(r, c) -> (r)>, affine_map<(r, c) -> (r, c)>],
      iterator_types = ["parallel", "parallel"]
    } ins(%ids : tensor<512xi32>) outs(%init : tensor<512x64xf32>) {
    ^bb0(%id: i32, %_: f32):
      %row = arith.index_cast %id : i32 to index
      %column = linalg.index 1 : index
      %1 = tensor.extract %table[%row, %column] : tensor<4096x64xf32>
      linalg.yield %1 : f32
    } -> tensor<512x64xf32>
    flow.return %0 : tensor<512x64xf32>
  }
  return %rows : tensor<512x64xf32>
}
"""
"""Rows of a table that the program computes the numbers of."""


def test_times_that_depend_on_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody has computed is said to be guessed, or computed."""
    program = mxcomp.compile(ROWS)
    inputs = np.zeros((4096, 64), np.float32), np.arange(512, dtype=np.int32)
    computed = program.profile(*inputs, execute=True)
    assert not computed.guessed
    found = program.profile(*inputs)
    assert facts(found) == facts(computed)
    assert not any(d.executed for d in found.dispatches)
    monkeypatch.setattr("mxcomp.compiler._COMPUTED", 0)
    followed = program.profile(*inputs)
    assert [bool(dispatch.depends) for dispatch in followed.dispatches] == [False, True]
    assert "argument" in followed.guessed[0].depends
    assert json.loads(followed.to_json())["guessed"] == 1
    assert "1 depend on data that was not computed" in shown(followed)


REPEATED = """
func.func @main(%x: tensor<256xf32>, %n: tensor<1xi32>) -> tensor<256xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i32
  %done:2 = scf.while (%a = %x, %m = %n) : (tensor<256xf32>, tensor<1xi32>) -> (tensor<256xf32>, tensor<1xi32>) {
    %left = tensor.extract %m[%c0] : tensor<1xi32>
    %more = arith.cmpi sgt, %left, %zero : i32
    scf.condition(%more) %a, %m : tensor<256xf32>, tensor<1xi32>
  } do {
  ^bb0(%a: tensor<256xf32>, %m: tensor<1xi32>):
    %b = arith.mulf %a, %a : tensor<256xf32>
    %one = arith.constant dense<1> : tensor<1xi32>
    %k = arith.subi %m, %one : tensor<1xi32>
    scf.yield %b, %k : tensor<256xf32>, tensor<1xi32>
  }
  return %done#0 : tensor<256xf32>
}
"""
"""Squares, as often as a number on the device says."""


def test_results_that_a_program_looks_at() -> None:
    """What a program launches then is known only by computing."""
    program = mxcomp.compile(REPEATED)
    inputs = np.linspace(0, 1, 256, dtype=np.float32), np.array([2], np.int32)
    computed = program.profile(*inputs, execute=True)
    assert len(computed.dispatches) == 4
    assert facts(program.profile(*inputs)) == facts(computed)
    with pytest.raises(RunError, match="the program looks at a result"):
        program.run(*inputs, engine="timing")


def attention() -> tuple[mxcomp.Program, list[np.ndarray]]:
    """A layer whose attention rescales sums where scores grow."""
    torch = pytest.importorskip("torch")
    from mxcomp.torch import compile, replace_linears
    from mxcomp.torch.values import array

    class Layer(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(128, 384, bias=False), torch.nn.Linear(128, 128, bias=False)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).view(1, -1, 3, 2, 64).permute(2, 0, 3, 1, 4)
            sums = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(sums.transpose(1, 2).flatten(2))

    torch.manual_seed(0)
    module, x = replace_linears(Layer().bfloat16().eval()), 4 * torch.randn(1, 160, 128).bfloat16()
    with torch.no_grad():
        return compile(module, (x,), strict=True), [array(x)]


def experts() -> tuple[mxcomp.Program, list[np.ndarray]]:
    """A layer whose router chooses what is multiplied."""
    case = replace(ROUTED, tokens=40, model=160, inner=64, experts=6, top_k=2)
    return mxcomp.compile(case.module()), list(case.arguments)


@pytest.mark.slow
@pytest.mark.parametrize("layer", [attention, experts])
def test_what_times_depend_on_is_computed(
    layer: Callable[[], tuple[mxcomp.Program, list[np.ndarray]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the last dispatch that depends on it, which is not executed itself."""
    program, inputs = layer()
    found = program.profile(*inputs)
    assert not found.guessed
    assert facts(found) == facts(program.profile(*inputs, execute=True))
    monkeypatch.setattr("mxcomp.compiler._COMPUTED", 0)
    asked = program.profile(*inputs).asked
    assert asked
    executed = {number for number, d in enumerate(found.dispatches) if d.executed}
    assert executed == set(asked[:-1])


def test_other_launches_with_data() -> None:
    """What a program does that looks at what it computed is not put together from two calls."""
    guessed, known = launched("a"), launched("a", "b", depends="data")
    assert known.asked == (1,)
    assert known.with_data(launched("b")) == launched("a", "b")
    assert known.with_data(guessed) is None and known.with_data(launched()) is None
    assert known.with_data(launched("b", "b")) is None


def launched(*kernels: str, depends: str = "") -> Profile:
    """A profile of launches, the last of which depends on some data."""
    last = len(kernels) - 1
    return Profile(
        tuple(
            DispatchProfile(name, (1, 1, 1), {}, 0.0, None, depends=depends if number == last else "")
            for number, name in enumerate(kernels)
        )
    )
