"""What the packet processor puts into registers before a wave starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mxcomp.sim.code_object import load
from mxcomp.sim.device import Device
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.instruction import EXEC
from mxcomp.sim.launch import Arguments, WaveStarter
from mxcomp.target import DEFAULT, get_target

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


def test_lanes_beyond_the_block_are_off() -> None:
    """In the last of its waves, which has 6 work-items here."""
    start = WaveStarter(next(iter(load(CODE).kernels.values())), (10, 7, 1), Arguments(0, 0, bytes(256)))
    masks = [[start((0, 0, 0), wave).sgprs[EXEC + k] for k in range(2)] for wave in range(2)]
    assert masks == [[0xFFFFFFFF, 0xFFFFFFFF], [0x3F, 0]]


def test_more_lds_than_there_is() -> None:
    """A byte is too many already."""
    device = Device(memory_bytes=1 << 20)
    kernel = next(iter(device.load(CODE).kernels.values()))
    beyond = get_target(DEFAULT).lds_bytes - kernel.descriptor.lds_bytes + 1
    with pytest.raises(SimulationError, match=f"bytes of LDS, {beyond} of them dynamic"):
        device.launch(kernel, (1, 1, 1), (64, 1, 1), bytes(256), beyond)
