"""Tests here use problems and helpers of the neighbouring folders."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parent.parent / folder) for folder in ("e2e", "sim")]
