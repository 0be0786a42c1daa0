"""Published layers of experts, beside what is modelled for ours: at least 0.81 × as fast, or as fast as can be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mxcomp.formats import MX_BLOCK, element_format
from mxcomp.measuring.moe import Entry, modelled, read
from mxcomp.sim.timing.parameters import mi355x

TABLE = Path(__file__).parents[2] / "benchmarks" / "data" / "mi355x_mx_moe.csv"
MODELS = ("gptoss", "dsv3", "kimik2", "qwen3")
LEAST, MEAN = 0.81, 1.08
BEYOND = 11
"""Lines that no kernel could bring to `LEAST` at the calibrated rate of HBM."""


def floor_us(entry: Entry) -> float:
    """µs of three launches, of which those that read weights run on all CUs, and, at HBM's rate, weights of active
    experts, and bf16 results written, read and summed."""
    p, slots = mi355x(), entry.tokens * entry.top_k
    bits = element_format(entry.w_type).bits + 8 / MX_BLOCK
    weights = entry.active_experts * 3 * entry.inter_dim * entry.model_dim * bits / 8
    results = (2 * slots + entry.tokens) * entry.model_dim * 2
    return 3 * p.launch_us + 2 * p.dispatch_us + (weights + results) / (p.hbm_terabytes * 1e6)


@pytest.mark.slow
def test_published_layers() -> None:
    rows, faults = read(TABLE)
    assert not faults
    found = [entry for _, entry in modelled([row for row in rows if row.layer.model in MODELS])]
    entries = [entry for entry in found if isinstance(entry, Entry) and entry.published_us]
    assert len(entries) == 388
    speed = {entry: (entry.published_us or 0) / entry.ours_us for entry in entries}
    below = [entry for entry in entries if speed[entry] < LEAST]
    assert all(entry.tokens <= 128 and entry.experts == 385 for entry in below)
    assert len(below) <= BEYOND
    for entry in below:
        assert floor_us(entry) > (entry.published_us or 0) / LEAST, entry
        assert floor_us(entry) > 0.97 * entry.ours_us, entry
    assert np.exp(np.mean(np.log(list(speed.values())))) >= MEAN
