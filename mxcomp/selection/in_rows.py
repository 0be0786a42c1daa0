"""Whether a matmul's ukernel reads LHS as it is stored: one dispatch less."""

from __future__ import annotations

from dataclasses import replace

from mxcomp.formats import element_format
from mxcomp.layout import LHS
from mxcomp.matching.decision import DATA_TILED, Decision
from mxcomp.options import FASTEST, Options
from mxcomp.problem import Problem
from mxcomp.selection.ranking import Candidate, candidate
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.ukernels import Registry, Ukernel
from mxcomp.ukernels.family import LHS_IN_ROWS


def choose(
    chosen: Decision, problem: Problem, objection: str, registry: Registry, options: Options, size: int
) -> Decision:
    """A decision on a problem, made one of a ukernel that reads LHS as it is stored, if that is faster or asked for.

    `objection` is why LHS cannot be read so, or "". `size` are the bytes of an element of the result.
    """
    named = registry.ukernels.get(options.ukernels)
    if named is not None and named.operands == LHS_IN_ROWS:
        reason = objection or _mismatch(named, problem, options)
        if reason:
            return replace(chosen, reason=f"{named.name}: {reason}")
        return _with(chosen, named, candidate(named, problem, size), "")
    if objection or options.ukernels != FASTEST or chosen.ukernel is None or chosen.quantising is not None:
        return chosen
    fitting = [
        each
        for each in registry.ukernels.values()
        if each.operands == LHS_IN_ROWS and not _mismatch(each, problem, options)
    ]
    timed = [found for each in fitting if (found := candidate(each, problem, size)) is not None]
    packed = candidate(registry[chosen.ukernel], problem, size)
    if packed is None or not timed:
        return chosen
    best, apart = min(timed, key=lambda each: each.us), packed.us + packing_us(problem)
    return chosen if best.us > apart else _with(chosen, best.ukernel, best, f", with LHS packed {apart:.1f}")


def packing_us(problem: Problem) -> float:
    """Modelled µs of a dispatch that packs LHS: it reads and writes all of it, which HBM binds."""
    p, bits = mi355x(), element_format(problem.types[LHS]).bits
    moved = 2 * (problem.m or 0) * (problem.k or 0) * bits / 8
    return p.launch_us + moved / (p.hbm_terabytes * 1e6)


def _mismatch(ukernel: Ukernel, problem: Problem, options: Options) -> str:
    if problem.batch or problem.m is None or problem.n is None:
        return "it takes static sizes without a batch"
    return ukernel.mismatch(options.target.arch, problem)


def _with(chosen: Decision, ukernel: Ukernel, timed: Candidate | None, beside: str) -> Decision:
    note = f"LHS is read as it is stored, by {ukernel.name}"
    note += f", modelled {timed.us:.1f} µs{beside}" if timed is not None else ""
    return replace(
        chosen,
        operands=DATA_TILED,
        layout=ukernel.layout,
        lhs_in_rows=True,
        ukernel=ukernel.name,
        order=timed.order if timed is not None else chosen.order,
        workgroup_size=ukernel.workgroup_size,
        llvm_func_attrs=ukernel.llvm_func_attrs,
        note=note,
        reason=None,
    )
