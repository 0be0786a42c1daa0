"""Memory never written: an error where results depend on it, and nothing where they do not. By both engines alike."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from kernels_from_ir import code_object

from mxcomp.sim import Device, Finding, Severity, SimulationError
from mxcomp.sim.checks import trial
from mxcomp.sim.checks.trial import other_bytes
from mxcomp.sim.memory import Memory

CODE = code_object(Path(__file__).parent / "kernels" / "unwritten.ll")
LANES = np.arange(64, dtype=np.uint32)
EVERYTHING, NOTHING = slice(None), slice(0)
LOWER_HALVES = np.arange(512) % 4 < 2


class Bench:
    """A device with a source of 512 bytes and a target of 256, which lies in the middle of an allocation."""

    def __init__(self, engine: str = "both", **options: object) -> None:
        self.device = Device(engine=engine, memory_bytes=1 << 24, **options)
        self.module = self.device.load(CODE)
        self.source, self._around = self.device.alloc(512), self.device.alloc(1024)
        self.target = self._around.address + 64

    def write(self, address: int, where: object, value: int = 5) -> None:
        """A value in chosen bytes."""
        for k in np.arange(512)[where]:  # type: ignore[call-overload]
            self.device.write(address + int(k), np.array([value], np.uint8))

    def launch(self, kernel: str, raise_on_error: bool = False) -> tuple[Finding, ...]:
        kernarg = struct.pack("<QQ", self.source.address, self.target)
        stats = self.device.launch(
            self.module.kernels[kernel], (1, 1, 1), (64, 1, 1), kernarg, raise_on_error=raise_on_error
        )
        return stats.findings

    def results(self) -> np.ndarray:
        return self.device.read(self.target, np.uint32, (64,))


@pytest.mark.parametrize(
    ("kernel", "written", "target_written"),
    [
        ("copy", slice(256), NOTHING),
        ("lower_lanes", slice(128), NOTHING),
        ("lower_half", LOWER_HALVES, NOTHING),
        ("nibble", NOTHING, NOTHING),
        ("increment", NOTHING, slice(256)),
        ("atomic", NOTHING, slice(256)),
        ("scalar", slice(4), NOTHING),
        ("store_mask", slice(256), NOTHING),
        ("store_address", slice(256), NOTHING),
        ("second_load", slice(256, 512), NOTHING),
    ],
)
def test_nothing_depends_on_it(kernel: str, written: object, target_written: slice) -> None:
    bench = Bench()
    bench.write(bench.source.address, written)
    bench.write(bench.target, target_written)
    assert bench.launch(kernel) == ()


FAULTS = {
    "copy": (NOTHING, NOTHING, "global_load_dword", 0, "byte 0 of argument 0"),
    "lower_lanes": (slice(124), NOTHING, "global_load_dword", 31, "byte 124 of argument 0"),
    "lower_half": (slice(0, 512, 2), NOTHING, "global_load_dword", 0, "byte 1 of argument 0"),
    "swapped_nibbles": (NOTHING, slice(0, 63), "global_load_ubyte", 63, "byte 63 of argument 1"),
    "increment": (EVERYTHING, slice(0, 128), "global_load_dword", 32, "byte 128 of argument 1"),
    "atomic": (EVERYTHING, slice(0, 252), "global_atomic_add", 63, "byte 252 of argument 1"),
    "scalar": (NOTHING, NOTHING, "s_load_dword", None, "byte 0 of argument 0"),
    "store_mask": (NOTHING, NOTHING, "global_load_dword", 0, "byte 0 of argument 0"),
    "store_address": (NOTHING, NOTHING, "global_load_dword", 0, "byte 0 of argument 0"),
    "second_load": (NOTHING, NOTHING, "global_load_dword", 0, "byte 256 of argument 0"),
}
"""By kernel: bytes of source and target that are written; the instruction that is blamed, its lane, and the place."""


@pytest.mark.parametrize("kernel", FAULTS)
def test_something_depends_on_it(kernel: str) -> None:
    written, target_written, instruction, lane, place = FAULTS[kernel]
    bench = Bench()
    bench.write(bench.source.address, written)
    bench.write(bench.target, target_written)
    (finding,) = bench.launch(kernel)
    assert (finding.check, finding.severity, finding.lane) == ("uninit", Severity.ERROR, lane)
    assert finding.instruction.startswith(instruction)
    assert f"reads memory never written: {place} (" in finding.message
    start = bench.source.address if "argument 0" in place else bench.target
    assert finding.address == start + int(place.split()[1])


def test_message() -> None:
    bench = Bench()
    bench.write(bench.source.address, slice(100))
    pattern = (
        r"kernel copy\n  error\[uninit\] reads memory never written: byte 100 of argument 0 \(512 bytes are allocated "
        r"there, 100 of them written\); what it stores in byte 100 of argument 1 depends on it at 0x\w+: global_load_"
    )
    with pytest.raises(SimulationError, match=pattern):
        bench.launch("copy", raise_on_error=True)


def test_the_launch_does_what_it_does_without_the_check() -> None:
    """Results, and what counts as written, do not show that a workgroup was run several times."""
    found = []
    for checks in ((), None):
        bench = Bench(checks=checks)
        bench.write(bench.source.address, slice(100))
        bench.write(bench.target, slice(50), 3)
        for kernel in ("increment", "atomic", "copy", "nibble", "store_mask", "lower_lanes"):
            bench.launch(kernel)
        found.append((bench.results(), bench.device.memory.written.copy()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_reading_does_not_make_it_written() -> None:
    bench = Bench()
    bench.write(bench.source.address, slice(128))
    assert bench.launch("lower_lanes") == ()
    assert len(bench.launch("copy")) == 1


def test_memory_that_nobody_wrote_takes_none() -> None:
    """Neither while it is allocated nor once it was given back."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    memory, before = Memory(4 << 30), resident()
    memory.free(memory.alloc(1 << 30, fill=False))
    assert resident() - before < 1 << 28


def test_memory_that_nobody_wrote_is_none_to_fork() -> None:
    """The system counts no pages for a child: mappings that lie side by side are one, larger than the machine."""
    total = int(Path("/proc/meminfo").read_text().split()[1]) << 10
    memories = [Memory(total // 3 & ~0xFFF) for _ in range(4)]
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0 and len(memories) == 4


def test_memory_is_never_written_again_once_it_is_freed() -> None:
    """A tensor's place in a pool."""
    bench = Bench()
    bench.write(bench.source.address, EVERYTHING)
    assert bench.launch("copy") == ()
    bench.device.free(bench.source)
    again = bench.device.alloc(512)
    bench.source = again
    assert len(bench.launch("copy")) == 1


def test_what_a_kernel_wrote_is_written() -> None:
    bench = Bench()
    bench.write(bench.source.address, EVERYTHING)
    bench.launch("copy")
    assert bench.launch("increment") == ()


def test_too_much_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LIMIT", 512)
    bench = Bench()
    (finding,) = bench.launch("copy")
    assert finding.severity is Severity.WARNING
    assert "too much" in finding.message
    bench.write(bench.source.address, EVERYTHING)
    assert bench.launch("copy") == ()


def test_other_bytes() -> None:
    """Neither what fresh memory holds nor the same everywhere; zeros among them."""
    found = other_bytes(np.arange(1 << 16))
    assert 0.2 < np.mean(found.reshape(-1, 8).max(1) == 0) < 0.3
    assert np.mean(found == 0xFF) < 0.01
    assert len(np.unique(found)) == 256


def test_tame_bytes() -> None:
    """Finite in any format, also where many are multiplied and summed up."""
    found = other_bytes(np.arange(1 << 16), is_tame=True)
    assert len(np.unique(found)) == 32
    for kind in (np.float16, np.float32):
        assert np.isfinite(np.square(found.view(kind)).sum(dtype=np.float32))
    assert np.ldexp(1.0, 2 * (int(found.max()) - 127)) > np.finfo(np.float32).tiny  # two scales E8M0
