"""Programs drawn at random: a third of them, for pytest-xdist goes by files."""

import pytest
from drawn import check_one, numbers


@pytest.mark.parametrize("number", numbers(1))
def test_drawn(number: int) -> None:
    check_one(number)
