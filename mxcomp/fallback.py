"""Fallbacks for a program that we, or IREE after us, could not compile: fewer of our optimisations.

Nobody who has a valid module is served by an error of which he can change nothing. What is left out is a matter of
speed only, so the program that is made is right, and slower; the report and a warning say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mxcomp.errors import CompileError, InternalError
from mxcomp.matching.decision import PLAIN
from mxcomp.options import Options
from mxcomp.report.report import Report

_STEPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("with one kernel for all sizes, on packed operands", {"versions": False, "reads_in_place": False}),
    ("without ukernels", {"ukernels": "none", "tuned": None}),
    ("by IREE's own lowering of scaled matmuls", {"data_tiling": False}),
)
"""The fallbacks in order, with the options that each disables in addition to those before."""


def steps(options: Options) -> Iterator[tuple[str, Options]]:
    """Yields the options to try: first as asked for, then with less, unless that is what was asked for.

    With `--ukernel-dir` there is no fallback: the author of those kernels wants the error.
    """
    yield "", options
    if options.strict or options.ukernel_dirs:
        return
    for how, less in _STEPS:
        if (narrower := replace(options, **less)) != options:
            options = narrower
            yield how, options


def may_help(error: CompileError, report: Report) -> bool:
    """Returns whether the module that could not be compiled contained something of ours."""
    ours = [matmul.operands != PLAIN for matmul in report.matmuls] + [bool(each.ukernel) for each in report.attentions]
    return isinstance(error, InternalError) or any(ours)
