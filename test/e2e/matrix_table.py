"""The table of `matrix.CASES` in the documentation: written, and read back to be compared."""

from __future__ import annotations

import re
from pathlib import Path

from matrix import PAIRS, RESULTS, SHAPES, Case, Outcome

PATH = Path(__file__).parents[2] / "docs" / "reference" / "matrix.md"
COLUMNS = [(shape, result) for shape in SHAPES for result in RESULTS]
_CELL = re.compile(r"(?P<mark>[✓✗])(?:<sup>(?P<note>\d+)</sup>)?")
_NOTE = re.compile(r"^(\d+)\. (.+)$", re.M)

Table = dict[tuple[Case, str], Outcome]
"""Outcomes by case and result type."""


def render(table: Table) -> str:
    """The whole page. Raises KeyError if a case is missing."""
    notes = list(dict.fromkeys(outcome.note for outcome in table.values() if outcome.note))
    shapes = [f"- **{name}**: {shape}" for name, shape in SHAPES.items()]
    parts = [_HEAD, *shapes, "", _CONTRACT, "", *_rows(table, notes)]
    if notes:
        parts += ["", "## Notes", "", *(f"{i}. {note}" for i, note in enumerate(notes, 1))]
    return "\n".join(parts) + "\n"


def _rows(table: Table, notes: list[str]) -> list[str]:
    header = ["LHS × RHS", *(f"{shape}, {result}" for shape, result in COLUMNS)]
    rows = [header, ["---"] * len(header)]
    for types in PAIRS:
        outcomes = [table[Case(types, shape), result] for shape, result in COLUMNS]
        rows.append([" × ".join(types), *(_cell(outcome, notes) for outcome in outcomes)])
    return [f"| {' | '.join(row)} |" for row in rows]


def _cell(outcome: Outcome, notes: list[str]) -> str:
    note = f"<sup>{notes.index(outcome.note) + 1}</sup>" if outcome.note else ""
    return ("✓" if outcome.right else "✗") + note


def parse(page: str) -> Table:
    """Inverse of `render`. Raises ValueError for a cell that holds no outcome."""
    tables, _, listed = page.partition("## Notes")
    notes = dict(_NOTE.findall(listed))
    table: Table = {}
    _, _, *rows = (line.strip("| ").split(" | ") for line in tables.splitlines() if line.startswith("|"))
    for types, *cells in rows:
        lhs, rhs = types.split(" × ")
        for (shape, result), cell in zip(COLUMNS, cells, strict=True):
            table[Case((lhs, rhs), shape), result] = _outcome(cell, notes)
    return table


def _outcome(cell: str, notes: dict[str, str]) -> Outcome:
    match = _CELL.fullmatch(cell.strip())
    if match is None:
        raise ValueError(f"expected ✓ or ✗ and a note, got '{cell}'")
    return Outcome(match["mark"] == "✓", notes[match["note"]] if match["note"] else "")


_HEAD = """# What runs through ukernels, and is right

Every pair of MX element types, compiled and run on the simulated gfx950. Operands are random, no scale equals its
neighbour; every element of the result is compared with float64 NumPy.

✓: a ukernel, right results. A number beside it: right, but left to IREE, see the notes. ✗: see the notes.

M × N × K of the columns:
"""
_CONTRACT = """\
A f32 element is right within K · 2⁻²⁴ · Σ|a·b|, the error of f32 additions; a bf16 one is one rounding of such a sum.

Written by `python -m pytest -n 0 -m slow test/e2e/test_matrix.py --update-docs`."""
