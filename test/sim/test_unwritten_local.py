"""LDS and scratch never written: an error where results depend on it, and nothing else. By both engines alike."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from kernels_from_ir import code_object

from mxcomp.sim import Device, Finding, Severity

CODE = code_object(Path(__file__).parent / "kernels" / "local.ll")
LANES = np.arange(64, dtype=np.uint32)


def run(kernel: str, groups: int = 1, **options: object) -> tuple[np.ndarray, tuple[Finding, ...]]:
    device = Device(**{"engine": "both", "memory_bytes": 1 << 24, **options})
    source, target = device.alloc(256), device.alloc(256)
    kernarg = struct.pack("<QQ", source.address, target.address)
    launched = device.load(CODE).kernels[kernel]
    stats = device.launch(launched, (groups, 1, 1), (64, 1, 1), kernarg, raise_on_error=False)
    return device.read(target, np.uint32, (64,)), stats.findings


@pytest.mark.parametrize("engine", ["numpy", "fast", "both"])
@pytest.mark.parametrize(
    ("kernel", "result"),
    [
        ("lds_lower_lanes", np.where(LANES < 32, LANES, 7)),
        ("lds_lower_half", LANES),
        ("lds_atomic_dropped", LANES),
        ("scratch_lower_lanes", np.where(LANES < 32, LANES, 7)),
    ],
)
def test_nothing_depends_on_it(kernel: str, result: np.ndarray, engine: str) -> None:
    values, findings = run(kernel, groups=2, engine=engine)
    assert findings == ()
    np.testing.assert_array_equal(values, result)


FAULTS = {
    "lds_all_lanes": ("reads LDS never written", "ds_read_b32", 32, 128),
    "lds_times_zero": ("reads LDS never written", "ds_read_b32", 0, 0),
    "lds_sum": ("reads LDS never written", "ds_read_u16", 0, 0),
    "lds_upper_half": ("reads LDS never written", "ds_read_b32", 0, 2),
    "lds_atomic": ("reads LDS never written", "ds_add_rtn_u32", 0, 0),
    "lds_and_memory": ("reads LDS never written", "ds_read_b32", 0, 0),
    "scratch_all_lanes": ("reads scratch never written", "scratch_load_dword", 32, 8),
}
"""By kernel: what is wrong, the instruction that is blamed, its lane, and the address."""


@pytest.mark.parametrize("engine", ["numpy", "fast", "both"])
@pytest.mark.parametrize("kernel", FAULTS)
def test_something_depends_on_it(kernel: str, engine: str) -> None:
    message, instruction, lane, address = FAULTS[kernel]
    (finding,) = run(kernel, groups=2, engine=engine)[1]
    assert (finding.check, finding.severity) == ("uninit", Severity.ERROR)
    dword = range(4 * lane, 4 * lane + 4)
    assert finding.message in [f"{message}; what it stores in byte {k} of argument 1 depends on it" for k in dword]
    assert finding.instruction.startswith(instruction)
    assert (finding.lane, finding.address) == (lane, address)


def test_control_depends_on_it() -> None:
    """Whether it stores at all: some lane's noise is even."""
    (finding,) = run("lds_mask")[1]
    assert finding.message.startswith("reads LDS never written; what it stores in byte ")


@pytest.mark.parametrize("kernel", FAULTS)
def test_results_do_not_show_that_a_workgroup_was_run_several_times(kernel: str) -> None:
    np.testing.assert_array_equal(run(kernel)[0], run(kernel, checks=())[0])
