"""benchmarks/peers.py, as far as it needs no FlyDSL: routing, launches, the table of MoE layers, what is written."""

from __future__ import annotations

import struct
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import peers
import peers_launch
from peers_launch import Layer
from peers_report import BEGIN, END, Comparison, put, summary, table

from mxcomp.measuring import moe
from mxcomp.profiling import Estimate
from mxcomp.sim.device import Device

LAYER = Layer(40, 512, 256, 8, 3, 32, "fp4")


def modelled(us: float) -> Estimate:
    return Estimate(us, 0.9 * us, 1.1 * us, False, "HBM", {}, 0.0, 2.4, 0.0, 0.0, {})


def test_routing() -> None:
    """Every token goes to as many experts, once each; a block has rows of one expert."""
    routing = peers_launch.route(LAYER)
    rows, experts = routing.rows.reshape(-1, LAYER.block_m), routing.experts
    assert len(rows) == len(experts)
    np.testing.assert_array_equal(np.sort(experts), experts)
    slots, tokens = rows >> 24, rows & 0xFFFFFF
    real = tokens < LAYER.tokens
    assert (slots[~real] == LAYER.top_k).all() and (tokens[~real] == LAYER.tokens).all()
    assert not (real[:, 1:] & ~real[:, :-1]).any(), "rows to fill a block up are its last"
    pairs = Counter(zip(tokens[real].tolist(), slots[real].tolist(), strict=True))
    assert pairs == Counter((token, slot) for token in range(LAYER.tokens) for slot in range(LAYER.top_k))
    owners = {(int(t), int(e)) for block, e, r in zip(tokens, experts, real, strict=True) for t in block[r]}
    assert len(owners) == LAYER.tokens * LAYER.top_k
    again = peers_launch.route(LAYER)
    np.testing.assert_array_equal(again.rows, routing.rows)


def test_rows_for_mxcomp_bench(tmp_path: Path) -> None:
    """Layers with both GEMMs are lines that `mxcomp-bench --moe` reads, with the peer's times."""
    row = peers.Measured("small", LAYER, (10.0, 7.5))
    found = [Comparison("", "", us, modelled(us + 1)) for us in row.us]
    file = tmp_path / "rows.csv"
    file.write_text(peers.rows_with_peers([row, row], [found, found[:1]]))
    (read,), faults = moe.read(file)
    assert not faults
    assert (read.published, read.peer) == ((10.0, 7.5), (11.0, 8.5))
    assert read.layer == moe.Layer("small", "silu", 40, 512, 256, 8, 3, "f4E2M1FN", "f4E2M1FN")


def test_gemm_launch() -> None:
    """Pointers and lengths of A, B, C and scales."""
    grid, kernarg, result = peers_launch.gemm_launch(Device(memory_bytes=1 << 26), 512, 768, 1024)
    assert grid == (6, 1, 1)
    assert len(kernarg) == 84
    fields = [struct.unpack_from("<QI", kernarg, 16 * k) for k in range(5)]
    assert [length for _, length in fields] == [512 * 512, 768 * 512, 512 * 768, 512 * 32, 768 * 32]
    assert struct.unpack_from("<II", kernarg, 76) == (512, 768)
    assert fields[2][0] == result


@pytest.mark.parametrize(("a_type", "across"), [("fp4", 256 // 64), ("fp8", 2 * 256 // 64)])
def test_moe_launches(a_type: str, across: int) -> None:
    """Stage 1 has gate and up side by side for fp8, in one workgroup for fp4."""
    layer, device = replace(LAYER, a_type=a_type), Device(memory_bytes=1 << 26)
    routing = peers_launch.route(layer)
    blocks = len(routing.experts)
    first = peers_launch.moe_launch(device, layer, 1, 64, routing)
    second = peers_launch.moe_launch(device, layer, 2, 128, routing)
    assert (first.grid, second.grid) == ((across, blocks, 1), (4, blocks, 1))
    assert struct.unpack_from("<4i", first.kernarg, 88) == (40, 512, 512, blocks)
    assert struct.unpack_from("<4i", second.kernarg, 80) == (40, 512, 256, blocks)
    assert (len(first.kernarg), len(second.kernarg)) == (124, 96)


def test_measured_layers() -> None:
    """Each layer with its numbers of tokens, the fastest where there are several."""
    rows = peers.measured(peers.MOE)
    assert len(rows) == sum(map(len, peers.LAYERS.values()))
    (twice,) = (row for row in rows if row.model == "gptoss" and row.layer.tokens == 4096)
    assert twice.us == (442.3352, 256.1523)
    assert twice.layer == Layer(4096, 3072, 3072, 128, 4, 128, "fp8", "swiglu")


def test_kernels_serve_any_number_of_tokens() -> None:
    for stage in (1, 2):
        names = {peers.moe_request(replace(LAYER, tokens=n), stage, 64, 1).name for n in (1, 4096)}
        assert len(names) == 1
    assert peers.moe_request(LAYER, 1, 64, 4).constants["k_wave"] == 4
    assert (64, 4) in peers.tiles(LAYER, 1) and (64, 4) not in peers.tiles(replace(LAYER, block_m=64), 1)


def test_published_times() -> None:
    assert peers.us_of(8192, 8192, 8192, 5033) == pytest.approx(218.5, abs=0.05)
    assert peers.us_of(16384, 16384, 16384, 5495) == pytest.approx(1600.8, abs=0.1)


def test_tables() -> None:
    found = [Comparison("k", "1×2×3", 100.0, modelled(95.0)), Comparison("k", "4×5×6", 2000.0, modelled(2600.0))]
    first, second = table("kernel", found).splitlines()[2:]
    assert first == "| k, 1×2×3 | 100.0 | 95.0 | 85.5–104.5 | -5.0% | HBM |"
    assert second == "| k, 4×5×6 | 2000 | 2600 | 2340–2860 | +30.0% | HBM |"
    assert summary(found).startswith("2 times: bias +12.5%, median error 17.5%")
    assert summary(found).endswith("50% lie between low and high.")


def test_documents_keep_what_is_around_the_tables() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert put(text, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
