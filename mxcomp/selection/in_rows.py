"""Whether a matmul's ukernel reads LHS, or RHS in its place, as it is stored: one dispatch less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mxcomp.formats import element_format
from mxcomp.layout import LHS, OPERAND_NAMES, RHS
from mxcomp.matching.decision import DATA_TILED, Decision
from mxcomp.options import FASTEST, Options
from mxcomp.problem import Problem
from mxcomp.selection.limits import limits
from mxcomp.selection.ranking import Candidate, candidate
from mxcomp.sim.timing.parameters import parameters_of
from mxcomp.target import Target
from mxcomp.ukernels import Registry, Ukernel
from mxcomp.ukernels.family import IN_ROWS

SIDES = (LHS, RHS)
"""Which operand may be read in rows; a matmul is computed transposed for RHS."""


def choose(
    chosen: Decision,
    problem: Problem,
    objections: Mapping[int, str],
    registry: Registry,
    options: Options,
    size: int,
) -> Decision:
    """A decision on a problem, made one of a ukernel that reads LHS or RHS as it is stored, if that is faster.

    Or if it is asked for. `objections` are why LHS and RHS cannot be read so, or "". `size` are the bytes of an element
    of the result.
    """
    able = [side for side in SIDES if not objections[side]]
    named = registry.ukernels.get(options.ukernels)
    if named is not None and named.operands in IN_ROWS:
        side = IN_ROWS.index(named.operands)
        multiplied = _multiplied(problem, side)
        reason = objections[side] or _mismatch(named, multiplied, options)
        if reason:
            return replace(chosen, reason=f"{named.name}: {reason}")
        return _with(chosen, named, candidate(named, multiplied, size), side, "")
    if not able or options.ukernels != FASTEST or chosen.ukernel is None or chosen.quantising is not None:
        return chosen
    packed = candidate(registry[chosen.ukernel], problem, size)
    ways = [
        (timed.us - packing_us(options.target, problem, side), timed, side)
        for side in able
        for timed in candidates(problem, side, registry, options, size)
    ]
    if packed is None or not ways:
        return chosen
    us, best, side = min(ways, key=lambda way: way[0])
    if us > packed.us:
        return chosen
    beside = f", with {_name(side)} packed {packed.us + packing_us(options.target, problem, side):.1f}"
    return _with(chosen, best.ukernel, best, side, beside)


def candidates(problem: Problem, side: int, registry: Registry, options: Options, size: int) -> Iterator[Candidate]:
    """The ukernels that read LHS or RHS of a problem as it is stored, and their times."""
    multiplied = _multiplied(problem, side)
    for each in registry.ukernels.values():
        if each.operands == IN_ROWS[side] and not _mismatch(each, multiplied, options):
            timed = candidate(each, multiplied, size)
            if timed is not None:
                yield timed


def _multiplied(problem: Problem, side: int) -> Problem:
    """The problem with the operand that is read in rows in the place of LHS."""
    return problem if side == LHS else problem.flipped


def _name(side: int) -> str:
    return OPERAND_NAMES[side].upper()


def packing_us(target: Target, problem: Problem, side: int = LHS) -> float:
    """Modelled µs of a dispatch that packs LHS or RHS: it reads and writes all of it, which HBM binds."""
    p, bits = parameters_of(target), element_format(problem.types[side]).bits
    moved = 2 * ((problem.m, problem.n)[side] or 0) * (problem.k or 0) * bits / 8
    return p.launch_us + moved / (p.hbm_terabytes * 1e6)


def _mismatch(ukernel: Ukernel, problem: Problem, options: Options) -> str:
    if problem.batch or problem.m is None or problem.n is None:
        return "it takes static sizes without a batch"
    if limits(problem, ukernel.tile, options.target.max_buffer_bytes) is None:
        return f"an operand or the result exceeds {options.target.max_buffer_bytes} bytes"
    return ukernel.mismatch(problem)


def _with(chosen: Decision, ukernel: Ukernel, timed: Candidate | None, side: int, beside: str) -> Decision:
    note = f"{_name(side)} is read as it is stored, by {ukernel.name}"
    note += f", modelled {timed.us:.1f} µs{beside}" if timed is not None else ""
    return replace(
        chosen,
        operands=DATA_TILED,
        layout=ukernel.layout,
        transposed=side == RHS,
        lhs_in_rows=True,
        ukernel=ukernel.name,
        order=timed.order if timed is not None else chosen.order,
        workgroup_size=ukernel.workgroup_size,
        llvm_func_attrs=ukernel.llvm_func_attrs,
        note=note,
        reason=None,
    )
