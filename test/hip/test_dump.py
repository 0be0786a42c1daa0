"""Operands of matmul dispatches, dumped when they are launched, are the numbers that were put in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from modules import Matmul, dequantise, inputs, source

import mxcomp
from mxcomp.run import runtime

MIXED = ("f8E4M3FN", "f6E2M3FN")
Dump = list[dict[str, Any]]


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Dump]:
    """Runs matmuls and gives the index of what was dumped, with the arrays."""

    def run(*matmuls: Matmul, **options: Any) -> Dump:
        program = mxcomp.compile(source(*matmuls), **options)
        (tmp_path / "report.json").write_text(program.report.to_json())
        monkeypatch.setenv("MXCOMP_SIM_REPORT", str(tmp_path / "report.json"))
        monkeypatch.setenv("MXCOMP_SIM_DUMP_OPERANDS", str(tmp_path / "operands"))
        results = runtime.run(program.vmfb, None, inputs(matmuls), "sim")
        for matmul, result in zip(matmuls, results, strict=True):
            assert matmul.error(result) <= matmul.bound
        lines = map(json.loads, (tmp_path / "operands" / "operands.jsonl").read_text().splitlines())
        return [line | {"array": np.load(tmp_path / "operands" / line["file"])} for line in lines]

    yield run
    monkeypatch.undo()  # the device, which is this thread's, is to dump nothing from now on
    runtime._of_thread.kept = None


def check(matmul: Matmul, dumped: Dump) -> None:
    """Of one launch."""
    assert {line["operand"]: line["type"] for line in dumped} == {
        "lhs": matmul.types[0],
        "rhs": matmul.types[1],
        "lhs_scale": "f8E8M0FNU",
        "rhs_scale": "f8E8M0FNU",
    }
    lhs, rhs, lhs_scale, rhs_scale = matmul.operands
    ones = {"lhs": np.full_like(lhs_scale, 127), "rhs": np.full_like(rhs_scale, 127)}
    expected = {
        "lhs": dequantise(lhs, ones["lhs"], matmul.types[0]),
        "rhs": dequantise(rhs, ones["rhs"], matmul.types[1]),
        "lhs_scale": np.exp2(lhs_scale.astype(np.float64) - 127),
        "rhs_scale": np.exp2(rhs_scale.astype(np.float64) - 127),
    }
    for line in dumped:
        assert line["array"].dtype == np.float32
        np.testing.assert_array_equal(line["array"], expected[line["operand"]], line["operand"])


CASES = {
    "padded": (Matmul(60, 200, 480, types=MIXED), {}),
    "dynamic M": (Matmul(150, 300, 288, dynamic_m=True, types=("f4E2M1FN", "f8E5M2")), {}),
    "constant": (Matmul(33, 128, 512, constant_rhs=True), {}),
    "no ukernel": (Matmul(65, 80, 128), {"ukernels": "none"}),
    "row-major": (Matmul(64, 256, 256), {"data_tiling": False}),
    "left to IREE": (Matmul(64, 256, 256), {"data_tiling": False, "ukernels": "none"}),
    "taken apart": (Matmul(64, 64, 128, types=("f8E4M3FN", "f4E2M1FN")), {"data_tiling": False}),
    "row-major, dynamic M": (Matmul(40, 256, 256, dynamic_m=True), {"data_tiling": False}),
}
QUICK = ("padded", "row-major, dynamic M", "taken apart")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_operands(name: str, dump: Any) -> None:
    matmul, options = CASES[name]
    dumped = dump(matmul, **options)
    assert len(dumped) == 4
    assert all(len(line["locations"]) == 1 and "source:" in line["locations"][0] for line in dumped)
    check(matmul, dumped)


@pytest.mark.slow
def test_matmuls_that_share_a_kernel(dump: Any) -> None:
    """They differ in K, which is padded to the same tile: sizes are those of the larger one, the rest of it is 0."""
    small, large = Matmul(64, 128, 256), Matmul(64, 128, 512)
    dumped = dump(small, large, ukernels="mx_f4E2M1FN_f4E2M1FN_f32_m16_n32_k512")
    assert len({line["kernel"] for line in dumped}) == 1
    launches = [[line for line in dumped if line["launch"] == launch] for launch in (0, 1)]
    padded = [launch for launch in launches if not launch[0]["array"][:, 256:].any()]
    assert len(padded) == 1
    check(large, next(launch for launch in launches if launch is not padded[0]))
    for line in padded[0]:
        line["array"] = line["array"][:, : 256 if line["operand"] in ("lhs", "rhs") else 8]
    check(small, padded[0])
