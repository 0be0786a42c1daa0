"""Tables for people: as wide as the terminal, with nothing cropped."""

from __future__ import annotations

from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxcomp.support import tables
from mxcomp.support.tables import Column

WORDS = st.text("abcdefgh:×_ ", max_size=30).map(lambda text: " ".join(text.split()))


def shown(columns: list[Column], rows: list[list[str]], width: int) -> str:
    stream = StringIO()
    tables.show(stream, columns, rows, "title", "caption", width)
    return stream.getvalue()


@given(
    st.lists(st.builds(Column, WORDS.filter(bool), st.booleans(), st.just(False), st.sampled_from((0, 8))), min_size=1),
    st.integers(50, 200),
    st.data(),
)
def test_every_cell_is_there(columns: list[Column], width: int, data: st.DataObject) -> None:
    """In lines no wider than asked for, every cell in its order of letters, for all of its columns."""
    row = [data.draw(WORDS) for _ in columns]
    text = shown(columns, [row], width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    one = "".join(char for char in text if char in "abcdefgh:×_")
    for column, cell in zip(columns, row, strict=True):
        if column.fold == 0 and cell:
            assert cell in text
        assert len(cell) == 0 or cell[0] in one


def test_empty_columns_are_left_out() -> None:
    text = shown([Column("name"), Column("MFMA"), Column("LDS bytes"), Column("note")], [["a", "0", "5", "-"]] * 2, 80)
    assert "LDS bytes" in text
    assert "MFMA" not in text
    assert "note" not in text


def test_the_last_optional_column_goes_first() -> None:
    columns = [Column("name"), Column("first", optional=True), Column("second", optional=True)]
    rows = [["a" * 20, "b" * 20, "c" * 20]]
    assert [name for name in ("first", "second") if name in shown(columns, rows, 60)] == ["first"]
    assert [name for name in ("first", "second") if name in shown(columns, rows, 30)] == []


def test_what_does_not_fit_stands_below() -> None:
    """With the first column again: no column is ever two letters wide."""
    rows = [[f"row {k}", "b" * 30, "c" * 30] for k in range(2)]
    text = shown([Column("name"), Column("first"), Column("second")], rows, 60)
    assert [text.count(part) for part in ("row 0", "row 1", "first", "second", "b" * 30)] == [2, 2, 1, 1, 2]


@pytest.mark.parametrize(
    ("names", "common"),
    [
        ([], ""),
        (["a.b.c"], ""),
        (["a.b.c", "a.b.c"], ""),
        (["model.layers.0.up", "model.layers.1.up"], "model."),
        (["model.layers.0.mlp.up", "model.layers.0.mlp.down", "model.layers.0.norm"], "model.layers.0."),
        (["model.embed", "lm_head"], ""),
        (["model.norm", "model"], ""),
        (["0.a", "0.b"], "0."),
        (["x.0", "x.1"], ""),
    ],
)
def test_prefix(names: list[str], common: str) -> None:
    assert tables.prefix(names) == common


@pytest.mark.parametrize(("said", "width"), [("80", 80), ("", 140), ("none", 140), ("0", 140)])
def test_width_where_there_is_no_terminal(said: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", said)
    assert tables.width_of(StringIO()) == width


@pytest.mark.parametrize(
    ("names", "one"),
    [
        ([], ""),
        (["a.0.b"], "a.0.b"),
        (["a.0.b", "a.11.b"], "a.*.b"),
        (["a.0.b", "a.1"], "a.0.b or a.1"),
    ],
)
def test_several_names_as_one(names: list[str], one: str) -> None:
    assert tables.starred(names) == one


@given(st.text("ab _.,/\n×", max_size=60), st.integers(1, 20))
def test_folding_loses_nothing(text: str, width: int) -> None:
    """But for spaces at the ends of lines, which are no longer than asked for."""
    stream = StringIO()
    tables.say(stream, text, width)
    assert "".join(stream.getvalue().split()) == "".join(text.split())
    assert all(len(line) <= width for line in stream.getvalue().splitlines())
