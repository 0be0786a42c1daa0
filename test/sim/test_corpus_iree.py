"""Programs that stock IREE and mxcomp compile are right on the simulator, dispatch by dispatch, with all checks on."""

from __future__ import annotations

import numpy as np
import pytest
from corpus.code_objects import metadata
from corpus.device import SCHEDULES, Machine
from corpus.iree import COMPILERS, scaled_matmul, source, stock
from corpus.operands import check_product, operand
from spread import quick_if

Shape = tuple[int, int, int]
DISPATCHES = {"stock": 1, "row_major": 1}
LARGE, SMALL, ODD = (1024, 1024, 1024), (128, 256, 512), (100, 200, 96)


def run_scaled_matmul(compiler: str, shape: Shape, machine: Machine) -> None:
    m, n, k = shape
    rng = np.random.default_rng(shape)
    a, b = operand(rng, "e2m1", m, k), operand(rng, "e2m1", n, k)
    program = COMPILERS[compiler](scaled_matmul(m, n, k))
    assert len(program.dispatches) == DISPATCHES.get(compiler, 5)
    (c,) = program.run(machine, [a.packed, b.packed, a.scales, b.scales], [np.empty((m, n), np.float32)])
    check_product(c, a.values, b.values)


QUICK = ("stock", "codegen", "m64_n128_k512", "row_major")


@pytest.mark.parametrize("compiler", quick_if(QUICK.__contains__, COMPILERS))
def test_scaled_matmul(compiler: str, machine: Machine) -> None:
    run_scaled_matmul(compiler, SMALL, machine)


PADDED = sorted(COMPILERS.keys() - {"stock-dt", "stock-ukernel"})


@pytest.mark.parametrize("compiler", quick_if(lambda name: name in ("codegen", "m64_n128_k512"), PADDED))
def test_padded_scaled_matmul(compiler: str, machine: Machine) -> None:
    """Without IREE's data tiling, which here writes nibbles into bytes that it reads before they were written."""
    run_scaled_matmul(compiler, ODD, machine)


@pytest.mark.parametrize("schedule", quick_if(lambda schedule: schedule == "random", SCHEDULES))
@pytest.mark.parametrize("compiler", quick_if(lambda name: name == "m128_n256_k256", COMPILERS))
def test_large_scaled_matmul(compiler: str, schedule: str) -> None:
    """By default what has several K tiles in flight, in the schedule that finds most."""
    run_scaled_matmul(compiler, LARGE, Machine("fast", schedule))


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_large_scaled_matmul_on_both_engines(compiler: str) -> None:
    run_scaled_matmul(compiler, LARGE, Machine("both"))


def test_programs_differ() -> None:
    """Each compiler brings a kernel of its own: no flag was ignored, and IREE's builtin ukernel was taken."""
    matmuls = {}
    for name, compiler in COMPILERS.items():
        program = compiler(scaled_matmul(*SMALL))
        (kernel,) = [k for code in program.code for k in metadata(code) if k[".name"] == program.dispatches[-1].kernel]
        matmuls[name] = (kernel[".group_segment_fixed_size"], kernel[".vgpr_count"], program.dispatches[-1].grid)
    assert len(set(matmuls.values())) == len(matmuls), matmuls


def test_convolution(machine: Machine) -> None:
    rng = np.random.default_rng(5)
    image = rng.standard_normal((2, 18, 18, 16)).astype(np.float32)
    weights = rng.standard_normal((3, 3, 16, 32)).astype(np.float32)
    (result,) = stock(source("convolution")).run(machine, [image, weights], [np.empty((2, 16, 16, 32), np.float32)])
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (1, 2)).transpose(0, 1, 2, 4, 5, 3)
    check_product(result.reshape(-1, 32), windows.reshape(512, -1), weights.reshape(-1, 32).T)


def test_reduction(machine: Machine) -> None:
    values = np.random.default_rng(5).standard_normal((33, 5001)).astype(np.float32)
    (sums,) = stock(source("reduction")).run(machine, [values], [np.empty(33, np.float32)])
    check_product(sums[:, None], values, np.ones((1, 5001)))
