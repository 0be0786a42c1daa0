"""Runs FlyDSL's kernels on the simulator, and compares with float64: that what is modelled is the right work.

Operands are those of the test corpus (test/sim/corpus/operands.py). Layouts are those of AITER's host code
(aiter/ops/shuffle.py): B in tiles of 16 rows × 16 bytes, scales in tiles of 32 rows × 8.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import peers_launch
from numpy.typing import NDArray
from peers_launch import Launch, Layer

from mxcomp.sim.device import Device
from mxcomp.sim.memory import Buffer

sys.path.insert(0, str(Path(__file__).parents[1] / "test" / "sim"))

from corpus.operands import Operand, operand

GEMM = 512, 512, 2048
LAYERS = tuple(Layer(40, 512, 256, 4, 2, 32, a_type) for a_type in ("fp4", "fp8"))
TILE_N = 128
_FORMATS = {"fp4": "e2m1", "fp8": "e4m3"}
_TOLERANCE = 2.0**-7
"""Of the result's largest: a bf16 for each of the experts that are added."""

Floats = NDArray[np.float64]


def tiled(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of bytes, as kernels read B."""
    rows, width = codes.shape
    return codes.reshape(rows // 16, 16, width // 16, 16).transpose(0, 2, 1, 3)


def tiled_scales(scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    rows, blocks = scales.shape
    return scales.reshape(rows // 32, 2, 16, blocks // 8, 2, 4).transpose(0, 3, 5, 2, 4, 1)


def interleaved(rows: NDArray[Any], experts: int) -> NDArray[Any]:
    """Gate and up by turns, 16 rows of each."""
    return rows.reshape(experts, 2, -1, 16, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def gemm(path: Path) -> str:
    m, n, k = GEMM
    rng, device = np.random.default_rng(0), Device()
    a, b = operand(rng, "e2m1", m, k), operand(rng, "e2m1", n, k)
    data = {"a": a.packed, "b": tiled(b.packed), "a_scale": tiled_scales(a.scales), "b_scale": tiled_scales(b.scales)}
    launch = peers_launch.gemm_launch(device, m, n, k, data)
    return _compared(device, path, launch, a.values @ b.values.T)


def moe(path: Path, layer: Layer, stage: int) -> str:
    """Stage 1 with a bf16 result, which is not quantised again."""
    rng, device = np.random.default_rng(0), Device()
    n, k = peers_launch.stage_sizes(layer, stage)
    pairs = layer.tokens * layer.top_k
    a = _mild(rng, _FORMATS[layer.a_type], layer.tokens if stage == 1 else pairs, k)
    b = _mild(rng, "e2m1", layer.experts * n, k)
    routing = peers_launch.route(layer)
    tokens, slots = routing.rows & 0xFFFFFF, routing.rows >> 24
    real = tokens < layer.tokens
    owner = routing.experts.repeat(layer.block_m)[real]
    source = (tokens if stage == 1 else tokens * layer.top_k + slots)[real]
    a_scale = np.full((len(real), k // 32), 127, np.uint8)
    a_scale[real] = a.scales[source]
    weights = rng.random(len(real), dtype=np.float32)
    codes, scales = b.packed, b.scales
    if stage == 1 and layer.a_type == "fp8":
        codes, scales = interleaved(codes, layer.experts), interleaved(scales, layer.experts)
    data = {"a": a.packed, "b": tiled(codes), "a_scale": tiled_scales(a_scale), "b_scale": tiled_scales(scales),
            "weights": weights}  # fmt: skip
    products = np.einsum("rk,rnk->rn", a.values[source], b.values.reshape(layer.experts, n, k)[owner])
    if stage == 1:
        gate, up = np.split(products, 2, axis=1)
        expected = np.zeros((pairs, layer.inter_dim))
        expected[(tokens * layer.top_k + slots)[real]] = gate / (1 + np.exp(-gate)) * up
    else:
        expected = np.zeros((layer.tokens, layer.model_dim))
        np.add.at(expected, tokens[real], weights[real, None] * products)
    launch = peers_launch.moe_launch(device, layer, stage, TILE_N, routing, data)
    return _compared(device, path, launch, expected)


def _mild(rng: np.random.Generator, name: str, rows: int, k: int) -> Operand:
    """With scales near 1/16, so that sigmoids are not all 0 or 1."""
    codes = operand(rng, name, rows, k).codes
    return Operand(name, codes, rng.integers(121, 126, (rows, k // 32), dtype=np.uint8))


def _compared(device: Device, path: Path, launch: Launch, expected: Floats) -> str:
    """What checks report is no failure: they find a race in one of these kernels."""
    (kernel,) = device.load(path.read_bytes()).kernels.values()
    stats = device.launch(kernel, launch.grid, None, launch.kernarg, raise_on_error=False)
    found = device.read(Buffer(launch.result, 2 * expected.size), ml_dtypes.bfloat16, expected.shape)
    error = np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max()
    verdict = "right" if error <= _TOLERANCE else "WRONG"
    lines = [f"{path.stem}: {verdict}, error {error:.1e} of the largest, {len(stats.findings)} findings"]
    return "\n  ".join([*lines, *_kinds(str(finding) for finding in stats.findings)])


def _kinds(findings: Iterator[str]) -> list[str]:
    """Each text once, without its place."""
    return sorted({finding.partition(" at 0x")[0] for finding in findings})
