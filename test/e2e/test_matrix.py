"""The matrix of element types, problem shapes and result types, against its table in the documentation."""

from __future__ import annotations

from collections.abc import Iterator

import matrix_table
import pytest
from matrix import CASES, RESULTS, SHAPES, Case, outcomes
from matrix_table import Table
from modules import KINDS
from spread import every

SPREAD = [
    Case((list(KINDS)[i % 5], list(KINDS)[(2 * i + i // 5) % 5]), shape) for i, shape in enumerate([*SHAPES, *SHAPES])
]
"""Every shape of problem twice, each time with another pair."""


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    """What is documented; with --update-docs, what was found replaces it."""
    documented = matrix_table.parse(matrix_table.PATH.read_text()) if matrix_table.PATH.exists() else {}
    yield documented
    if request.config.getoption("--update-docs"):
        ordered = {(case, result): documented[case, result] for case in CASES for result in RESULTS}
        matrix_table.PATH.parent.mkdir(exist_ok=True)
        matrix_table.PATH.write_text(matrix_table.render(ordered))


def check(case: Case, table: Table, request: pytest.FixtureRequest) -> None:
    found = {(case, result): outcome for result, outcome in outcomes(case).items()}
    if request.config.getoption("--update-docs"):
        table.update(found)
    else:
        assert found == {key: table[key] for key in found}, "not what docs/reference/matrix.md says"


@pytest.mark.parametrize("case", every(2, SPREAD), ids=str)
def test_spread(case: Case, table: Table, request: pytest.FixtureRequest) -> None:
    """Each shape is there once by default, as the number of shapes is odd."""
    check(case, table, request)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_all(case: Case, table: Table, request: pytest.FixtureRequest) -> None:
    check(case, table, request)


def test_spread_has_everything_in_turn() -> None:
    assert len({case.types for case in SPREAD}) == len(SPREAD) == 2 * len(SHAPES)
    for side in (0, 1):
        assert {case.types[side] for case in SPREAD} == set(KINDS)
    assert set(SPREAD) <= set(CASES)


def test_documented_table_is_complete() -> None:
    """Every case in it, nothing else; and it is as it would be written."""
    page = matrix_table.PATH.read_text()
    table = matrix_table.parse(page)
    assert list(table) == [(case, result) for case in CASES for result in RESULTS]
    assert len(table) == 25 * len(SHAPES) * len(RESULTS)
    assert matrix_table.render(table) == page


def test_an_empty_cell_is_noticed() -> None:
    page = matrix_table.PATH.read_text()
    with pytest.raises(ValueError, match="expected ✓ or ✗"):
        matrix_table.parse(page.replace("| ✓ |", "|  |", 1))


def test_everything_documented_is_right() -> None:
    table = matrix_table.parse(matrix_table.PATH.read_text())
    assert not {outcome.note for outcome in table.values() if not outcome.right}
