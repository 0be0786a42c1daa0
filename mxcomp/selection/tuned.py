"""Checks a tuned table against the registry, and looks up the ukernel of a problem.

A line is followed exactly or not at all: its ukernel must exist, and fit its problem. Other lines are left out, and
reported with what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mxcomp.layout.problem import Problem
from mxcomp.matching.decision import DATA_TILED
from mxcomp.options import Options
from mxcomp.registry import Registry, Ukernel
from mxcomp.selection import split_k, tuned_lines
from mxcomp.selection.tuned_lines import ANY, Fault, Key, Line


@dataclass(frozen=True)
class Entry:
    """A line, and the ukernel that it names."""

    line: Line
    ukernel: Ukernel

    @property
    def note(self) -> str:
        """The note that explains the choice."""
        margin = self.line.margin
        return str(self.line) + ("" if margin is None else f"; the second best takes {margin:.1%} longer")

    def objection(self, is_symmetric: bool, is_joined: bool, options: Options) -> str:
        """Returns why it cannot be followed for a matmul whose plan may be `is_joined` with those of others. "" if it
        can."""
        if not self.line.use:
            return "use is 0"
        if is_joined:
            return "results are quantised again in their tile, for which there is one ukernel"
        if self.ukernel.has_inner_tiles and is_symmetric:
            return "LHS and RHS may be one tensor, which ukernels over inner tiles cannot be given"
        is_split = self.line.split_k > 1 and not split_k.is_possible(options)
        return "a stock iree-compile cannot split K" if is_split else ""


@dataclass(frozen=True)
class Table:
    """Entries for one GPU, and errors in invalid lines."""

    target: str = ""
    entries: Mapping[Key, Entry] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def find(self, problem: Problem, result: str) -> Entry | None:
        """Returns the entry for a problem whose result is stored as `result`, else for one with any result."""
        keys = (Key(self.target, problem, kind) for kind in (result, ANY))
        return next((self.entries[key] for key in keys if key in self.entries), None)


def read(path: Path, registry: Registry) -> Table:
    """Returns a table's lines for the GPU of the ukernels. Raises InputError for a file that cannot be read."""
    lines, faults = tuned_lines.read(path)
    entries: dict[Key, Entry] = {}
    for line in lines:
        if line.key.target != registry.target.name:
            continue
        if fault := _fault(line, registry) or _repeated(line, entries):
            faults.append(Fault(path, line.number, fault))
        else:
            entries[line.key] = Entry(line, registry[line.kernel])
    return Table(registry.target.name, entries, tuple(sorted(faults, key=lambda fault: fault.number)))


def _fault(line: Line, registry: Registry) -> str:
    """Returns what is wrong with a line, or ""."""
    reasons = (check(line, registry) for check in _CHECKS)
    return next(filter(None, reasons), "")


def _split(line: Line, registry: Registry) -> str:
    if line.split_k == 1:
        return ""
    reason = split_k.misfit(line.key.problem, registry[line.kernel], line.split_k, registry.target)
    return f"split_k is {line.split_k}: {reason}" if reason else ""


def _order(line: Line, registry: Registry) -> str:
    return f"order is '{line.order}': ukernels of this version have their own: expected nothing" if line.order else ""


def _unknown(line: Line, registry: Registry) -> str:
    if line.kernel in registry.ukernels:
        return ""
    if line.kernel in registry.excluded:
        return (
            f"{line.kernel}: {registry.excluded[line.kernel].objection}: name another kernel, or run mxcomp-tune again"
        )
    meant = registry.nearest(line.kernel)
    return f"unknown kernel '{line.kernel}': {meant}run mxcomp-tune again, or give the --ukernel-dir that it is in"


def _operands(line: Line, registry: Registry) -> str:
    operands = registry[line.kernel].operands
    return "" if operands == DATA_TILED else f"{line.kernel} takes {operands} operands: expected a data-tiled ukernel"


def _envelope(line: Line, registry: Registry) -> str:
    problem = split_k.part(line.key.problem, registry[line.kernel], line.split_k)
    reason = registry[line.kernel].mismatch(problem)
    return f"{line.kernel} does not fit: {reason}: name another kernel, or run mxcomp-tune again" if reason else ""


_CHECKS: tuple[Callable[[Line, Registry], str], ...] = (_order, _unknown, _operands, _split, _envelope)
"""The checks in order: each may rely on those before it."""


def _repeated(line: Line, entries: Mapping[Key, Entry]) -> str:
    before = entries.get(line.key)
    return "" if before is None else f"line {before.line.number} is about the same problem: remove one of them"
