"""How long kernels take on an MI355X, modelled from what they execute; docs/timing.md says what that is worth.

    work = examine(device, kernel, grid, kernarg)   # a workgroup's trace, and what others share with it
    print(estimate(work))                           # modelled 60.8 µs (55.9 to 65.6), bound by MFMA
    Timeline.of(work).json()                        # for ui.perfetto.dev

Data flows from `trace` (what a workgroup executes) and `examine` (which workgroups load the same) by `workgroup`, which
replays traces on a compute unit, to `estimate`, which puts batches of workgroups on the chip.
"""

from mxcomp.profiling import Estimate
from mxcomp.sim.timing.estimate import RESOURCES, estimate
from mxcomp.sim.timing.examine import Batch, Examination, Examiner, examine
from mxcomp.sim.timing.parameters import Parameters, mi355x
from mxcomp.sim.timing.timeline import Timeline
from mxcomp.sim.timing.trace import Trace

__all__ = [
    "RESOURCES", "Batch", "Estimate", "Examination", "Examiner", "Parameters", "Timeline", "Trace", "estimate",
    "examine", "mi355x",
]  # fmt: skip
