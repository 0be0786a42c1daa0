"""Reads users' tables in CSV line by line; faulty lines are said, and do not stop the others."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mxcomp.errors import InputError

Row = TypeVar("Row")


@dataclass(frozen=True)
class Fault:
    """An error in a line; lines count from 1."""

    line: int
    message: str


@contextmanager
def table(path: Path) -> Iterator[tuple[list[str], csv.DictReader[str]]]:
    """Opens a table, and returns the names of its columns, and its lines. Raises OSError, UnicodeDecodeError,
    csv.Error."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.DictReader(file)
        names = lines.fieldnames = [name.strip() for name in lines.fieldnames or ()]
        yield names, lines


def read(
    path: Path, needed: Sequence[str], optional: Sequence[str], parse: Callable[[int, dict[str, str]], Row | Fault]
) -> tuple[list[Row], list[Fault], list[str]]:
    """Returns rows, faulty lines, and the names of all columns. Raises InputError for a file that is no such table."""
    try:
        with table(path) as (names, lines):
            if missing := [name for name in needed if name not in names]:
                expected = f"expected {','.join(needed)} and perhaps {','.join(optional)}"
                raise InputError(f"{path}:1: no column {', '.join(missing)}: {expected}")
            found = [parse(lines.line_num, fields) for fields in lines]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    rows = [row for row in found if not isinstance(row, Fault)]
    return rows, [fault for fault in found if isinstance(fault, Fault)], names
