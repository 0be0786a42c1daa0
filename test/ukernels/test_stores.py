"""Results are stored 16 bytes a lane: those of f32 in whole cache lines, those of 16 bits past padding, too."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from assembly import FLAG
from iree.compiler import ir

import mxcomp
from mxcomp.formats import E2M1
from mxcomp.measuring.kernels import matmul_of_arguments
from mxcomp.sim.timing.sharing import global_kind
from mxcomp.ukernels import intrawave, multistage

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import kernel_times

FP4 = "mx_f4E2M1FN_f4E2M1FN_f32"
INSTANCES = {each.name: each for each in (*multistage.INSTANCES, *intrawave.INSTANCES)}
LANES, BYTES, LINE = 64, 16, 128


@pytest.mark.parametrize("size", ["m128_n128_k512", pytest.param("m320_n256_k512_intrawave", marks=pytest.mark.slow)])
def test_cache_lines(size: str) -> None:
    with ir.Context(), ir.Location.unknown():
        instance = INSTANCES[f"{FP4}_{size}"]
        work = kernel_times.traced(instance, 4, 2 * instance.layout.workgroup_tile[0], "")
    assert work is not None
    ((trace, _),) = work.parts
    stores = [number for number, each in enumerate(trace.instructions) if global_kind(each) == "store"]
    accesses = np.concatenate(trace.accesses)[np.isin(np.concatenate(trace.codes), stores)]
    m, n, _ = instance.layout.workgroup_tile
    assert len(accesses) == m * n * 4 // (LANES * BYTES)
    assert set(trace.nbytes[accesses]) == {LANES * BYTES}
    assert set(np.diff(trace.first)[accesses]) == {LANES * BYTES // LINE}


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((300, 1024, 1024), "m128_n128_k512"),
        ((256, 512, 1024), "m192_n128_k512"),
        ((1000, 16384, 1024), "m256_n320_k512_row_major_b_intrawave"),
        pytest.param((1000, 16384, 1024), "m256_n256_k512", marks=pytest.mark.slow),
        pytest.param((768, 1024, 1024), "m192_n256_k512", marks=pytest.mark.slow),
        pytest.param((256, 640, 1024), "m128_n160_k512", marks=pytest.mark.slow),
        pytest.param((1000, 8192, 1024), "m256_n256_k512_row_major_a_intrawave", marks=pytest.mark.slow),
        pytest.param((1000, 16384, 1024), "m320_n256_k512_intrawave", marks=pytest.mark.slow),
    ],
)
def test_16_bits(shape: tuple[int, int, int], size: str, tmp_path: Path) -> None:
    """LLVM makes one store of two neighbours only if it sees that they are at a fixed distance."""
    with ir.Context(), ir.Location.unknown():
        program = str(matmul_of_arguments(*shape, E2M1, E2M1, "bf16"))
    mxcomp.compile(program, strict=True, ukernels=f"{FP4}_{size}", iree_flags=[f"{FLAG}={tmp_path}"])
    (text,) = (path.read_text() for path in tmp_path.glob("*.rocmasm"))
    (kernel,) = (each for each in re.split(r"^\s*\.globl", text, flags=re.MULTILINE) if "v_mfma" in each)
    m, n, _ = INSTANCES[f"{FP4}_{size}"].layout.workgroup_tile
    threads = INSTANCES[f"{FP4}_{size}"].tile.threads
    assert re.findall(r"^\s+(buffer_store\w+)", kernel, re.MULTILINE) == ["buffer_store_dwordx4"] * (
        m * n * 2 // (threads * BYTES)
    )
