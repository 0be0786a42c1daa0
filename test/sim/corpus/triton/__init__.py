"""Code objects that Triton 3.9 made of `kernels.py`: see `make_triton.py`."""

from __future__ import annotations

from pathlib import Path

from corpus.stored import read_manifest

KERNELS = read_manifest(Path(__file__).parent)
