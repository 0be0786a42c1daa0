"""Instructions that AITER's and HipKittens' kernels use, in a kernel of our own, by every engine with all checks."""

from __future__ import annotations

import struct
from pathlib import Path

import assembler
import numpy as np
import pytest

from mxcomp.sim import Device

SOURCE = Path(__file__).with_name("inputs") / "peers.s"


@pytest.mark.parametrize(("written", "listed"), [("24", "24"), ("0", "24"), ("0", "20")])
def test_arguments_of_a_descriptor_that_does_not_count_them(written: str, listed: str) -> None:
    """AITER's hand-written kernels have 0 there, and metadata whose size leaves padding at the end out."""
    text = SOURCE.read_text().replace(".amdhsa_kernarg_size 24", f".amdhsa_kernarg_size {written}")
    text = text.replace(".kernarg_segment_size: 24", f".kernarg_segment_size: {listed}")
    assert f".kernarg_segment_size: {listed}" in text
    device = Device("gfx950")
    kernel = device.load(assembler.code_object(text)).kernels["peers"]
    assert (kernel.descriptor.kernarg_bytes, kernel.argument_bytes) == (int(written), 24)
    buffers = [device.alloc(1024) for _ in range(3)]
    for buffer in buffers:
        device.write(buffer, np.ones(256, np.uint32))
    arguments = struct.pack("<3Q", *(buffer.address for buffer in buffers))
    device.launch(kernel, grid=(1, 1, 1), block=(64, 1, 1), kernarg=arguments)


@pytest.mark.parametrize("engine", ["numpy", "fast", "both"])
def test_swizzle_bit_skipping_and_scalar_memory(engine: str) -> None:
    device = Device("gfx950", engine=engine)
    module = device.load(assembler.code_object(SOURCE.read_text()))
    values = np.arange(1, 129, dtype=np.uint32)
    result, counter = np.full(256, 0xAAAA, np.uint32), np.array([3], np.uint32)
    buffers = [device.alloc(array.nbytes) for array in (values, result, counter)]
    for buffer, array in zip(buffers, (values, result, counter), strict=True):
        device.write(buffer, array)
    arguments = struct.pack("<3Q", *(buffer.address for buffer in buffers))
    stats = device.launch(module.kernels["peers"], grid=(1, 1, 1), block=(64, 1, 1), kernarg=arguments)
    assert stats.findings == ()
    result = device.read(buffers[1], np.uint32, (256,))
    inside = np.where(np.arange(64) < 0x80 // 4, values[:64], 0)  # num_records is in bytes, as of a raw buffer
    np.testing.assert_array_equal(result[:64], inside + 7)
    np.testing.assert_array_equal(result[64:128], 0xAAAA)
    np.testing.assert_array_equal(result[128:131], [5, 3, 0xAAAA])
    np.testing.assert_array_equal(device.read(buffers[2], np.uint32, (1,)), 1)
    assert stats.counters["global.store"] == 1 and stats.counters["scalar.store.bytes"] == 8
