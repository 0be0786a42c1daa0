"""Which of many cases run by default; with `-m slow` the others do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def quick_if(chosen: Callable[[Any], bool], cases: Iterable[Any]) -> list[Any]:
    """The cases as parameters of one test: those that are not chosen are slow."""
    return [case if chosen(case) else _slow(case) for case in cases]


def every(step: int, cases: Iterable[Any]) -> list[Any]:
    """The cases as parameters of one test: all but the first of each `step` are slow."""
    return [case if i % step == 0 else _slow(case) for i, case in enumerate(cases)]


def _slow(case: Any) -> Any:
    return pytest.param(case, marks=pytest.mark.slow)
