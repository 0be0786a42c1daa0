"""Prints tables that fit the terminal: no cell is cropped, and no column is squeezed to a few letters.

What says nothing is left out: empty columns, and what all names begin with. Where a table is wider than the terminal,
columns that are optional go, the last first; those left that do not fit stand below, in a table of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.table import Table

FILE_COLUMNS = 140
"""The width where the output is no terminal, and COLUMNS does not give another."""

_PIECE = re.compile(r"[^\s_.,/:×]*(?:[_.,/:×]+\s*|\s+|$)")
"""Matches a piece of text that is not broken when a line is folded."""
_EMPTY = ("", "-", "0")
_FRAME, _BETWEEN = 1, 3
"""The width of a table's frame: of its edges, and of the separator of each column."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        right: Of numbers.
        optional: May be left out where the width is short.
        fold: Its text may be folded to so many columns; 0: it never is.
        text: What it says of an entry, for `rows`.
    """

    name: str
    right: bool = False
    optional: bool = False
    fold: int = 0
    text: Callable[[Any], str] = str


def rows(columns: Sequence[Column], entries: Iterable[Any]) -> list[list[str]]:
    """Returns what the columns say of each entry."""
    return [[column.text(entry) for column in columns] for entry in entries]


def show(
    stream: TextIO, columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str = "", caption: str = "",
    width: int | None = None,
) -> None:  # fmt: skip
    """Prints a table, as wide as the stream or as `width` says."""
    from rich.console import Console

    width = width or width_of(stream)
    say(stream, title, width)
    for table in fitted(columns, rows, width):
        Console(file=stream, width=width).print(table)
    say(stream, caption, width)


def say(stream: TextIO, text: str, width: int | None = None, indent: str = "") -> None:
    """Prints text next to a table, in lines as wide as that may be; further lines are indented by two columns."""
    room = (width or width_of(stream)) - len(indent)
    for number, line in enumerate(_folded(text, room - 2 * bool(indent)).splitlines()):
        print(indent + "  " * bool(indent and number) + line, file=stream)


def width_of(stream: TextIO, otherwise: int = FILE_COLUMNS) -> int:
    """Returns the width of a terminal, or the value of COLUMNS."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(stream.fileno()).columns or otherwise
    except (OSError, ValueError):  # no terminal
        return otherwise


def fitted(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[Table]:
    """Returns a table no wider than `width`, or several with the same first column."""
    full = [k for k in range(len(columns)) if any(row[k] not in _EMPTY for row in rows)] or [0]
    widths = {k: _width(columns[k], [row[k] for row in rows]) for k in full}
    kept = full
    while _total(widths, kept) > width and (optional := [k for k in kept[1:] if columns[k].optional]):
        kept = [k for k in kept if k != optional[-1]]
    parts = _parts(kept, widths, width)
    return [_table(part, columns, rows, width - _total(widths, part), widths) for part in parts]


def _width(column: Column, cells: Sequence[str]) -> int:
    """Returns the least width of a column: its head may be folded between words."""
    words = max((_cells(word) for word in column.name.split()), default=0)
    widest = max((_cells(line) for text in cells for line in text.split("\n")), default=0)
    return max(words, min(widest, column.fold) if column.fold else widest)


def _natural(column: Column, cells: Sequence[str]) -> int:
    return max(_cells(line) for text in (column.name, *cells) for line in text.split("\n"))


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _total(widths: dict[int, int], part: Sequence[int]) -> int:
    return _FRAME + sum(widths[k] + _BETWEEN for k in part)


def _parts(kept: Sequence[int], widths: dict[int, int], width: int) -> list[list[int]]:
    """Returns the columns of each table."""
    first, *others = kept
    parts = [[first]]
    for k in others:
        if len(parts[-1]) > 1 and _total(widths, [*parts[-1], k]) > width:
            parts.append([first])
        parts[-1].append(k)
    return parts


def _table(
    part: Sequence[int], columns: Sequence[Column], rows: Sequence[Sequence[str]], spare: int, widths: dict[int, int]
) -> Table:
    """Returns one table; columns that fold get the remaining width, the first that needs it first."""
    from rich.table import Table
    from rich.text import Text

    table, given = Table(), dict[int, int]()
    for k in part:
        column, cells = columns[k], [row[k] for row in rows]
        more = min(max(spare, 0), _natural(column, cells) - widths[k])
        spare -= more
        given[k] = widths[k] + more
        table.add_column(
            column.name, justify="right" if column.right else "left", overflow="fold", width=given[k],
        )  # fmt: skip
    for row in rows:
        table.add_row(*(Text(_folded(row[k], given[k])) for k in part))
    return table


def _folded(text: str, width: int) -> str:
    """Returns text in lines of at most `width`, folded between words, or else behind a sign within a word."""
    return "\n".join(line for each in text.split("\n") for line in _lines(each, width))


def _lines(text: str, width: int) -> list[str]:
    lines = [""]
    for piece in _PIECE.findall(text):
        if _cells(lines[-1] + piece.rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += piece
        while _cells(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return [line.rstrip() for line in lines]


def prefix(names: Sequence[str], separator: str = ".") -> str:
    """Returns the common prefix of names up to a separator: "model."; "" if there is none. The rest never begins with a
    number."""
    if len(set(names)) < 2:
        return ""
    parts = zip(*(name.split(separator)[:-1] for name in names), strict=False)
    common = [each[0] for each in takewhile(lambda each: len(set(each)) == 1, parts)]
    while common and any(name.split(separator)[len(common)].isdecimal() for name in names):
        common.pop()
    return separator.join([*common, ""])


def starred(names: Sequence[str], separator: str = ".") -> str:
    """Returns several names as one, with a star where they differ: "layers.*.mlp.up_proj"."""
    parts = [name.split(separator) for name in names]
    if len({len(each) for each in parts}) != 1:
        return " or ".join(names)
    return separator.join(each[0] if len(set(each)) == 1 else "*" for each in zip(*parts, strict=True))
