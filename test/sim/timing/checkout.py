"""A folder with the form of a checkout of ROCm/aiter, whose kernels are ours."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernels_from_ir import code_object

from mxcomp.sim.timing.aiter import FOLDER, NAME

KERNEL = Path(__file__).parents[1] / "kernels" / "rows.ll"
TILE_M, TILE_N = 32, 128


def make(folder: Path) -> Path:
    """With a kernel for one tile."""
    path = folder / FOLDER / NAME.format(tile_m=TILE_M, tile_n=TILE_N)
    path.parent.mkdir(parents=True)
    path.write_bytes(code_object(KERNEL))
    return folder
