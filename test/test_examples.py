"""Examples are there as the README has them: those that are run by slow tests only find what they import."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_imports(path: Path) -> None:
    pytest.importorskip("torch")
    assert callable(runpy.run_path(str(path), run_name="example")["main"])
