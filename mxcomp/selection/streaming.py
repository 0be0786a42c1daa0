"""Models dispatches that stream once over elements: quantisers, and elementwise operations around products."""

from __future__ import annotations

from mxcomp.formats import element_format
from mxcomp.selection.times import SCALE_BITS
from mxcomp.sim.timing.parameters import parameters_of
from mxcomp.target import Target

TOGETHER = 2048
"""The number of rows up to which one dispatch computes elements of 8 bits and their scales."""

_QUANTISING_US = {4: 0.3, 6: 0.3, 8: 1.9}
"""The µs of computing a block's largest magnitude, scale and elements, by their bits, in addition to streaming."""

_NORM_US, _SUM_US = 0.5, 0.02
"""The µs of a norm's calculation in its own dispatch; and of an element of a lane for each of its sums where a kernel
computes it for itself. Replayed."""


def streaming_us(target: Target, size: float) -> float:
    """Returns µs of a dispatch that moves so many bytes: a launch, a load's latency, and the bytes at HBM's rate."""
    p = parameters_of(target)
    return p.launch_us + latency_us(target) + size / (p.hbm_terabytes * 1e6)


def latency_us(target: Target) -> float:
    """Returns µs of a load that misses all caches."""
    p = parameters_of(target)
    return p.cold_latency / (p.clock_ghz * 1e3)


def norm_us(target: Target, size: float) -> float:
    """Returns µs of a norm's own dispatch that moves so many bytes."""
    return _NORM_US + streaming_us(target, size)


def normalising_us(sums: int, elements: float) -> float:
    """Returns the µs that a norm takes in front of a kernel, of so many sums, and elements of a lane."""
    return _SUM_US * sums * elements


def quantising_us(target: Target, rows: int, k: int, kind: str, source_bytes: float) -> float:
    """Returns µs of quantising rows of so many bytes an element."""
    bits = element_format(kind).bits
    is_apart = bits > 6 and rows > TOGETHER
    sizes = [source_bytes + (bits + SCALE_BITS) / 8, *[source_bytes + SCALE_BITS / 8] * is_apart]
    return _QUANTISING_US[bits] + sum(streaming_us(target, rows * k * size) for size in sizes)


def calculating_us(target: Target, elements: float, slots: int) -> float:
    """Returns µs of computing elements in so many slots each, as a part of a dispatch: a CU has a slot for each lane of
    a wave."""
    return elements * slots / (target.cus * target.wave_size * target.clock_ghz * 1e3)
