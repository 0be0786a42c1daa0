"""Tests here use problems and helpers of the neighbouring folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parent.parent / folder) for folder in ("e2e", "sim")]


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """mxcomp-run sets variables for the rest of its process, which here goes on to other tests."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
