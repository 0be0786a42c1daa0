"""What tests of the simulated device share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """mxcomp-run sets variables for the rest of its process, which here goes on to other tests."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def numpy_engine(environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For programs so small, and so many, that the simulator would compile their kernels for longer than it runs them.

    Engines are compared in test/sim; that they run whole programs alike, in the tests here that do not take this.
    """
    if "MXCOMP_SIM_ENGINE" not in os.environ:
        monkeypatch.setenv("MXCOMP_SIM_ENGINE", "numpy")
