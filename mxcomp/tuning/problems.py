"""The distinct problems of a model."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from mxcomp import pipeline
from mxcomp.compiler import Source
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.consumers import stored_type
from mxcomp.matching.decision import decision_of, is_recognised
from mxcomp.mlir import graph, target_flags
from mxcomp.mlir.session import Session, read_source
from mxcomp.options import Options
from mxcomp.selection.tuned_lines import Key


@dataclass(frozen=True)
class Problems:
    """The distinct matmul problems of a model.

    Attributes:
        keys: Distinct problems, in the order of the model.
        left: Scaled matmuls that cannot be tuned: where, and why.
    """

    keys: tuple[Key, ...]
    left: tuple[str, ...] = ()


def problems_of(source: Source, options: Options | None = None) -> Problems:
    """Returns the problems of a model, as far as passes recognise them. Raises the errors of `mxcomp.compile`."""
    options = Options.make() if options is None else options
    keys: dict[Key, None] = {}
    left = []
    with closing(Session(target_flags.missing(options.target))) as session:
        module = session.load(*read_source(source))
        pipeline.run(module, pipeline.IMPORTING_PASSES, options)
        session.run(session.phase, "input")
        pipeline.run(module, pipeline.PREPARING_PASSES, options)
        for op in graph.walk(module):
            decision = decision_of(op)
            if decision is None:
                continue
            reason = (decision.reason or "").removeprefix("left to IREE: ")
            if is_recognised(op):
                problem = problem_of(op)
                reason = _dynamic(problem.dynamic)
                if not reason:
                    keys[Key(options.target.name, problem, stored_type(op))] = None
            if reason:
                left.append(f"{graph.location_text(op.location)}: {reason}")
    return Problems(tuple(keys), tuple(left))


def _dynamic(axes: tuple[str, ...]) -> str:
    if not axes:
        return ""
    names, are = " and ".join(axes).upper(), "is" if len(axes) == 1 else "are"
    return f"{names} {are} dynamic, and a line is about one size: name those that matter as MxNxK"
