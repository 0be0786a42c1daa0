"""Code objects that FlyDSL 0.4 made of `kernels.py`: see `make_flydsl.py`."""

from __future__ import annotations

from pathlib import Path

from corpus.stored import read_manifest

KERNELS = read_manifest(Path(__file__).parent)
