"""A functional simulator of CDNA4 code objects that can be believed.

>>> from mxcomp.sim import Device
>>> dev = Device(engine="fast", schedule="random", seed=1)
>>> module = dev.load(code_object_bytes)                                    # doctest: +SKIP
>>> buf = dev.alloc(nbytes); dev.write(buf, array)                          # doctest: +SKIP
>>> stats = dev.launch(module.kernels[name], grid=(1, 1, 1), kernarg=...)   # doctest: +SKIP

From bytes to results: `code_object` (ELF, metadata, descriptors) → `decode` and `program` (tinygrad's bit fields to
normalised `instruction`s, everything reachable) → `launch` (arguments, initial registers) → an `engine`, which
executes what `semantics` says and makes the `checks`. `numpy_engine` is the readable one, `fast` compiles the same
tables with LLVM. Nothing here knows who compiled a kernel.
"""

from mxcomp.sim.code_object import Kernel, Module
from mxcomp.sim.counters import Counters, LaunchStats, Occupancy
from mxcomp.sim.device import Device
from mxcomp.sim.errors import CodeObjectError, SimulationError, UnsupportedInstruction
from mxcomp.sim.findings import CHECKS, Finding, Severity
from mxcomp.sim.memory import Buffer

__all__ = [
    "CHECKS",
    "Buffer",
    "CodeObjectError",
    "Counters",
    "Device",
    "Finding",
    "Kernel",
    "LaunchStats",
    "Module",
    "Occupancy",
    "Severity",
    "SimulationError",
    "UnsupportedInstruction",
]
