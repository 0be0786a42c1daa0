"""What the tests of the corpora share."""

from __future__ import annotations

import numpy as np
import pytest
from corpus.device import MACHINES, Machine


@pytest.fixture(params=MACHINES, ids="-".join)
def machine(request: pytest.FixtureRequest) -> Machine:
    return Machine(*request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
