"""Examples are there as the README has them: slow tests run them, here they find what they import."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FIRST, *OTHERS = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def test_the_first_in_small() -> None:
    """README's first command, of a smaller layer."""
    main = runpy.run_path(str(FIRST), run_name="example")["main"]
    main.__globals__.update(M=16, N=64, K=512)
    assert main() == 0


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.name)
def test_imports(path: Path) -> None:
    pytest.importorskip("torch")
    assert callable(runpy.run_path(str(path), run_name="example")["main"])
