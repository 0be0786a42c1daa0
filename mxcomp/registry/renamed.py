"""Maps former names of ukernels and values of their rules, which a user may still have, to the current ones.

Suffixes now name a single wave, row-major A or B, the largest M, workgroups on a compute unit, an intrawave pipeline.
"""

from __future__ import annotations

import re

_SIZE = re.compile(
    r"(?P<size>_k\d+(?:_mfma32)?)(?:_half)?(?P<single>_w1)?(?P<b>_rhs)?(?P<rows>_rows)?(?P<few>_r\d+)?(?P<occupancy>_x2)?(?P<four>_w4)?$"
)
_KINDS = (
    (re.compile(r"^mx_quantising(\d+)_pair_"), r"mx_fused_quant\1_dual_"),
    (re.compile(r"^mx_quantising(\d+)_"), r"mx_fused_quant\1_"),
    (re.compile(r"^mx_hidden_"), "mx_fused_swiglu_"),
)
OPERANDS = {"lhs_in_rows": "lhs_row_major", "rhs_in_rows": "rhs_row_major"}
"""The current value for a former one of a rule's `operands`."""


def renamed(name: str) -> str:
    """Returns the current name of a ukernel; other names are unchanged."""
    for before, now in _KINDS:
        name = before.sub(now, name)
    return _SIZE.sub(_suffixes, name)


def _suffixes(found: re.Match[str]) -> str:
    side = "b" if found["b"] else "a"
    parts = (
        found["size"],
        "_single_wave" if found["single"] else "",
        f"_row_major_{side}" if found["rows"] else "",
        (found["few"] or "").replace("_r", "_max_m"),
        "_occupancy2" if found["occupancy"] else "",
        "_intrawave" if found["four"] or found["rows"] else "",
    )
    return "".join(parts)
