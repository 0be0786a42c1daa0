"""What mxcomp-compile writes with --emit-mlir-bytecode is read back, whatever phase it is of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from spread import quick_if

import mxcomp
from mxcomp.tools import compile, opt

SOURCE = Path(__file__).parents[2] / "examples" / "first.mlir"


def inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    elements = [rng.choice([-1.5, -1, 0.5, 2, 3], (rows, 16, 32)) for rows in (64, 256)]
    scales = [np.exp2(rng.integers(-3, 4, (rows, 16))) for rows in (64, 256)]
    return [
        *(each.astype(ml_dtypes.float8_e4m3fn) for each in elements),
        *(each.astype(np.float32).astype(ml_dtypes.float8_e8m0fnu) for each in scales),
    ]


def expected(x: np.ndarray, w: np.ndarray, x_scales: np.ndarray, w_scales: np.ndarray) -> np.ndarray:
    pairs = (x, x_scales), (w, w_scales)
    a, b = ((e.astype(np.float64) * s.astype(np.float64)[..., None]).reshape(len(e), -1) for e, s in pairs)
    return a @ b.T


def tool(main: Callable[[list[str]], int], *arguments: object) -> None:
    assert main([*map(str, arguments)]) == 0


@pytest.mark.parametrize("phase", quick_if(lambda phase: phase == "flow", ["input", "preprocessing", "flow"]))
def test_read_back(phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile, "set_global_flags", lambda *_: None)  # which IREE takes once, before all else
    written, passed = tmp_path / "first.mlirbc", tmp_path / "passed.mlir"
    tool(compile.main, SOURCE, f"--compile-to={phase}", "--emit-mlir-bytecode", "-o", written)
    assert written.read_bytes().startswith(b"ML\xefR")
    tool(opt.main, written, "--pass-pipeline=builtin.module(mxcomp-recognise)", "-o", passed)
    assert "util.func" in passed.read_text() or "func.func" in passed.read_text()
    arrays = inputs()
    made = tmp_path / "first.vmfb"
    tool(compile.main, written, "-o", made)
    for program in (mxcomp.Program.load(made), mxcomp.compile(written.read_bytes())):
        (y,) = program.run(*arrays)
        np.testing.assert_allclose(y, expected(*arrays), rtol=0, atol=1e-3)
