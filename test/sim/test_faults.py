"""Every planted mistake is found by its check, whatever the schedule, and by both engines alike; right kernels are left
alone."""

from __future__ import annotations

import struct
from pathlib import Path

import assembler
import numpy as np
import pytest

from mxcomp.sim import Device, Finding, Severity, SimulationError, UnsupportedInstruction

CODE = (Path(__file__).parent / "kernels" / "faults.hsaco").read_bytes()
SOURCE = Path(__file__).parent / "kernels" / "faults.s"
SCHEDULES = ("forward", "reverse", "random")
LANES = np.arange(128, dtype=np.uint32)


def run(
    kernel: str, schedule: str = "forward", code: bytes = CODE, **options: object
) -> tuple[np.ndarray, tuple[Finding, ...]]:
    """Launches two waves on 512 bytes of numbers (256 for buffers); returns the destination and the findings."""
    device = Device("gfx950", engine="both", schedule=schedule, seed=3, memory_bytes=1 << 24, **options)
    module = device.load(code)
    words = 64 if "buffer" in kernel else 128
    source, target = device.alloc(4 * words), device.alloc(512)
    device.write(source, np.arange(1000, 1000 + words, dtype=np.uint32))
    kernarg = struct.pack("<QQ", source.address, target.address)
    stats = device.launch(
        module.kernels[kernel], (1, 1, 1), (128, 1, 1), kernarg, raise_on_error=False, max_instructions=10_000
    )
    return device.read(target, np.uint32, (128,)), stats.findings


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("kernel", "result"),
    [
        ("fine_copy", LANES + 1000),
        ("fine_buffer", np.where(LANES < 64, LANES + 1000, 0)),
        ("fine_lds", LANES ^ 64),
        ("fine_same_value", LANES ^ 64),
        ("fine_atomic", np.where(LANES < 64, 2 * LANES + 64, 0)),
        ("fine_direct", (LANES ^ 64) + 1000),
        ("fine_full_counter", LANES + 1000),
        ("fine_full_lds_counter", LANES + 7),
        ("fine_load_after_load", LANES + 1000),
        ("fine_matrix", 0 * LANES),
        ("fine_scratch", LANES),
        ("fine_upper_half", 4 * LANES * LANES + 7),
        ("fine_select", 4 * LANES),
        ("fine_masked", 4 * LANES),
        ("fine_spill", 4 * LANES + 7),
    ],
)
def test_right_kernels(kernel: str, result: np.ndarray, schedule: str) -> None:
    values, findings = run(kernel, schedule)
    assert findings == ()
    np.testing.assert_array_equal(values, result)


FAULTS = {
    "buffer_records": ("bounds", "reads 4 bytes outside of every allocation", 0),
    "global_load_beyond": ("bounds", "reads 4 bytes outside of every allocation", 32),
    "global_store_beyond": ("bounds", "writes 4 bytes outside of every allocation", 63),
    "scalar_load_beyond": ("bounds", "reads 4 bytes outside of every allocation", None),
    "lds_beyond": ("bounds", "writes beyond 512 bytes of LDS", 63),
    "lds_race": ("race", "in the same barrier interval", 0),
    "lds_write_race": ("race", "writes LDS that another wave writes", 0),
    "lds_atomic_race": ("race", "LDS that another wave", 0),
    "lds_never_written": ("uninit", "reads LDS never written", 0),
    "lds_write_not_waited_for": ("late", "", 0),
    "direct_not_waited_for": ("late", "", 0),
    "direct_own": ("late", "its own direct load in flight", 0),
    "unequal_barriers": ("barrier", "waits at barrier 1, but wave 1 has ended after 0", None),
    "load_not_waited_for": ("late", "reads v2 in flight, result of global_load_dword", None),
    "counter_not_full": ("late", "reads v2 in flight, result of global_load_dword", None),
    "load_counted_wrong": ("late", "reads v3 in flight", None),
    "load_overwritten": ("late", "overwrites v2 in flight", None),
    "load_of_another_kind": ("late", "overwrites v2 in flight, result of global_load_dword", None),
    "scalar_not_waited_for": ("late", "reads s6 in flight", None),
    "matrix_result_too_early": ("hazard", "7 wait states after v_mfma_scale_f32_16x16x128_f8f6f4", None),
    "matrix_operand_too_early": ("hazard", "1 wait states after a VALU write of its operand: 2 needed", None),
    "matrix_c_too_early": ("hazard", "5 wait states after", None),
    "scratch_never_written": ("uninit", "reads scratch never written", 0),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kernel", FAULTS)
def test_planted_fault(kernel: str, schedule: str) -> None:
    check, message, lane = FAULTS[kernel]
    errors = [finding for finding in run(kernel, schedule)[1] if finding.severity is Severity.ERROR]
    found = [finding for finding in errors if finding.check == check]
    assert message in found[0].message
    if lane is not None:
        assert found[0].lane == lane
        assert found[0].address is not None
    if "lds" not in kernel:  # a mistake with LDS shows in several ways, depending on the schedule
        assert found == errors


def test_scalar_load_below_address_zero() -> None:
    """Such addresses are as large as 64 bits go: pointers that were read from unwritten memory have them."""
    load = "s_load_dword s8, s[4:5], 0x10000"
    text = SOURCE.read_text()
    assert text.count(load) == 1
    below = text.replace(load, "s_mov_b64 s[10:11], -8\n  s_load_dword s8, s[10:11], 0x0")
    result, (found,) = run("scalar_load_beyond", code=assembler.code_object(below))
    assert (found.check, found.address) == ("bounds", 2**64 - 8)
    assert (result == 2**32 - 1).all()


WARNINGS = {
    "lds_same_value": ("race", "reads LDS that two waves wrote in one barrier interval, though the same"),
    "direct_over_read": ("race", "direct load to LDS overwrites what another wave reads in this interval"),
    "register_never_written": ("uninit", "reads v3, never written (global_store_dword at 0x"),
    "upper_half_stored": ("uninit", "reads v5, never written (global_store_dword at 0x"),
    "select_stored": ("uninit", "reads v6, never written (ds_write_b32 at 0x"),
    "spill_stored": ("uninit", "reads s15, never written (global_store_dword at 0x"),
    "scalar_stored": ("uninit", "reads s15, never written (global_store_dword at 0x"),
    "never_written_decides": ("uninit", "reads s15, never written (s_cbranch_scc1 at 0x"),
    "never_written_addresses": ("uninit", "reads v7, never written (ds_write_b32 at 0x"),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kernel", WARNINGS)
def test_warning(kernel: str, schedule: str) -> None:
    check, message = WARNINGS[kernel]
    findings = run(kernel, schedule)[1]
    assert {(finding.check, finding.severity) for finding in findings} == {(check, Severity.WARNING)}
    assert message in findings[0].message


@pytest.mark.parametrize(("kernel", "counts"), [("fine_select", []), ("select_stored", [2 * 5])])
def test_warnings_of_several_workgroups(kernel: str, counts: list[int]) -> None:
    """Of those that read the same registers not all are run again, and what is found of one holds for those behind."""
    device = Device(engine="both", memory_bytes=1 << 24)
    source, target = device.alloc(512), device.alloc(512)
    kernarg = struct.pack("<QQ", source.address, target.address)
    stats = device.launch(device.load(CODE).kernels[kernel], (5, 1, 1), (128, 1, 1), kernarg)
    assert [finding.count for finding in stats.findings] == counts


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_memory_never_written(schedule: str) -> None:
    """See test_unwritten.py."""
    device = Device(engine="both", schedule=schedule, seed=3, memory_bytes=1 << 24)
    module = device.load(CODE)
    source, target = device.alloc(512), device.alloc(512)
    kernarg = struct.pack("<QQ", source.address, target.address)
    stats = device.launch(module.kernels["fine_copy"], (1, 1, 1), (128, 1, 1), kernarg, raise_on_error=False)
    (finding,) = stats.findings
    assert (finding.check, finding.severity, finding.address) == ("uninit", Severity.ERROR, source.address)


def test_checks_can_be_turned_off() -> None:
    for kernel in FAULTS:
        findings = run(kernel, checks=())[1]
        assert {finding.check for finding in findings} <= {"barrier"}


def test_errors_raise() -> None:
    device = Device(memory_bytes=1 << 24)
    module = device.load(CODE)
    source = device.alloc(512)
    kernarg = struct.pack("<QQ", source.address, source.address)
    with pytest.raises(
        SimulationError,
        match=r"reads LDS never written; what it stores in byte 0 of \w.* depends on it at 0x\w+: "
        r"ds_read_b32 v2, v1.*wave 0, lane 0, address 0x0",
    ) as e:
        device.launch(module.kernels["lds_never_written"], (1, 1, 1), (128, 1, 1), kernarg)
    assert e.value.findings[0].check == "uninit"


def test_endless_loop() -> None:
    with pytest.raises(SimulationError, match="more than 10000 instructions, an endless loop"):
        run("endless")


def test_instruction_that_is_not_implemented_stops_the_launch() -> None:
    with pytest.raises(UnsupportedInstruction, match=r"kernel not_implemented: .*v_mfma_f64_16x16x4_f64 at \+0x0"):
        run("not_implemented")
