"""Programs of other kinds, compiled by stock IREE for gfx950, give on the simulator what llvm-cpu gives."""

from __future__ import annotations

import numpy as np
import pytest
from stock import CPU_FLAGS, PROGRAMS, Program, compiled

from mxcomp.run import runtime


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_like_on_the_cpu(program: Program) -> None:
    expected = runtime.run(compiled(program.source, CPU_FLAGS), "main", program.inputs)
    found = runtime.run(compiled(program.source), "main", program.inputs, device="sim")
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert np.abs(theirs).max() > 0.01
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
