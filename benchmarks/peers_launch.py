"""Launches of FlyDSL's kernels, to be examined: arguments, grids and routing, as their host code gives them.

Sources: ROCm/FlyDSL, kernels/gemm/fp4_gemm_4wave.py; ROCm/aiter, aiter/ops/flydsl/moe_kernels.py. Operands are not
filled, but for what branches and addresses depend on.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.device import Device
from mxcomp.sim.timing.examination import Examination, examine

Ints = NDArray[np.int32]
BITS = {"fp4": 4, "fp8": 8}
_MEMORY = 16 << 30
_BLOCK = 32


@dataclass(frozen=True)
class Layer:
    """A grouped layer of a mixture of experts, for so many tokens.

    Attributes:
        block_m: Rows of a workgroup, all of one expert.
        a_type: "fp4" or "fp8": of activations in both GEMMs; weights are fp4.
    """

    tokens: int
    model_dim: int
    inter_dim: int
    experts: int
    top_k: int
    block_m: int
    a_type: str
    activation: str = "silu"


@dataclass(frozen=True)
class Routing:
    """Rows sorted by expert.

    Attributes:
        rows: int32[blocks · block_m]: slot · 2²⁴ + token; top_k · 2²⁴ + tokens where a block is filled up.
        experts: int32[blocks].
    """

    rows: Ints
    experts: Ints


def route(layer: Layer, seed: int = 0) -> Routing:
    """Every token to `top_k` different experts, drawn evenly: AITER's tuner takes the largest of normal scores."""
    scores = np.random.default_rng(seed).random((layer.tokens, layer.experts), dtype=np.float32)
    chosen = np.argpartition(-scores, layer.top_k - 1, axis=1)[:, : layer.top_k]
    slots = np.tile(np.arange(layer.top_k), layer.tokens)
    tokens, experts = np.repeat(np.arange(layer.tokens), layer.top_k), chosen.ravel()
    rows, owners = [], []
    for expert in np.unique(experts):
        mine = experts == expert
        blocks = -(-int(mine.sum()) // layer.block_m)
        filled = np.full(blocks * layer.block_m, layer.top_k << 24 | layer.tokens)
        filled[: mine.sum()] = slots[mine] << 24 | tokens[mine]
        rows.append(filled)
        owners += [expert] * blocks
    return Routing(np.concatenate(rows).astype(np.int32), np.array(owners, np.int32))


class Launch(NamedTuple):
    """A grid, an argument block, and where the result will be."""

    grid: tuple[int, int, int]
    kernarg: bytes
    result: int


Data = Mapping[str, NDArray[Any]]
"""Contents of operands by name: "a", "b", "a_scale", "b_scale", "weights"; of those that are missing, none."""


def gemm(path: Path, m: int, n: int, k: int) -> Examination:
    """FlyDSL's GEMM."""
    device = Device(memory_bytes=_MEMORY, checks=())
    return _examined(device, path, gemm_launch(device, m, n, k))


def gemm_launch(device: Device, m: int, n: int, k: int, data: Data | None = None) -> Launch:
    """With a tile of 256×256. Arguments are pointers with their number of elements, then M and N."""
    operands = (("a", m * k // 2, 1), ("b", n * k // 2, 1), ("c", m * n, 2), ("a_scale", m * k // _BLOCK, 1),
                ("b_scale", n * k // _BLOCK, 1))  # fmt: skip
    fields = [(_operand(device, data, name, count * size), count) for name, count, size in operands]
    kernarg = b"".join(struct.pack("<QIxxxx", address, count) for address, count in fields)
    return Launch((m // 256 * (n // 256), 1, 1), kernarg[:-4] + struct.pack("<II", m, n), fields[2][0])


def moe(path: Path, layer: Layer, stage: int, tile_n: int, routing: Routing | None = None) -> Examination:
    """One of a layer's two GEMMs."""
    device = Device(memory_bytes=_MEMORY, checks=())
    routed = route(layer) if routing is None else routing
    return _examined(device, path, moe_launch(device, layer, stage, tile_n, routed))


def moe_launch(
    device: Device, layer: Layer, stage: int, tile_n: int, routing: Routing, data: Data | None = None
) -> Launch:
    """Workgroups beyond the last block, which end at once, are left out."""
    rows, blocks = len(routing.rows), len(routing.experts)
    pairs, bits = layer.tokens * layer.top_k, BITS[layer.a_type]
    n, k = stage_sizes(layer, stage)
    a_rows = layer.tokens if stage == 1 else pairs
    result = 2 * (pairs * layer.inter_dim if stage == 1 else layer.tokens * layer.model_dim)
    buffers = [
        _filled(device, np.zeros(result, np.uint8)) if data else _operand(device, None, "c", result),
        _operand(device, data, "a", a_rows * k * bits // 8), _operand(device, data, "b", layer.experts * n * k // 2),
        _operand(device, data, "a_scale", rows * k // _BLOCK),
        _operand(device, data, "b_scale", layer.experts * n * k // _BLOCK),
        _filled(device, routing.rows), _filled(device, routing.experts),
        _operand(device, data, "weights", 4 * rows), _filled(device, np.array([rows, layer.tokens], np.int32)),
        _operand(device, None, "bias", _BLOCK),
    ]  # fmt: skip
    sizes = struct.pack("<4i", layer.tokens, n, k, blocks)
    if stage == 1:
        scale_columns = -(-layer.inter_dim // _BLOCK // 8) * 8
        buffers.append(_operand(device, None, "c_scale", -(-rows // 256) * 256 * scale_columns))
        sizes += struct.pack("<5f", 1, 1, 1, 1, 7 if layer.activation == "swiglu" else float("inf"))
    across = layer.inter_dim if stage == 1 and layer.a_type == "fp4" else n
    return Launch((across // tile_n, blocks, 1), struct.pack(f"<{len(buffers)}Q", *buffers) + sizes, buffers[0])


def stage_sizes(layer: Layer, stage: int) -> tuple[int, int]:
    """N and K; N of stage 1 is gate and up."""
    return (2 * layer.inter_dim, layer.model_dim) if stage == 1 else (layer.model_dim, layer.inter_dim)


def constants(layer: Layer, stage: int, tile_n: int, k_wave: int = 1) -> Mapping[str, Any]:
    """With which a stage's kernel is compiled: the defaults of AITER's host code, but for the tile."""
    shared = {
        "model_dim": layer.model_dim, "inter_dim": layer.inter_dim, "experts": layer.experts, "topk": layer.top_k,
        "tile_m": layer.block_m, "tile_n": tile_n, "tile_k": 256, "a_dtype": layer.a_type, "b_dtype": "fp4",
    }  # fmt: skip
    if stage == 2:
        return shared | {"doweight_stage2": True, "out_dtype": "bf16", "accumulate": True, "persist_m": 1}
    return shared | {
        "doweight_stage1": False, "out_dtype": layer.a_type, "act": layer.activation, "waves_per_eu": 3, "b_nt": 2,
        "k_wave": k_wave, "gate_mode": "interleave" if layer.a_type == "fp8" else "separated",
    }  # fmt: skip


def _examined(device: Device, path: Path, launch: Launch) -> Examination:
    (kernel,) = device.load(path.read_bytes()).kernels.values()
    return examine(device, kernel, launch.grid, launch.kernarg)


def _operand(device: Device, data: Data | None, name: str, nbytes: int) -> int:
    """The address of an operand; without data it is not even filled."""
    if data is None or name not in data:
        return device.memory.alloc(nbytes, fill=False).address
    assert data[name].nbytes == nbytes, f"{name}: {data[name].nbytes} bytes for {nbytes}"
    return _filled(device, data[name])


def _filled(device: Device, values: NDArray[Any]) -> int:
    buffer = device.alloc(values.nbytes)
    device.write(buffer, np.ascontiguousarray(values))
    return buffer.address
