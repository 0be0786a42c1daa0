"""Ukernels whose four waves each have a pipeline of their own, on the simulator with all checks on, missing wait states
among them: matrix instructions stand there as assembly, so LLVM adds none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import assembly
import pytest
from modules import FP4, KINDS, Matmul
from shapes import Shaped
from test_epilogues import EPILOGUES, Epilogue, factor_of, text_of
from test_epilogues import check as check_epilogue
from test_inner_tiles import BATCHED, check

import mxcomp
from mxcomp.formats import element_format
from mxcomp.measuring.kernels import matmul_of_arguments
from mxcomp.target import get_target
from mxcomp.ukernels import intrawave

SLOW = pytest.mark.slow
E2M3, E3M2, E4M3, E5M2 = [kind for kind in KINDS if kind != FP4]
SIZES = ("m256_n256", "m320_n256", "m256_n320")


def of(size: str, lhs: str = FP4, rhs: str = FP4) -> str:
    (found,) = [each.name for each in intrawave.INSTANCES if each.name == f"mx_{lhs}_{rhs}_f32_{size}_k512_intrawave"]
    return found


def test_one_wave_on_each_simd() -> None:
    """LDS holds two steps or more, and waves copy halves of them in whole turns."""
    assert {instance.tile for instance in intrawave.INSTANCES} == set(intrawave.TILES)
    for instance in intrawave.INSTANCES:
        assert isinstance(instance.tile, intrawave.Tile)
        assert instance.tile.threads == 4 * get_target("gfx950").wave_size
        lhs, rhs = instance.tile.staging(instance.elements, get_target("gfx950"))
        assert 2 <= lhs.stages == rhs.stages <= 4
        assert sum(each.ring_bytes + each.scale_bytes for each in (lhs, rhs)) <= get_target("gfx950").lds_bytes
        assert lhs.scale_copies % 4 == rhs.scale_copies % 4 == 0


@pytest.mark.parametrize("k", [32, pytest.param(512, marks=SLOW), pytest.param(1024, marks=SLOW)])
@pytest.mark.parametrize("size", [SIZES[0], *(pytest.param(each, marks=SLOW) for each in SIZES[1:])])
def test_few_k_tiles(size: str, k: int) -> None:
    """One K tile and two: what is loaded ahead lies past the last one."""
    check(Shaped(40, 72, k), of(size))


@SLOW
@pytest.mark.parametrize(
    ("shaped", "runs"),
    [
        pytest.param(Shaped(64, 128, 256, dynamic="mnk"), [(1, 1, 32), (330, 340, 1056)], id="dynamic"),
        pytest.param(Shaped(340, 132, 1056, batch=2, orders=BATCHED), [], id="batched"),
    ],
)
@pytest.mark.parametrize("size", SIZES)
def test_storage(size: str, shaped: Shaped, runs: list[tuple[int, int, int]]) -> None:
    check(shaped, of(size), *runs)


@pytest.mark.parametrize(
    ("size", "types"),
    [("m320_n256", (E4M3, FP4)), pytest.param("m256_n320", (FP4, E4M3), marks=SLOW)],
)
def test_more_reads_than_matrix_instructions(size: str, types: tuple[str, str]) -> None:
    """A quarter of 16 MFMA reads six of ten fragments of 8 bits, two reads each, and scales of the next K tile."""
    check(replace(Shaped(40, 72, 1024), types=types), of(size, *types))


@SLOW
@pytest.mark.parametrize(
    ("size", "types"),
    [
        ("m256_n256", (E4M3, E5M2)),  # two steps in LDS
        ("m256_n256", (E2M3, E3M2)),  # three
        ("m256_n256", (E5M2, FP4)),
        ("m256_n320", (FP4, E4M3)),
        ("m320_n256", (E3M2, E4M3)),
        ("m320_n256", (E2M3, FP4)),
    ],
)
def test_types(size: str, types: tuple[str, str]) -> None:
    """Four K tiles and a part of one."""
    check(replace(Shaped(330, 340, 2144), types=types), of(size, *types))


@SLOW
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_epilogues(size: str, epilogue: Epilogue) -> None:
    """Pairs of fragments are stored in one piece, whatever is fused behind them."""
    matmul = Matmul(340, 300, 96)
    factor = factor_of(matmul)
    program = mxcomp.compile(text_of(matmul, epilogue, factor), ukernels=of(size))
    check_epilogue(program, matmul, epilogue, factor)


@SLOW
@pytest.mark.parametrize("size", SIZES)
def test_the_loop_moves_no_accumulators(size: str, tmp_path: Path) -> None:
    """Between its first and its last matrix instruction nothing reads or writes accumulators but these."""
    fmt = element_format(FP4)
    mxcomp.compile(
        matmul_of_arguments(640, 640, 4096, fmt, fmt), iree_flags=(f"{assembly.FLAG}={tmp_path}",), ukernels=of(size)
    )
    (text,) = (text for text in map(Path.read_text, tmp_path.glob("*.rocmasm")) if "v_mfma" in text)
    lines = [line.strip() for line in text.splitlines()]
    multiplied = [number for number, line in enumerate(lines) if line.startswith("v_mfma")]
    between = lines[multiplied[0] : multiplied[-1]]
    assert not [line for line in between if "accvgpr" in line or line.startswith("scratch_")]
