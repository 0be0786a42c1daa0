"""Tests of programs drawn differently each time. MXCOMP_PROGRAMS_SEED gives them the same once more."""

from __future__ import annotations

from typing import Any

import program
from checking import check
from seeds import BASE
from spread import quick_if

COUNT, QUICK, FILES = 45, 3, 3
"""Of programs, which have the seed `BASE` and those that follow; a failure says which. Behind QUICK they are slow."""
CHEAP = ("plain", "plain", "plain", "plain", "parameters", "packed")
"""Ways to compile that are quick, by turns."""


def numbers(file: int) -> list[Any]:
    """Of the programs in one file of tests; their seeds differ from run to run, and their names must not."""
    return quick_if(lambda number: number < QUICK, range(file, COUNT, FILES))


def check_one(number: int) -> None:
    """Draws, compiles and runs one; the failure is the command that does so again."""
    seed, way = BASE + number, CHEAP[number // FILES % len(CHEAP)]
    found = check(program.draw(seed, way=way))
    command = f"python test/programs/run.py --seed {seed} --way {way}"
    assert found.kind == "right", f"{command}  # MXCOMP_PROGRAMS_SEED={BASE}\n{found.kind}: {found.message}"
