"""Remarks of mxcomp-compile on stderr about a module that it could compile."""

from __future__ import annotations

from collections.abc import Iterator

from mxcomp.matching.decision import PLAIN
from mxcomp.options import BENEFIT, FASTEST, NONE, Options
from mxcomp.profiling.reports import ScaledMatmul
from mxcomp.report.report import Report

_ASKED_FOR = ("--data-tiling=off", "--ukernels=none")
"""Prefixes of reasons that a user asked for."""


_SHOWN = 5
"""The number of unused lines of a tuned table that are printed on stderr."""


def lines(report: Report, options: Options) -> Iterator[str]:
    """Returns a line for each scaled matmul that is left to IREE, and one for a named ukernel that is used nowhere.

    Before them why the program is not what was asked for, and the first lines of a tuned table that are left out.
    """
    if report.fallback:
        yield f"warning: {report.fallback}"
    yield from (f"warning: {line}" for line in report.left_out[:_SHOWN])
    if (more := len(report.left_out) - _SHOWN) > 0:
        yield f"warning: {more} more lines of {options.tuned} are left out: see --report"
    for matmul in report.matmuls:
        if matmul.operands == PLAIN:
            yield from _left(matmul)
    if options.ukernels not in (FASTEST, BENEFIT, NONE, *(matmul.ukernel for matmul in report.matmuls)):
        yield f"warning: --ukernels={options.ukernels} is used for no scaled matmul of the module: {_why_not(report)}"


def _left(matmul: ScaledMatmul) -> Iterator[str]:
    """Returns one line, unless the user asked for it and it matters to nobody else."""
    reason = _reason(matmul)
    asked_for = any(flag in reason for flag in _ASKED_FOR)
    if matmul.warning:
        yield f"{matmul.location}: warning: {matmul.warning}" + ("" if asked_for else f" ({reason})")
    elif not asked_for:
        yield f"{matmul.location}: remark: scaled matmul left to IREE: {reason}"


def _reason(matmul: ScaledMatmul) -> str:
    return (matmul.reason or "").removeprefix("left to IREE: ")


def _why_not(report: Report) -> str:
    if not report.matmuls:
        return "there is none"
    first, *others = dict.fromkeys(_reason(matmul) for matmul in report.matmuls)
    return first + (f"; {len(others)} more reasons: see --report" if others else "")
