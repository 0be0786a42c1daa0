"""Models how long kernels take on an MI355X, from what they execute; docs/timing.md has its accuracy.

    work = examine(device, kernel, grid, kernarg)   # a workgroup's trace, and what others share with it
    print(estimate(work))                           # modelled 60.8 µs (55.9 to 65.6), bound by MFMA
    Timeline.of(work).json()                        # for ui.perfetto.dev

Data flows from `trace` (what a workgroup executes) and `examination` (which workgroups load the same) by `workgroup`,
which replays traces on a compute unit, to `chip` and `estimates`, which put batches of workgroups on the chip.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mxcomp.profiling import Estimate
    from mxcomp.sim.timing.chip import Batch
    from mxcomp.sim.timing.estimates import RESOURCES, estimate
    from mxcomp.sim.timing.examination import Examination, Examiner, examine
    from mxcomp.sim.timing.parameters import Parameters, mi355x
    from mxcomp.sim.timing.timeline import Timeline
    from mxcomp.sim.timing.trace import Trace

# What replays loads numba: only where it is asked for, as the chip's numbers are asked for by every compilation.
_WHERE = {
    "Estimate": "mxcomp.profiling", "Batch": "mxcomp.sim.timing.chip", "RESOURCES": "mxcomp.sim.timing.estimates",
    "estimate": "mxcomp.sim.timing.estimates", "Examination": "mxcomp.sim.timing.examination",
    "Examiner": "mxcomp.sim.timing.examination", "examine": "mxcomp.sim.timing.examination",
    "Parameters": "mxcomp.sim.timing.parameters", "mi355x": "mxcomp.sim.timing.parameters",
    "Timeline": "mxcomp.sim.timing.timeline", "Trace": "mxcomp.sim.timing.trace",
}  # fmt: skip

__all__ = [
    "RESOURCES", "Batch", "Estimate", "Examination", "Examiner", "Parameters", "Timeline", "Trace", "estimate",
    "examine", "mi355x",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
