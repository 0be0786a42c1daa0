"""What the tests of whole programs share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs here are small: the simulator would compile their kernels for longer than it then runs them."""
    if "MXCOMP_SIM_ENGINE" not in os.environ:
        monkeypatch.setenv("MXCOMP_SIM_ENGINE", "numpy")
