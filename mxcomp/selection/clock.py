"""The clock that selection goes by: the timing model's numbers with which `kernel_times.csv` was replayed."""

from __future__ import annotations

from functools import cache
from importlib import resources

from mxcomp.sim.timing.parameters import Parameters, load

FILE = "kernel_times.toml"


@cache
def clock() -> Parameters:
    """As it comes with the table: choices compare times of one clock, also where the model was fitted anew since."""
    return load((resources.files("mxcomp.selection") / FILE).read_text())
