"""AITER's MXFP4 GEMM kernels (ROCm/aiter, hsa/gfx950/f4gemm): launches of its code objects, to be examined.

Argument block and grid are those of AITER's host code (csrc/py_itfs_cu/asm_gemm_a4w4.cu). The user has a checkout; none
of its files is part of this package.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mxcomp.sim.code_object import Kernel
from mxcomp.sim.device import Device
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.memory import Buffer
from mxcomp.sim.timing.examination import Examination, examine
from mxcomp.sim.timing.trace import Trace

FOLDER = Path("hsa/gfx950/f4gemm")
NAME = "f4gemm_bf16_per1x32Fp4_BpreShuffle_{tile_m}x{tile_n}.co"
K_TILE = 256
SHORT = (1024, 2048)
"""Two values of K from which a workgroup's cycles, linear in K, are extrapolated to any other."""

_BLOCK, _SCALE_ROWS, _SLOT = 32, 256, 16
_MEMORY = 16 << 30
_THREADS = (256, 1, 1)
_RESULT = 1 << 44
"""The address of the result, where nothing is stored."""


@dataclass(frozen=True)
class Gemm:
    """D[m, n] bf16 = A[m, k] · B[n, k] of MXFP4, by the kernel of a tile."""

    m: int
    n: int
    k: int
    tile_m: int
    tile_n: int

    @property
    def grid(self) -> tuple[int, int, int]:
        return -(-self.n // self.tile_n), -(-self.m // self.tile_m), 1


class Kernels:
    """The code objects of an AITER checkout."""

    def __init__(self, checkout: Path) -> None:
        self.folder = checkout / FOLDER
        if not self.folder.is_dir():
            raise SimulationError(f"{checkout}: no checkout of ROCm/aiter: expected {FOLDER} in it")
        self._traced = lru_cache(maxsize=4096)(self._trace)
        self._loaded = lru_cache(maxsize=4)(self._load)

    def tiles(self) -> list[tuple[int, int]]:
        """Returns the tiles for which there is a kernel."""
        names = (file.stem.rpartition("_") for file in sorted(self.folder.glob(NAME.format(tile_m="*", tile_n="*"))))
        return [(int(m), int(n)) for _, _, tile in names for m, _, n in [tile.partition("x")]]

    def examine(self, gemm: Gemm) -> Examination:
        """Examines a launch. Raises SimulationError for a tile that has no kernel, and for unsupported sizes."""
        if min(gemm.m, gemm.n, gemm.k) < 1 or gemm.k % _BLOCK:
            raise SimulationError(f"{gemm.m}×{gemm.n}×{gemm.k}: expected positive sizes and K in blocks of {_BLOCK}")
        rows = min(gemm.m, gemm.tile_m)
        traces = [self._traced(gemm.tile_m, gemm.tile_n, rows, k) for k in SHORT]
        tiles = -(-gemm.k // K_TILE)
        short, long = (k // K_TILE for k in SHORT)
        beyond = (tiles - short) / (long - short)
        launched = self._launched(gemm)
        return launched.with_parts((traces[0], 1 - beyond), (traces[1], beyond))

    def _trace(self, tile_m: int, tile_n: int, rows: int, k: int) -> Trace:
        """Returns the trace of a workgroup with neighbours in both directions, unless it has few rows."""
        gemm = Gemm(rows if rows < tile_m else 2 * tile_m, 2 * tile_n, k, tile_m, tile_n)
        return self._launched(gemm).parts[0][0]

    def _launched(self, gemm: Gemm) -> Examination:
        device, kernel = self._loaded(gemm.tile_m, gemm.tile_n)
        with device.memory.temporary():
            return examine(device, kernel, gemm.grid, _arguments(device, gemm), _THREADS)

    def _load(self, tile_m: int, tile_n: int) -> tuple[Device, Kernel]:
        path = self.folder / NAME.format(tile_m=tile_m, tile_n=tile_n)
        if not path.is_file():
            raise SimulationError(f"no kernel for tile {tile_m}×{tile_n}: {path} does not exist")
        device = Device(memory_bytes=_MEMORY, checks=())
        (kernel,) = device.load(path.read_bytes()).kernels.values()
        return device, kernel


def _arguments(device: Device, gemm: Gemm) -> bytes:
    """Returns arguments with addresses of operands that are not filled: no branch depends on them."""
    m, n, k = gemm.m, gemm.n, gemm.k

    def operand(nbytes: int) -> Buffer:
        return device.memory.alloc(nbytes, fill=False)

    def scales(rows: int) -> Buffer:
        return operand(-(-rows // _SCALE_ROWS) * _SCALE_ROWS * (k // _BLOCK))

    a, b, a_scale, b_scale = operand(m * k // 2), operand(n * k // 2), scales(m), scales(n)
    fields: tuple[tuple[str, float], ...] = (
        ("Q", _RESULT), ("Q", 0), ("Q", a.address), ("Q", b.address), ("f", 1.0), ("f", 0.0),
        ("I", 0), ("I", 0), ("I", n), ("I", 0), ("I", k), ("I", 0), ("I", k), ("I", 0),
        ("I", m), ("I", n), ("I", k), ("Q", a_scale.address), ("Q", b_scale.address),
        ("I", k // _BLOCK), ("I", 0), ("I", k // _BLOCK), ("I", 0), ("I", 0),
    )  # fmt: skip
    return b"".join(struct.pack(f"<{kind}", value).ljust(_SLOT, b"\0") for kind, value in fields)
