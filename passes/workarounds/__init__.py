"""What IREE gets wrong, a file each: a pass that has it done otherwise, and, beside it, a program that shows the fault.

`NAME.py` is a pass as others are, and says in `WORKAROUND` what it is for. `NAME.mlir` is a report that a maintainer of
IREE can take as it is: what happens, how to see it, and the smallest program. `test/test_workarounds.py` has a stock
IREE compile it, and fails on the day that IREE gets it right: both files, the pass's test and its line here go then.
`docs/iree.md` is made of all of them.

The names below are those of passes, by where they stand among others (`mxcomp.pipeline`), in their order there.
"""

from __future__ import annotations

ENTRY = ("mxcomp-take-bytes", "mxcomp-declare-types")
UNRECOGNISED = (
    "mxcomp-legalise-steps",
    "mxcomp-legalise-bitcasts",
    "mxcomp-legalise-constants",
    "mxcomp-legalise-truncations",
)
CONSTANT = ("mxcomp-hold-narrow", "mxcomp-hold-stepped", "mxcomp-hold-splats")
LEFT_TO_IREE = (
    "mxcomp-fall-back",
    "mxcomp-settle-slices",
    "mxcomp-sum-in-f32",
    "mxcomp-extend-elements",
    "mxcomp-keep-slices-behind",
    "mxcomp-keep-transposes-behind",
    "mxcomp-keep-branches-behind",
    "mxcomp-extend-scales",
)
NARROW = ("mxcomp-widen-codes", "mxcomp-keep-reads-behind")
OTHERS = (
    "mxcomp-legalise-reductions",
    "mxcomp-keep-from-one-scale",
    "mxcomp-legalise-zeros",
    "mxcomp-split-subscripts",
    "mxcomp-legalise-few-rows",
    "mxcomp-add-coefficients",
    "mxcomp-legalise-exclusive-scans",
    "mxcomp-legalise-filled-scans",
    "mxcomp-scale-scores",
    "mxcomp-legalise-topk",
    "mxcomp-legalise-lookups",
    "mxcomp-legalise-overwriting",
    "mxcomp-legalise-sorts",
    "mxcomp-copy-constants",
    "mxcomp-keep-sorted",
    "mxcomp-legalise-producers",
)
OUTLINED = ("mxcomp-assume-operands",)
DISPATCHES = (
    "mxcomp-renumber-workloads",
    "mxcomp-part-variables",
    "mxcomp-keep-for-steps",
    "mxcomp-keep-for-callers",
    "mxcomp-place-results",
)
ALL = (*ENTRY, *UNRECOGNISED, *CONSTANT, *LEFT_TO_IREE, *NARROW, *OTHERS, *OUTLINED, *DISPATCHES)
