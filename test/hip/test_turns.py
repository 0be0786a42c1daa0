"""The largest tile of a multistage pipeline, on the simulator with all checks on; ping-pong is in test_in_rows.py."""

from __future__ import annotations

import pytest
from modules import FP4, KINDS, Matmul
from shapes import Shaped
from spread import quick_if
from test_epilogues import EPILOGUES, Epilogue, factor_of, text_of
from test_epilogues import check as check_epilogue
from test_units import BATCHED, check, of

import mxcomp
from mxcomp.target import get_target
from mxcomp.ukernels import pingpong

SLOW = pytest.mark.slow
E2M3, E3M2, E4M3, E5M2 = [kind for kind in KINDS if kind != FP4]


def test_two_groups_of_waves() -> None:
    """Half of the waves of each SIMD are in either group, and LDS holds at most the steps whose scales it holds."""
    assert {instance.tile for instance in pingpong.INSTANCES} == set(pingpong.TILES)
    for instance in pingpong.INSTANCES:
        assert instance.tile.threads == 8 * get_target("gfx950").wave_size
        lhs, rhs = instance.tile.staging(instance.elements, get_target("gfx950"))
        assert rhs.stages in (3, 4)
        assert sum(each.ring_bytes + each.scale_slots * each.scale_bytes for each in (lhs, rhs)) <= 160 * 1024


@pytest.mark.parametrize("k", [32, pytest.param(512, marks=SLOW), pytest.param(1024, marks=SLOW)])
@pytest.mark.parametrize("size", ["m256_n256"])
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
@pytest.mark.parametrize("size", ["m256_n256"])
def test_storage(size: str, shaped: Shaped, runs: list[tuple[int, int, int]]) -> None:
    check(shaped, of(size), *runs)


@pytest.mark.parametrize("epilogue", quick_if(lambda epilogue: epilogue is EPILOGUES[0], EPILOGUES), ids=str)
@pytest.mark.parametrize("size", ["m256_n256"])
def test_epilogues(size: str, epilogue: Epilogue) -> None:
    matmul = Matmul(340, 300, 96)
    factor = factor_of(matmul)
    program = mxcomp.compile(text_of(matmul, epilogue, factor), ukernels=of(size))
    check_epilogue(program, matmul, epilogue, factor)
