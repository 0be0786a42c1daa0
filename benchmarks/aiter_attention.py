"""AITER's attention (ROCm/aiter, hsa/gfx950): its code objects of MX operands and of bf16, replayed.

Argument blocks and grids are those of AITER's host code (csrc/py_itfs_cu/asm_mha_v4_fwd.cu, aiter/ops/mha_v4.md;
csrc/include/mha_fwd.h).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from mxcomp.sim.device import Device
from mxcomp.sim.timing.estimates import estimate
from mxcomp.sim.timing.examination import examine

FOLDER = Path("hsa/gfx950/fmha_v4_fwd")
_BF16 = "hsa/gfx950/fmha_v3_fwd/fwd_hd128_bf16"
_SIZE, _TILE, QUERIES, _THREADS = 128, 128, 256, 512
_MEMORY, _DENSE = 16 << 30, 5


@dataclass(frozen=True)
class Kernel:
    """A code object: bits of queries and keys, and of values; bytes of a tile of keys, where they have tiles."""

    name: str
    qk: int
    v: int
    key_tile: int = 0
    key_row: int = 0


KERNELS = {
    ("E4M3", "E4M3", "E4M3"): Kernel("fp8", 8, 8),
    ("E2M3", "E4M3", "E4M3"): Kernel("mxfp6", 6, 8, 17408, 96),
    ("E2M1", "E4M3", "E4M3"): Kernel("mxfp4", 4, 8, 8192, 64),
    ("E2M3", "E2M1", "E4M3"): Kernel("f6f4", 6, 4, 17408, 96),
    ("E2M1", "E2M1", "E4M3"): Kernel("f4f4", 4, 4, 8192, 64),
}
"""AITER's kernels by the formats of queries and keys, of values, and of weights."""


def us(checkout: Path, kernel: Kernel, heads: int, length: int) -> float:
    """Modelled µs of attention of all keys, of one batch."""
    device = Device(memory_bytes=_MEMORY, checks=())
    path = checkout / FOLDER / f"fwd_hd{_SIZE}_{kernel.name}.co"
    (loaded,) = device.load(path.read_bytes()).kernels.values()
    grid = (-(-length // QUERIES), heads, 1)
    work = examine(device, loaded, grid, _arguments(device, kernel, heads, length), (_THREADS, 1, 1), asks=False)
    return estimate(work).us


def bf16_us(checkout: Path, batch: int, heads: int, key_heads: int, length: int, is_causal: bool) -> float:
    """Modelled µs of attention of bf16; of a causal one a workgroup has two tiles of queries, as far from both ends."""
    device = Device(memory_bytes=_MEMORY, checks=())
    path = checkout / f"{_BF16}{'_causal' if is_causal else ''}.co"
    (loaded,) = device.load(path.read_bytes()).kernels.values()
    row, head = 2 * _SIZE, 2 * _SIZE * length
    query, key = heads * head, key_heads * head
    result, *given = (device.memory.alloc(batch * size, fill=False).address for size in (query, query, key, key))
    sums = device.memory.alloc(4 * batch * heads * length, fill=False).address
    numbers = (
        length, row, QUERIES * row, head, query, heads // key_heads, row, head, key, _DENSE, 0, length,
        _SIZE, _SIZE, heads, row, head, key, row, head, query,
    )  # fmt: skip
    fields: list[tuple[str, float]] = [("Q", each) for each in (result, *given, sums)]
    fields += [("f", _SIZE**-0.5), *(("I", each) for each in numbers)]
    fields += [("Q", 0), ("Q", 0), ("I", 0), *[("Q", 0)] * 5, *[("I", 0)] * 6]
    tiles = -(-length // QUERIES)
    grid = (-(-tiles // 2) if is_causal else tiles, heads, batch)
    work = examine(device, loaded, grid, _packed(fields), (_THREADS, 1, 1), asks=False)
    return estimate(work).us


def _packed(fields: list[tuple[str, float]]) -> bytes:
    """Fields in slots of 16 bytes."""
    return b"".join(struct.pack(f"<{kind}", value).ljust(16, b"\0") for kind, value in fields)


def _arguments(device: Device, kernel: Kernel, heads: int, length: int) -> bytes:
    """Addresses of operands that are not filled."""

    def operand(nbytes: int) -> int:
        return device.memory.alloc(nbytes, fill=False).address

    row, tiles, all_rows = _SIZE * kernel.qk // 8, -(-length // _TILE), heads * length
    key_head, key_row = (tiles * kernel.key_tile, kernel.key_row) if kernel.key_tile else (_SIZE, _SIZE * heads)
    value_head, value_row = (_SIZE, _SIZE * heads) if kernel.v == 8 else (length * _SIZE * kernel.v // 8, 64)
    value_scales = 512 * (tiles if kernel.v < 8 else 1)
    spare = _SIZE * _TILE
    result, query, key, value = (operand(all_rows * size + spare) for size in (2 * _SIZE, row, _SIZE, _SIZE))
    scales = [operand(size + spare) for size in (4 * all_rows, 4 * all_rows, heads * value_scales)]
    numbers = (
        length, row * heads, QUERIES * row * heads, row, all_rows * row, 1, key_row, key_head, all_rows * row, _DENSE,
        0, length, _SIZE, _SIZE, heads, value_row, value_head, all_rows * _SIZE, 2 * _SIZE * heads, 2 * _SIZE,
        2 * _SIZE * all_rows,
    )  # fmt: skip
    strides = 4 * all_rows, 4, 4 * all_rows, 4, heads * value_scales, value_scales
    fields: list[tuple[str, float]] = [("Q", each) for each in (result, query, key, value, 0)]
    fields += [("f", _SIZE**-0.5), *(("I", each) for each in numbers)]
    fields += [("Q", 0), ("Q", 0), ("I", 0), ("Q", 0), ("Q", 0), *(("Q", each) for each in scales)]
    fields += [("I", each) for each in strides]
    return _packed(fields)
