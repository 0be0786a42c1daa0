"""Times each dispatch of a program: modelled by a replay of its kernels, or measured on a GPU."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mxcomp import profiling
from mxcomp.measuring.repeats import Recorded
from mxcomp.profiling import Estimate
from mxcomp.run import runtime

_RUNS = 7
_SECONDS = 5e-3
"""The time that the repetitions of a dispatch should take, so that the overhead of a call matters little."""
_REPEATED, _MORE = (10, 200), 8


@dataclass(frozen=True)
class Dispatch:
    """One dispatch.

    Attributes:
        low, high: Modelled: 80 % of measurements lay between. Measured: the fastest and the slowest of some calls.
        bound: What costs most, "" where that is not known.
        flops, unique_bytes: Of matrix instructions; loaded and stored, each once. 0 where not known.
    """

    kernel: str
    us: float
    low: float
    high: float
    bound: str = ""
    flops: float = 0.0
    unique_bytes: float = 0.0

    @classmethod
    def of(cls, kernel: str, e: Estimate) -> Dispatch:
        return cls(kernel, e.us, e.low, e.high, e.bound, e.flops, e.unique_bytes)


def modelled(vmfb: bytes, inputs: Sequence[np.ndarray]) -> list[Dispatch]:
    """Returns the modelled dispatches of a call of the only function; nothing is computed. Raises RunError."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "profile.jsonl"
        runtime.run(vmfb, None, inputs, "sim", "timing", profile=path)
        found = profiling.read(path).dispatches
    dispatches = []
    for each in found:
        if each.modelled is None:
            raise runtime.RunError(f"{each.kernel} cannot be modelled: {each.reason}")
        dispatches.append(Dispatch.of(each.kernel, each.modelled))
    return dispatches


@dataclass(frozen=True)
class Stopwatch:
    """Settings for timing calls: the device, the clock, the number of calls; and how often a dispatch is repeated in a
    call (None: by its time).
    """

    device: str = "hip"
    clock: Callable[[], float] = time.perf_counter
    runs: int = _RUNS
    count: int | None = None

    def call(self, vmfb: bytes, inputs: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[float]]:
        """Returns results of the only function, and µs of some calls. Raises RunError."""
        results, seconds = runtime.timed(vmfb, inputs, self.device, self.runs, self.clock)
        return results, [1e6 * each for each in seconds]

    def dispatch(self, program: Recorded, inputs: Sequence[np.ndarray], index: int, once: float) -> Dispatch:
        """Returns µs of one dispatch, from the difference between few and many repetitions; one takes about `once` µs.
        Caches are warm.

        Raises RunError where that is less than calls differ by.
        """
        kernel = program.kernels[index]
        for count in self._counts(once):
            _, taken = self.call(program.program(index, count), inputs)
            each = [(us - once) / (count - 1) for us in taken]
            if (us := statistics.median(each)) > 0:
                return Dispatch(kernel, us, min(each), max(each))
        raise runtime.RunError(f"{kernel} takes less than calls differ by: is the GPU busy with something else?")

    def _counts(self, once: float) -> list[int]:
        """Returns numbers of repetitions of a dispatch: the usual one, and a larger one if the difference is too
        small."""
        least, most = _REPEATED
        count = max(least, min(most, int(1e6 * _SECONDS / once))) if once else most
        return [self.count] if self.count else [count, _MORE * count]
