"""Ukernels whose waves take turns, on the simulator with all checks on: what reaches their own ways of loading."""

from __future__ import annotations

from dataclasses import replace

import pytest
from modules import FP4, KINDS, Matmul
from shapes import Shaped
from spread import quick_if
from test_epilogues import EPILOGUES, Epilogue, factor_of, text_of
from test_epilogues import check as check_epilogue
from test_units import BATCHED, check, of

import mxcomp
from mxcomp.target import GFX950
from mxcomp.ukernels import pingpong

SLOW = pytest.mark.slow
E2M3, E3M2, E4M3, E5M2 = [kind for kind in KINDS if kind != FP4]


def test_two_groups_of_waves() -> None:
    """Half of the waves of each SIMD are in either group, and LDS holds at most the steps whose scales it holds."""
    assert {instance.tile for instance in pingpong.INSTANCES} == set(pingpong.TILES)
    for instance in pingpong.INSTANCES:
        assert instance.tile.threads == 8 * GFX950.subgroup_size
        lhs, rhs = instance.tile.staging(instance.elements, GFX950)
        assert rhs.stages in (3, 4)
        assert sum(each.ring_bytes + each.scale_slots * each.scale_bytes for each in (lhs, rhs)) <= 160 * 1024


@pytest.mark.parametrize("k", [32, pytest.param(512, marks=SLOW), pytest.param(1024, marks=SLOW)])
@pytest.mark.parametrize("size", ["m256_n256", pytest.param("m320_n256", marks=SLOW)])
def test_few_k_tiles(size: str, k: int) -> None:
    """One K tile and two: what is loaded ahead lies past the last one."""
    check(Shaped(40, 72, k), of(size))


@pytest.mark.parametrize(
    ("shaped", "runs"),
    [
        pytest.param(Shaped(64, 128, 256, dynamic="mnk"), [(1, 1, 32), (330, 260, 1056)], marks=SLOW, id="dynamic"),
        pytest.param(Shaped(40, 132, 1056, batch=2, orders=BATCHED), [], marks=SLOW, id="batched"),
        pytest.param(
            Shaped(64, 96, 1056, batch=2, orders=BATCHED, dynamic="m"), [(330, 96, 1056)], marks=SLOW, id="both"
        ),
    ],
)
@pytest.mark.parametrize("size", ["m256_n256", "m320_n256"])
def test_storage(size: str, shaped: Shaped, runs: list[tuple[int, int, int]]) -> None:
    check(shaped, of(size), *runs)


@SLOW
@pytest.mark.parametrize(("lhs", "rhs"), [(E4M3, FP4), (FP4, E5M2)])
def test_types(lhs: str, rhs: str) -> None:
    """Three steps in LDS, and scales of one K tile; elements of two pieces."""
    check(Shaped(300, 280, 2144, types=(lhs, rhs)), of("m256_n256", lhs, rhs))


@pytest.mark.parametrize(
    ("types", "shaped", "runs"),
    [
        pytest.param((E4M3, E5M2), Shaped(300, 280, 1120), [], id="8 bits"),
        pytest.param((E3M2, E4M3), Shaped(40, 72, 1056, dynamic="m"), [(1, 72, 1056), (290, 72, 1056)], id="dynamic"),
        pytest.param((FP4, E2M3), Shaped(300, 280, 544), [], marks=SLOW, id="6 bits"),
        pytest.param((E2M3, FP4), Shaped(40, 132, 1056, batch=2, orders=BATCHED), [], marks=SLOW, id="batched"),
        pytest.param((E4M3, E4M3), Shaped(64, 128, 256, dynamic="mnk"), [(330, 260, 1056)], marks=SLOW, id="all"),
        pytest.param((E5M2, E3M2), Shaped(257, 1, 32), [], marks=SLOW, id="one column"),
    ],
)
def test_pairs_of_units(types: tuple[str, str], shaped: Shaped, runs: list[tuple[int, int, int]]) -> None:
    """Two units at a time, packed as for all other kernels; K of one to five tiles."""
    check(replace(shaped, types=types), of("m256_n256_k512_mfma32", *types), *runs)


@pytest.mark.parametrize("epilogue", quick_if(lambda epilogue: epilogue is EPILOGUES[0], EPILOGUES), ids=str)
@pytest.mark.parametrize("size", [pytest.param("m256_n256", marks=SLOW), "m320_n256"])
def test_epilogues(size: str, epilogue: Epilogue) -> None:
    matmul = Matmul(340, 300, 96)
    factor = factor_of(matmul)
    program = mxcomp.compile(text_of(matmul, epilogue, factor), ukernels=of(size))
    check_epilogue(program, matmul, epilogue, factor)
