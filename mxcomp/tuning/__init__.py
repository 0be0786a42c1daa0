"""Finds the fastest ukernel for each problem: candidates are ranked, optionally compiled and timed, and written to a
table.

from mxcomp.tuning import Settings, problems_of, tune

for found in tune(problems_of("model.mlir").keys, Settings(device="hip", candidates=4), executor):
    print(found)
"""

from __future__ import annotations

from mxcomp.tuning.problems import Problems, problems_of
from mxcomp.tuning.trial import Outcome, Trial, attempt
from mxcomp.tuning.tune import Failure, Settings, tune

__all__ = ["Failure", "Outcome", "Problems", "Settings", "Trial", "attempt", "problems_of", "tune"]
