"""What the packet processor puts into registers before a wave starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mxcomp.sim.code_object import load
from mxcomp.sim.launch import Arguments, WaveStarter

CODE = (Path(__file__).parent / "kernels" / "faults.hsaco").read_bytes()


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_work_item_ids(dims: int) -> None:
    """v0 holds the dimensions that a kernel asks for and nothing of others: code for x alone does not mask it."""
    kernel = next(iter(load(CODE).kernels.values()))
    rsrc2 = kernel.descriptor.rsrc2 & ~(3 << 11) | dims - 1 << 11
    asking = replace(kernel, descriptor=replace(kernel.descriptor, rsrc2=rsrc2))
    start = WaveStarter(asking, (4, 8, 4), Arguments(0, 0, bytes(256)))((0, 0, 0), 1)
    item = 64 + np.arange(64)
    ids = [item % 4, item // 4 % 8, item // 32]
    expected = sum(ids[d] << 10 * d for d in range(dims))
    np.testing.assert_array_equal(start.v0, expected)
