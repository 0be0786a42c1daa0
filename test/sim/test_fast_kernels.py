"""Whole kernels on both engines: identical memory, counters and findings; what the fast engine is for."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from corpus.device import SCHEDULES, Machine
from corpus.operands import operand
from corpus.triton import KERNELS
from spread import every

from mxcomp.sim.device import Device
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.fast import FastEngine, jit, object_cache

NAMES = (
    "scaled_e2m1_e2m1_mfma16_stages2",
    "scaled_e4m3_e2m1_mfma32_stages3",
    "scaled_e5m2_e5m2_mfma16_stages2",
)


def run(name: str, machine: Machine, m: int = 160, n: int = 192) -> np.ndarray[Any, Any]:
    kernel = KERNELS[name]
    constants, rng = kernel.constants, np.random.default_rng(7)
    k = 3 * constants["block_k"]
    a, b = operand(rng, constants["a_format"], m, k), operand(rng, constants["b_format"], n, k)
    inputs = {"a": a.packed, "b": b.packed, "a_scale": a.scales, "b_scale": b.scales}
    (c,) = kernel.run(machine, inputs, {"c": np.empty((m, n), np.float32)}, {"m": m, "n": n, "k": k})
    return c


CASES = [(name, schedule) for name in NAMES for schedule in SCHEDULES]


@pytest.mark.parametrize("case", every(len(SCHEDULES) + 1, CASES), ids="-".join)
def test_scaled_matmul(case: tuple[str, str]) -> None:
    """Tiles that M and N fill in part; by default each kernel in a schedule of its own."""
    name, schedule = case
    run(name, Machine("both", schedule))


@pytest.mark.parametrize("checks", every(5, [(), ("bounds",), ("race",), ("late",), ("hazard",), ("uninit",)]))
def test_checks_alone(checks: tuple[str, ...]) -> None:
    run(NAMES[0], Machine("both", checks=checks), 40, 48)


def test_findings_are_the_oracles() -> None:
    """A result that is too small: stores beyond it are reported alike, and go nowhere."""
    device = Device(engine="both")
    kernel = KERNELS["softmax"]
    module = device.load(kernel.code)
    x, y = device.alloc(4 * 1024 * 2), device.alloc(4 * 1024)
    device.write(x, np.ones((2, 1024), np.float32))
    launch = kernel.launch({"x": x.address, "y": y.address}, {"rows": 2, "columns": 1024})
    with pytest.raises(SimulationError, match="outside of every allocation"):
        device.launch(module.kernels[launch.kernel], launch.grid, launch.block, launch.kernarg, launch.dynamic_lds)


def test_differences_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that leaves the memory alone."""
    monkeypatch.setattr(FastEngine, "run", lambda self, dispatch: {})
    with pytest.raises(SimulationError, match=r"fast and numpy engine: \d+ bytes differ"):
        run(NAMES[0], Machine("both"))


def test_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine("fast")
    launch = machine.device.launch
    monkeypatch.setattr(machine.device, "launch", lambda *a, **k: launch(*a, **k, max_instructions=1000))
    with pytest.raises(SimulationError, match="more than 1000 instructions"):
        run(NAMES[0], machine)


def softmax() -> np.ndarray[Any, Any]:
    x = np.random.default_rng(7).standard_normal((2, 1024)).astype(np.float32)
    (y,) = KERNELS["softmax"].run(Machine("fast"), {"x": x}, {"y": x}, {"rows": 2, "columns": 1024})
    return y


def test_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Object code is kept and found again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = softmax()
    (stored,) = (tmp_path / "mxcomp" / "sim").glob("*.o")
    assert stored.stat().st_size > 1000
    for number in range(object_cache.KEPT):
        other = stored.with_name(f"{number}.o")
        other.touch()
        os.utime(other, (0, 0))
    jit.objects("another kernel", lambda: "define void @f() { ret void }")
    assert len(list(stored.parent.glob("*.o"))) == object_cache.KEPT
    monkeypatch.setattr(jit, "compile_module", lambda text: pytest.fail("compiled again"))
    assert np.array_equal(first, softmax())
