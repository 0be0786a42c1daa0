"""The largest tile of a multistage pipeline, on the simulator with all checks on."""

from __future__ import annotations

import pytest
from modules import FP4, KINDS, Matmul
from shapes import Shaped
from spread import quick_if
from test_epilogues import EPILOGUES, Epilogue, factor_of, text_of
from test_epilogues import check as check_epilogue
from test_inner_tiles import BATCHED, check, of

import mxcomp

SLOW = pytest.mark.slow
E2M3, E3M2, E4M3, E5M2 = [kind for kind in KINDS if kind != FP4]


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
