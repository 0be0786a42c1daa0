"""Freeing and sharing device memory of the simulator."""

from __future__ import annotations

import os

import numpy as np
import pytest

from mxcomp.hip.allocations import available_bytes
from mxcomp.sim import Device, SimulationError
from mxcomp.sim.memory import BASE, UNWRITTEN, Buffer, Memory, Storage

CAPACITY = 1 << 22


def storage() -> Storage:
    files = [os.memfd_create(name) for name in ("data", "marks")]
    for file in files:
        os.ftruncate(file, CAPACITY)
    return Storage.shared(files[0], files[1], CAPACITY)


@pytest.fixture(params=["private", "shared"])
def memory(request: pytest.FixtureRequest) -> Memory:
    return Memory(CAPACITY, storage() if request.param == "shared" else None)


def test_freed_memory_is_outside_of_every_allocation(memory: Memory) -> None:
    first, second = memory.alloc(1000), memory.alloc(1000)
    memory.write(first.address, np.ones(1000, np.uint8))
    memory.free(first)
    with pytest.raises(SimulationError, match="outside of every allocation"):
        memory.read(first.address, np.uint8, (1,))
    assert memory.alloc(1000).address > second.address
    assert not memory.written[first.start : first.start + 1000].any()
    assert memory.ranges()[0].tolist() == sorted(memory.ranges()[0].tolist())
    with pytest.raises(SimulationError, match="not the start of an allocation"):
        memory.free(first)
    with pytest.raises(SimulationError, match="not the start of an allocation"):
        memory.free(Buffer(second.address, 999))


def test_freed_memory_is_used_again(memory: Memory) -> None:
    """And is as fresh as at first, with a guard around."""
    kept = memory.alloc(100)
    rng = np.random.default_rng(1)
    buffers = []
    for _ in range(500):
        buffer = memory.alloc(int(rng.integers(1, 100_000)))
        assert (memory.data[buffer.start : buffer.start + buffer.nbytes] == UNWRITTEN).all()
        assert not memory.written[buffer.start : buffer.start + buffer.nbytes].any()
        memory.write(buffer.address, np.zeros(buffer.nbytes, np.uint8))
        buffers.append(buffer)
        if len(buffers) > 8:
            memory.free(buffers.pop(int(rng.integers(len(buffers)))))
        starts, ends = memory.ranges()
        assert (starts[1:] - ends[:-1] >= 1 << 16).all()
    memory.free(kept)


def test_full(memory: Memory) -> None:
    for nbytes in (CAPACITY, -1):
        with pytest.raises(SimulationError, match="cannot allocate"):
            memory.alloc(nbytes)
    memory.alloc(CAPACITY - (1 << 18))
    with pytest.raises(SimulationError, match="are in use"):
        memory.alloc(1 << 17)


def test_temporary(memory: Memory) -> None:
    with pytest.raises(ValueError, match="stop"), memory.temporary():
        first = memory.alloc(10)
        raise ValueError("stop")
    assert memory.ranges()[0].size == 0
    assert memory.alloc(10) == first


def test_two_memories_in_one_storage() -> None:
    shared = storage()
    half = CAPACITY // 2
    left, right = Memory(half, shared), Memory(CAPACITY, shared, half)
    buffer, other = left.alloc(64), right.alloc(64)
    assert buffer.address < BASE + half < other.address
    left.write(buffer.address, np.arange(64, dtype=np.uint8))
    with pytest.raises(SimulationError, match="outside of every allocation"):
        right.read(buffer.address, np.uint8, (64,))
    right.map(buffer)
    assert right.read(buffer.address, np.uint8, (64,)).tolist() == list(range(64))
    assert right.alloc(64).address > other.address
    right.unmap(buffer)
    assert left.read(buffer.address, np.uint8, (64,)).tolist() == list(range(64))


def test_launches_leave_nothing_behind(request: pytest.FixtureRequest) -> None:
    code = (request.config.rootpath / "test" / "sim" / "kernels" / "faults.hsaco").read_bytes()
    device = Device(memory_bytes=1 << 24)
    module = device.load(code)
    source, target = device.alloc(512), device.alloc(512)
    device.write(source, np.arange(128, dtype=np.uint32))
    before = device.memory.ranges()[0].tolist()
    kernarg = np.array([source.address, target.address], np.uint64).tobytes()
    for _ in range(300):
        device.launch(module.kernels["fine_copy"], (1, 1, 1), (128, 1, 1), kernarg)
    assert device.memory.ranges()[0].tolist() == before
    device.free(source)
    with pytest.raises(SimulationError, match="bounds"):
        device.launch(module.kernels["fine_copy"], (1, 1, 1), (128, 1, 1), kernarg)
    device.unload(module)
    with pytest.raises(SimulationError, match="not loaded on this device"):
        device.launch(module.kernels["fine_copy"], (1, 1, 1), (128, 1, 1), kernarg)


def test_available_bytes() -> None:
    assert 1 << 20 < available_bytes() < 1 << 50
