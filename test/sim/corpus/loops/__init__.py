"""Loops of the kinds that AMD measured on gfx950.

Those with eight waves are code objects that Triton 3.9 made of `kernels.py`: see `make_loops.py`. Those with four are
assembled when they are asked for: see `four_waves.py`.
"""

from __future__ import annotations

from pathlib import Path

from corpus.stored import read_manifest

KERNELS = read_manifest(Path(__file__).parent)
