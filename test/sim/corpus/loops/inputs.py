"""What loops are launched with: operands in the order in which each wants them, and their values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from corpus.device import Launch, Machine
from corpus.loops import KERNELS, four_waves
from corpus.operands import VALUES, operand

TILE = 256
FORMATS = {"mxfp4": "e2m1", "fp8": "e5m2", "f16": None}
STEP = {name: kind.step for name, kind in four_waves.KINDS.items()}
PRODUCTS = {
    "8 waves, mxfp4 16x16x128": ("mxfp4_16", "mxfp4"),
    "8 waves, mxfp4 16x16x128, scales combined": ("mxfp4_16_combined", "mxfp4"),
    "8 waves, mxfp4 32x32x64, scales combined": ("mxfp4_32_combined", "mxfp4"),
    "8 waves, fp8": ("fp8", "fp8"),
    "8 waves, f16": ("f16", "f16"),
    "4 waves, mxfp4": ("", "mxfp4"),
    "4 waves, fp8": ("", "fp8"),
    "4 waves, f16": ("", "f16"),
}
"""By name: a stored kernel, "" for one that is assembled, and what it multiplies."""
CHECKS = ("late", "race", "hazard", "uninit")
"""All but of bounds: of Triton's waves those for which no scales are left load some to beyond LDS, which drops them."""


class Problem(NamedTuple):
    """A product on a device. `values` are a's and b's."""

    machine: Machine
    code: bytes
    launch: Launch
    result: Any
    values: tuple[np.ndarray, np.ndarray]


def machine_for(stored: str) -> Machine:
    """The fast engine counts loads that are dropped as none, so loops with such loads run on the other one."""
    return Machine("numpy", checks=CHECKS) if stored.startswith("mxfp4") else Machine()


def problem(name: str, steps: int, rng: np.random.Generator, n: int = TILE) -> Problem:
    """c = a · bᵀ of 256 rows."""
    stored, kind = PRODUCTS[name]
    width = STEP[kind] * steps
    arrays: dict[str, np.ndarray] = dict.fromkeys(("a_scale", "b_scale"), np.ones(16, np.uint8))
    values = []
    for side, rows in (("a", TILE), ("b", n)):
        format = FORMATS[kind]
        if format is None:
            arrays[side] = rng.standard_normal((rows, width)).astype(np.float16)
            values.append(arrays[side])
            continue
        given = operand(rng, format, rows, width)
        arrays[side] = given.packed
        if kind == "mxfp4":
            order = np.transpose if stored else four_waves.scales_as_read
            arrays[f"{side}_scale"] = order(given.scales)
        values.append(given.values if kind == "mxfp4" else VALUES[format][given.codes])
    machine = machine_for(stored)
    buffers = {key: machine.upload(array) for key, array in arrays.items()}
    buffers["c"] = machine.allocate(4 * TILE * n)
    addresses = {key: buffer.address for key, buffer in buffers.items()}
    if stored:
        sizes = {"m": TILE, "n": n, "k": arrays["a"].shape[1], "scale_pitch": TILE}
        code, launch = KERNELS[stored].code, KERNELS[stored].launch(addresses, sizes)
    else:
        code, launch = four_waves.code_object(kind), four_waves.launch(addresses, TILE, n, steps)
    return Problem(machine, code, launch, buffers["c"], (values[0], values[1]))
