"""Whole kernels on both engines: identical memory, counters and findings; what the fast engine is for."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from corpus.device import SCHEDULES, Machine
from corpus.operands import operand
from corpus.triton import KERNELS

from mxcomp.sim.counters import Counters
from mxcomp.sim.device import Device
from mxcomp.sim.engine import Dispatch, Workgroup
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.fast import FastEngine, jit
from mxcomp.sim.findings import Findings
from mxcomp.sim.numpy_engine import NumpyEngine

NAMES = (
    "scaled_e2m1_e2m1_mfma16_stages2",
    "scaled_e4m3_e2m1_mfma32_stages3",
    "scaled_e5m2_e5m2_mfma16_stages2",
)


class Both:
    """Runs a dispatch on the oracle, then on the fast engine from the same state, and compares."""

    name = "both"
    checks = FastEngine.checks

    def __init__(self) -> None:
        self.oracle, self.fast = NumpyEngine(), FastEngine()

    def run(self, dispatch: Dispatch) -> dict[Workgroup, Counters]:
        memory = dispatch.memory
        used = slice(0, int(memory.ranges()[1].max()))
        before = memory.data[used].copy(), memory.written[used].copy()
        expected = self.oracle.run(dispatch)
        after = memory.data[used].copy(), memory.written[used].copy()
        memory.data[used], memory.written[used] = before
        again = replace(dispatch, findings=Findings())
        found = self.fast.run(again)
        assert np.array_equal(memory.data[used], after[0])
        assert np.array_equal(memory.written[used], after[1])
        assert found == expected
        assert again.findings.all() == dispatch.findings.all()
        return expected


def machine_of(engine: Any, monkeypatch: pytest.MonkeyPatch, schedule: str = "forward") -> Machine:
    monkeypatch.setattr("mxcomp.sim.device.make_engine", lambda name: engine)
    machine = Machine(schedule)
    machine.device = Device(checks=("bounds",), schedule=schedule, seed=3)  # type: ignore[arg-type]
    return machine


def run(name: str, machine: Machine, m: int = 160, n: int = 192) -> np.ndarray[Any, Any]:
    kernel = KERNELS[name]
    constants, rng = kernel.constants, np.random.default_rng(7)
    k = 3 * constants["block_k"]
    a, b = operand(rng, constants["a_format"], m, k), operand(rng, constants["b_format"], n, k)
    inputs = {"a": a.packed, "b": b.packed, "a_scale": a.scales, "b_scale": b.scales}
    (c,) = kernel.run(machine, inputs, {"c": np.empty((m, n), np.float32)}, {"m": m, "n": n, "k": k})
    return c


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", NAMES)
def test_scaled_matmul(name: str, schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles that M and N fill in part."""
    run(name, machine_of(Both(), monkeypatch, schedule))


def test_findings_are_the_oracles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that is too small: stores beyond it are reported alike, and go nowhere."""
    engine = Both()
    monkeypatch.setattr("mxcomp.sim.device.make_engine", lambda name: engine)
    device = Device(checks=("bounds",))
    kernel = KERNELS["softmax"]
    module = device.load(kernel.code)
    x, y = device.alloc(4 * 1024 * 2), device.alloc(4 * 1024)
    device.write(x, np.ones((2, 1024), np.float32))
    launch = kernel.launch({"x": x.address, "y": y.address}, {"rows": 2, "columns": 1024})
    with pytest.raises(SimulationError, match="outside of every allocation"):
        device.launch(module.kernels[launch.kernel], launch.grid, launch.block, launch.kernarg, launch.dynamic_lds)


def test_other_checks_are_refused() -> None:
    with pytest.raises(SimulationError, match="cannot check"):
        Device(engine="fast", checks=("race",))


def test_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_of(FastEngine(), monkeypatch)
    launch = machine.device.launch
    monkeypatch.setattr(machine.device, "launch", lambda *a, **k: launch(*a, **k, max_instructions=1000))
    with pytest.raises(SimulationError, match="more than 1000 instructions"):
        run(NAMES[0], machine)


def test_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Object code is kept and found again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = run(NAMES[0], machine_of(FastEngine(), monkeypatch))
    (stored,) = (tmp_path / "mxcomp" / "sim").glob("*.o")
    assert stored.stat().st_size > 1000
    monkeypatch.setattr(jit, "compile_module", lambda text: pytest.fail("compiled again"))
    assert np.array_equal(first, run(NAMES[0], machine_of(FastEngine(), monkeypatch)))


class Timed:
    """Runs a dispatch twice; `seconds` are the second time's, of this process."""

    def __init__(self, engine: NumpyEngine | FastEngine) -> None:
        self.engine, self.checks, self.name, self.seconds = engine, engine.checks, engine.name, 0.0

    def run(self, dispatch: Dispatch) -> dict[Workgroup, Counters]:
        self.engine.run(dispatch)
        start = time.process_time()
        counters = self.engine.run(dispatch)
        self.seconds = time.process_time() - start
        return counters


def test_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ratio of the engines on an FP4 product, compiled; printed, and far from what would make it useless."""
    numpy_engine, fast = Timed(NumpyEngine()), Timed(FastEngine())
    for engine in (numpy_engine, fast):
        run(NAMES[0], machine_of(engine, monkeypatch))
    ratio = numpy_engine.seconds / fast.seconds
    print(f"numpy {numpy_engine.seconds:.3f} s, fast {fast.seconds:.4f} s: {ratio:.0f} times")
    assert ratio > 5
