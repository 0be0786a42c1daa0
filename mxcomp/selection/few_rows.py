"""Of a dynamic M, a version for few rows may quantise the LHS itself: nothing is packed for them.

So it may where one kernel is to be for all rows else: there are two versions then.

All matmuls of one LHS do so, for as many rows, or none: packed for one, it would be there for the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import geometric_mean

from iree.compiler import ir

from mxcomp.layout import LHS, RHS
from mxcomp.matching.activations import Activations, Sought
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.decision import Decision, Version, decide, decision_of
from mxcomp.options import FASTEST, OFF, ON, Options
from mxcomp.problem import Problem
from mxcomp.selection import times
from mxcomp.selection.quantising import apart_us, entries, modelled_us, takes
from mxcomp.ukernels import Registry, quantising
from mxcomp.ukernels.waves import UNIT_ROWS

_LIMITS = (quantising.MOST_ROWS, 8, 4, 2, 1)
"""Rows up to which a version may quantise: what every workgroup does for itself goes with them."""


@dataclass(frozen=True)
class _Able:
    """A matmul whose first version may be one that quantises; modelled µs of both by rows, and of a dispatch."""

    op: ir.Operation
    version: Version
    us: Mapping[int, float]
    packed_us: Mapping[int, float]
    apart_us: Mapping[int, float]


class FewRows:
    """Matmuls by the LHS that they share, until all of them are decided on."""

    def __init__(self, registry: Registry, options: Options, sought: Sought) -> None:
        self._registry, self._options, self._sought = registry, options, sought
        self._able: dict[ir.Value, list[_Able | None]] = {}

    def add(self, op: ir.Operation, chosen: Decision, result_bytes: int) -> str:
        """Takes a matmul, not encoded yet, for which `chosen` is decided on; returns why it cannot quantise, if so."""
        may = self._options.versions and self._options.ukernels == FASTEST and not self._options.reference
        may &= self._options.fuse_quantisers != OFF
        versions = _versions(chosen, problem_of(op)) if may and chosen.quantising is None else ()
        if not versions:
            return ""
        able = self._try(op, versions[0], result_bytes)
        self._able.setdefault(op.operands[LHS], []).append(None if isinstance(able, str) else able)
        return f"LHS is not quantised by the ukernel: {able}" if isinstance(able, str) and able else ""

    def decide(self) -> None:
        """Puts versions that quantise before others, where all matmuls of an LHS can have one, and it is faster."""
        for found in self._able.values():
            together = [each for each in found if each is not None]
            if len(together) == len(found):
                limit = next((rows for rows in _LIMITS if self._gains(together, rows)), 0)
                for each in together:
                    _decide(each, limit)

    def _gains(self, together: list[_Able], most: int) -> bool:
        """Whether matmuls of one LHS that quantise up to so many rows take less time than with a dispatch for that."""
        if self._options.fuse_quantisers == ON:
            return True
        return all(_us(together, rows) < _packed_us(together, rows) for rows in _LIMITS if rows <= most)

    def _try(self, op: ir.Operation, first: Version, result_bytes: int) -> _Able | str:
        """What may come before a matmul's first version, or in its place; why not, or "" where its LHS is stored."""
        problem = problem_of(op)
        found = self._sought.find(op, problem)
        if isinstance(found, str):
            return found
        at = {rows: replace(problem, m=rows) for rows in _LIMITS}
        timed: dict[quantising.Instance, dict[int, float]] = {}
        fitting = (each for each in quantising.INSTANCES if _fits(each, found, at.values(), first))
        for instance in self._registry.able(fitting):
            us = {rows: modelled_us(self._registry[instance.name], each, result_bytes) for rows, each in at.items()}
            timed[instance] = {rows: known for rows, known in us.items() if known is not None}
        timed = {instance: us for instance, us in timed.items() if len(us) == len(at)}
        plain = self._registry[first.ukernel]
        known = times.of(plain)
        if known is None or not timed:
            return f"none quantises {found.type} to {problem.types[LHS]} for {problem.types[RHS]} and these N and K"
        packed_us = {
            rows: times.modelled(known, plain.tile, each, _sizes(each), result_bytes, order=first.order)
            for rows, each in at.items()
        }
        best = min(timed, key=lambda instance: geometric_mean(timed[instance].values()))
        version = replace(first, **entries(best, best, self._registry))
        apart = {m: apart_us(self._registry.target, each, found.bits) for m, each in at.items()}
        return _Able(op, version, timed[best], packed_us, apart)


def _versions(chosen: Decision, problem: Problem) -> tuple[Version, ...]:
    """Those of a decision on a dynamic M; of one kernel for all rows, that one for few and for more."""
    layout = chosen.layout
    if chosen.versions or problem.m is not None or problem.batch:
        return chosen.versions
    if chosen.ukernel is None or layout is None or layout.units is None or layout.shape.m != UNIT_ROWS:
        return ()
    alone = (layout, chosen.ukernel, chosen.order, chosen.workgroup_size, chosen.llvm_func_attrs)
    return tuple(Version(max_m, *alone) for max_m in (quantising.MOST_ROWS, None))


def _fits(instance: quantising.Instance, found: Activations, at: Iterable[Problem], first: Version) -> bool:
    """Whether an instance takes such activations, and the RHS in units of the other versions."""
    element, layouts = instance.elements[RHS], (instance.layout, first.layout)
    mine, theirs = (layout.packed((1, 1)).packing(RHS, element) for layout in layouts)
    units = sorted((layout.units or (1, 1))[RHS] for layout in layouts)
    is_in_units = mine == theirs and units[1] % units[0] == 0
    is_in_units &= instance.layout.workgroup_tile[2] == first.layout.workgroup_tile[2]
    return is_in_units and all(takes(instance, each, found.bits) for each in at)


def _us(together: list[_Able], rows: int) -> float:
    """Of matmuls of one LHS that quantise so many rows."""
    return sum(each.us[rows] for each in together)


def _packed_us(together: list[_Able], rows: int) -> float:
    """Of the same with a dispatch for that."""
    return sum(each.packed_us[rows] for each in together) + together[0].apart_us[rows]


def _decide(able: _Able, limit: int) -> None:
    """Puts a version for up to `limit` rows before those of a matmul, or in the place of the first; 0: none."""
    decision = decision_of(able.op)
    assert decision is not None
    first, *others = _versions(decision, problem_of(able.op))
    us, packed_us = able.us[limit or 1], _packed_us([able], limit or 1)
    rows = f"{limit or 1} row{'s' * (limit > 1)}"
    note = f"up to {rows} LHS is quantised by {able.version.quantising}, modelled {us:.1f} µs"
    if not limit:
        note = f"LHS is not quantised by the ukernel: {rows} would take {us:.1f} µs, modelled, apart {packed_us:.1f}"
    versions = decision.versions
    if limit:
        version = replace(able.version, max_m=limit)
        is_all = limit == first.max_m or not decision.versions
        versions = (version, *others) if is_all else (version, first, *others)
    decide(able.op, replace(decision, versions=versions, note="; ".join(filter(None, (decision.note, note)))))


def _sizes(problem: Problem) -> dict[str, int]:
    return {axis: problem.sizes[axis] or 0 for axis in "mnk"}
