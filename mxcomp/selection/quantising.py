"""Whether a matmul's ukernel quantises the LHS itself, in registers: for few rows, one dispatch less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from mxcomp.layout import LHS, RHS
from mxcomp.layout.order import PLAIN_ORDER
from mxcomp.matching.activations import Activations
from mxcomp.matching.decision import DATA_TILED, Decision
from mxcomp.options import AUTO, FASTEST, Options
from mxcomp.problem import Problem
from mxcomp.selection import passing, times
from mxcomp.selection.ranking import fastest
from mxcomp.target import Target
from mxcomp.ukernels import Registry, Ukernel, dual, quantising

Beside: TypeAlias = Sequence[tuple[Problem, int]]
"""Other problems of the same LHS, and bytes of their results' elements."""


def modelled_us(ukernel: Ukernel, problem: Problem, size: int) -> float | None:
    """µs of a problem with a ukernel that quantises; None where they are not known.

    What it loads, and so its time, goes with the rows that are there: the table has it for the fewest, and for all.
    Of more than all there are several tiles.
    """
    instance, (m, n, k) = ukernel.instance, (problem.sizes[axis] or 0 for axis in "mnk")
    assert isinstance(instance, quantising.Instance)
    tile = ukernel.tile
    if isinstance(instance, dual.Instance):
        n, tile = 2 * n, (tile[0], 2 * tile[1], tile[2])
    known = {rows: times.replays(instance, ukernel.target, quantising.suffix(rows)) for rows in instance.timed_rows}
    known = {max(m, rows) if rows == instance.most_rows else rows: each for rows, each in known.items()}
    us = [
        times.modelled(replace(each, row_bits=instance.bits), tile, problem, {"m": rows, "n": n, "k": k}, size)
        for rows, each in known.items()
        if each is not None
    ]
    return float(np.interp(m, list(known), us)) if len(us) == len(known) else None


def choose(
    chosen: Decision,
    problem: Problem,
    activations: Activations,
    beside: Beside,
    registry: Registry,
    options: Options,
    size: int,
) -> Decision | str:
    """A decision on a problem whose LHS is quantised from `activations`, made one of a ukernel that does that itself.

    The reason why not, if there is none. `size` are the bytes of an element of the result.
    """
    named, bits = _named(options), activations.bits
    if not options.data_tiling or options.reference or not (named or options.ukernels == FASTEST):
        return ""
    timed = _timed(problem, bits, registry, size)
    if named:
        timed = {named: timed.get(named)} if takes(named, problem, bits) else {}
    if not timed:
        if lacking := registry.lacking(each for each in quantising.INSTANCES if takes(each, problem, bits)):
            return lacking
        size_text = f"{problem.m}x{problem.n}x{problem.k}"
        return f"none quantises {activations.type} to {problem.types[LHS]} for {problem.types[RHS]} and {size_text}"
    known = {each: us for each, us in timed.items() if us is not None}
    if not known and not named:
        return "the times of none are known"
    best = named or min(known, key=lambda each: known[each])
    us = known.get(best)
    compared = options.fuse_quantisers == AUTO and not named and us is not None
    if compared and us is not None and (reason := _slower(us, problem, bits, beside, registry, options, size)):
        return reason
    note = f"LHS is quantised by {best.name}" + (f", modelled {us:.1f} µs" if us is not None else "")
    return replace(chosen, operands=DATA_TILED, note=note, reason=None, **entries(best, best, registry))


def _timed(problem: Problem, bits: int, registry: Registry, size: int) -> dict[quantising.Instance, float | None]:
    """µs of those that compute a problem whose LHS is quantised from activations of so many bits, where known."""
    fitting = registry.able(each for each in quantising.INSTANCES if takes(each, problem, bits))
    return {each: modelled_us(registry[each.name], problem, size) for each in fitting}


def takes(instance: quantising.Instance, problem: Problem, bits: int) -> bool:
    """Whether an instance computes a problem whose LHS is quantised from activations of so many bits."""
    m, n, k = (problem.sizes[axis] or 0 for axis in "mnk")
    return instance.elements == problem.types[:2] and instance.bits == bits and instance.covers(m, n, k)


def entries(instance: quantising.Instance, single: quantising.Instance, registry: Registry) -> dict[str, Any]:
    """Those of a decision, or of a version, that say how an instance is launched; `single` takes one matrix of it."""
    ukernel = registry[instance.name]
    return {
        "layout": ukernel.layout,
        "ukernel": instance.plain.name,
        "quantising": single.name,
        "order": PLAIN_ORDER,
        "workgroup_size": ukernel.workgroup_size,
        "llvm_func_attrs": ukernel.llvm_func_attrs,
    }


def _named(options: Options) -> quantising.Instance | None:
    """The instance of the name that is asked for, or of one that takes two matrices."""
    pair = next((each.single for each in dual.INSTANCES if each.name == options.ukernels), None)
    return pair or next((each for each in quantising.INSTANCES if each.name == options.ukernels), None)


def choose_pair(
    chosen: Decision,
    index: int,
    problem: Problem,
    bits: int,
    is_alone: bool,
    registry: Registry,
    options: Options,
    size: int,
) -> Decision:
    """A decision on a problem of activations of so many bits, made one for a ukernel that takes two such matmuls.

    `index` is that of the other matmul, with the same LHS; `is_alone`: no third one has it. The decision stays as it is
    if that would be slower.
    """
    fitting = registry.able(each for each in dual.INSTANCES if takes(each, problem, bits))
    named = [each for each in fitting if each.name == options.ukernels]
    timed = {each: us for each in fitting if (us := modelled_us(registry[each.name], problem, size)) is not None}
    apart = _pair_apart(chosen, problem, bits if is_alone else None, registry, options, size)
    if not options.data_tiling or (not named and (options.ukernels != FASTEST or not timed or apart is None)):
        return chosen
    best = named[0] if named else min(timed, key=lambda each: timed[each])
    us = timed.get(best)
    if not named and us is not None and apart is not None and us >= apart:
        note = f"with matmul {index} in one dispatch, both would take {us:.1f} µs, modelled, apart {apart:.1f}"
        return replace(chosen, note=f"{chosen.note}; {note}")
    note = f"LHS is quantised by {best.name}, for matmul {index} as well"
    return replace(
        chosen,
        operands=DATA_TILED,
        paired=best.name,
        paired_with=index,
        note=note + (f", modelled {us:.1f} µs for both" if us is not None else ""),
        reason=None,
        **entries(best, best.single, registry),
    )


def _pair_apart(
    chosen: Decision, problem: Problem, bits: int | None, registry: Registry, options: Options, size: int
) -> float | None:
    """µs of two such matmuls as they are decided on: LHS quantised by each of them, or once for both.

    Without `bits`, of activations, that is done for another one anyway.
    """
    if chosen.quantising is not None:
        us = modelled_us(registry[chosen.quantising], problem, size)
        return None if us is None else 2 * us
    ranked = fastest(problem, registry, options, size)
    return 2 * ranked[0].us + (0.0 if bits is None else apart_us(options.target, problem, bits)) if ranked else None


def apart_us(target: Target, problem: Problem, bits: int) -> float:
    """µs of the dispatch that quantises the LHS apart, from activations of so many bits."""
    return passing.quantising_us(target, problem.m or 0, problem.k or 0, problem.types[LHS], bits / 8)


def _slower(
    us: float, problem: Problem, bits: int, beside: Beside, registry: Registry, options: Options, size: int
) -> str:
    """Why quantising apart is to be preferred to `us`; "" if it is not.

    All matmuls of the LHS quantise it, or none: what one takes packed is there for the others.
    """
    ranked = [fastest(each, registry, options, of) for each, of in ((problem, size), *beside)]
    if not all(ranked):
        return ""
    apart = [each[0].us for each in ranked]
    others = [min(filter(None, _timed(each, bits, registry, of).values()), default=None) for each, of in beside]
    inside, packed = us + sum(filter(None, others)), sum(apart) + apart_us(options.target, problem, bits)
    if None in others:
        inside, packed = us, apart[0]
    return f"it would take {inside:.1f} µs, modelled, apart {packed:.1f}" if inside >= packed else ""
