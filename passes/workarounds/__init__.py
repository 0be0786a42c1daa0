"""Workarounds for faults of IREE: a file for each pass, and a program of the same name that shows the fault.

`NAME.py` is a pass as others are. `NAME.mlir` is a report that a maintainer of IREE can take as it is: what happens,
how to see it, a small program. `test/passes/test_workarounds.py` has a stock IREE compile it, and fails on the day that
IREE gets it right: both files, the pass's test and its line here go then. `docs/iree.md` is made of all of them
(`pytest test/passes/test_workarounds.py --update-docs`).

The names below are those of passes, by where they stand among others (`mxcomp.pipeline`), in their order there.
"""

from __future__ import annotations


def file(name: str) -> str:
    """Returns the name of the files of a pass, without suffix."""
    return name.removeprefix("mxcomp-").replace("-", "_")


ENTRY = ("mxcomp-take-bytes", "mxcomp-declare-types")
UNRECOGNISED = (
    "mxcomp-pass-bytes",
    "mxcomp-write-bytes",
    "mxcomp-legalise-steps",
    "mxcomp-legalise-constants",
    "mxcomp-legalise-truncations",
)
CONSTANT = ("mxcomp-defer-narrow",)
LEFT_TO_IREE = (
    "mxcomp-fall-back",
    "mxcomp-sum-in-f32",
    "mxcomp-group-factors",
    "mxcomp-extend-elements",
    "mxcomp-keep-slices-behind",
    "mxcomp-keep-transposes-behind",
    "mxcomp-keep-branches-behind",
    "mxcomp-extend-scales",
)
NARROW = ("mxcomp-unpack-elements", "mxcomp-keep-reads-behind")
OTHERS = (
    "mxcomp-legalise-initializers",
    "mxcomp-legalise-extensions",
    "mxcomp-legalise-reductions",
    "mxcomp-legalise-zeros",
    "mxcomp-split-subscripts",
    "mxcomp-legalise-few-rows",
    "mxcomp-add-coefficients",
    "mxcomp-legalise-exclusive-scans",
    "mxcomp-legalise-filled-scans",
    "mxcomp-double-keys",
    "mxcomp-scale-scores",
    "mxcomp-legalise-topk",
    "mxcomp-legalise-lookups",
    "mxcomp-legalise-overwriting",
    "mxcomp-legalise-sorts",
    "mxcomp-copy-constants",
    "mxcomp-copy-stored",
    "mxcomp-keep-sorted",
    "mxcomp-legalise-producers",
)
OUTLINED = ("mxcomp-assume-operands",)
DISPATCHES = (
    "mxcomp-deduplicate-workloads",
    "mxcomp-separate-variables",
    "mxcomp-keep-for-steps",
    "mxcomp-keep-for-callers",
    "mxcomp-place-results",
)
ALL = (*ENTRY, *UNRECOGNISED, *CONSTANT, *LEFT_TO_IREE, *NARROW, *OTHERS, *OUTLINED, *DISPATCHES)
