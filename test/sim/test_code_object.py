"""Broken code objects give an error, never another exception, a crash or a hang."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from spread import quick_if

from mxcomp.sim import CodeObjectError, Device, SimulationError
from mxcomp.sim.code_object import load

CODE = (Path(__file__).parent / "kernels" / "faults.hsaco").read_bytes()


def test_metadata_and_descriptor() -> None:
    module = load(CODE)
    kernel = module.kernels["fine_lds"]
    assert kernel.descriptor.lds_bytes == 512
    assert kernel.descriptor.kernarg_bytes == 16
    assert kernel.descriptor.vgprs == 64
    assert kernel.descriptor.user_sgprs == 2
    assert kernel.entries == (kernel.descriptor.entry,)


@pytest.mark.parametrize("length", [0, 1, 16, 63, 64, 200, 1000, 5000, len(CODE) - 1000])
def test_truncated(length: int) -> None:
    with pytest.raises(CodeObjectError):
        load(CODE[:length])


def test_other_machine() -> None:
    with pytest.raises(CodeObjectError, match="expected an AMD GPU code object"):
        load(CODE[:18] + struct.pack("<H", 62) + CODE[20:])
    with pytest.raises(CodeObjectError, match=r"expected gfx950"):
        load(CODE[:48] + struct.pack("<I", 0x4C) + CODE[52:])


def test_random_bytes() -> None:
    rng = np.random.default_rng(0)
    for size in (10, 100, 10_000):
        with pytest.raises(CodeObjectError):
            load(rng.bytes(size))
        with pytest.raises(CodeObjectError):
            load(CODE[:64] + rng.bytes(size))


MUTATED = [(seed, engine) for engine in ("numpy", "fast") for seed in range(200)]


def is_quick(case: tuple[int, str]) -> bool:
    """The fast engine compiles every kernel of every mutant, which takes its time."""
    seed, engine = case
    return seed < 16 if engine == "numpy" else seed in (0, 63)


@pytest.mark.parametrize("case", quick_if(is_quick, MUTATED), ids=lambda case: f"{case[0]}-{case[1]}")
def test_mutated(case: tuple[int, str]) -> None:
    """A few bytes changed, in code half of the time: whatever happens is a result or a SimulationError."""
    seed, engine = case
    rng = np.random.default_rng(seed)
    data = bytearray(CODE)
    text = load(CODE).text
    start = CODE.find(text)
    low, high = (start, start + len(text)) if seed % 2 else (0, len(CODE))
    for _ in range(1 + seed % 8):
        data[int(rng.integers(low, high))] = int(rng.integers(256))
    try:
        device = Device(engine=engine, memory_bytes=1 << 24)
        module = device.load(bytes(data))
    except SimulationError:
        return
    buffer = device.alloc(4096)
    device.write(buffer, np.zeros(4096, np.uint8))
    kernarg = struct.pack("<QQ", buffer.address, buffer.address)
    for kernel in module.kernels.values():
        try:
            device.launch(kernel, (1, 1, 1), (128, 1, 1), kernarg, raise_on_error=False, max_instructions=500)
        except SimulationError:
            continue
