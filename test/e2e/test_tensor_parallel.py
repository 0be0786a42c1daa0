"""A decoder's linear layers at tensor parallelism, bf16 in and out, few rows: float64's numbers, and few dispatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from modules import Matmul
from tensor_parallel import LAYERS, Layer
from test_few_rows import APART, FP4, FP8, INSIDE, SLOWER, check, program

import mxcomp
from mxcomp.matching import gathers
from mxcomp.sim.schedule import ORDERS

ROWS = (1, 2, 8, 16, 17, 64)
PAIRS = ((FP4, FP4), (FP8, FP8), (FP8, FP4))
_MOST_ROWS = 16
_MOST_WEIGHTS = 24 << 20
"""That are simulated; of larger layers some columns at the end, as many behind the last whole tile of any kernel."""
_TILE = 256


@pytest.fixture(autouse=True)
def packed_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are arguments here, and constants in a model: those are packed, and never read as they are stored."""
    monkeypatch.setattr(gathers, "are_given", lambda elements: False)


def _cut(layer: Layer) -> int:
    """N, or fewer columns with the same remainder."""
    if layer.n * layer.k <= _MOST_WEIGHTS:
        return layer.n
    return layer.n % _TILE + _TILE


def _check(layer: Layer, m: int, types: tuple[str, str], schedules: Sequence[str]) -> None:
    matmul = Matmul(m, _cut(layer), layer.k, types=types)
    dispatches = INSIDE if m <= _MOST_ROWS else APART
    ukernels = "fastest"
    if matmul.n < layer.n:
        ukernels, dispatches = _of_all_columns(layer, m, types, dispatches)
    _simulated(matmul, tuple(dispatches), tuple(schedules), ukernels)


@cache
def _simulated(matmul: Matmul, dispatches: tuple[str, ...], schedules: tuple[str, ...], ukernels: str) -> None:
    """Once of layers that are simulated in the same size and by the same kernel."""
    check(matmul, "even", "bf16", list(dispatches), SLOWER, schedules, ukernels)


def _of_all_columns(layer: Layer, m: int, types: tuple[str, str], dispatches: list[str]) -> tuple[str, list[str]]:
    """What the whole layer is multiplied by, which its last columns alone would not be, and in which dispatches."""
    matmul = Matmul(m, layer.n, layer.k, types=types)
    (found,) = mxcomp.compile(program(matmul, "even", "bf16"), ukernels="fastest").report.matmuls
    assert found.ukernel is not None
    assert found.note is not None
    assert found.dispatches == dispatches or SLOWER in found.note
    if found.note.startswith("K in "):  # as that of fewer columns is
        return "fastest", dispatches
    name = found.ukernel if found.dispatches == APART else found.ukernel.replace("mx_", "mx_fused_quant16_", 1)
    return name, found.dispatches


QUICK = [
    (replace(layer, n=layer.n // 4), m, types)
    for layer, m, types in zip(
        [layer for layer in LAYERS if layer.model == "GPT-OSS" and layer.ranks == 8],
        (1, 16, 5, 64),
        [*PAIRS, PAIRS[0]],
        strict=True,
    )
]
"""A quarter of the columns."""


@pytest.mark.parametrize(("layer", "m", "types"), QUICK, ids=str)
def test_some_layers(layer: Layer, m: int, types: tuple[str, str]) -> None:
    _check(layer, m, types, ORDERS[:1])


DISTINCT = list({(layer.n, layer.k): layer for layer in reversed(LAYERS)}.values())[::-1]
"""Of layers of the same size, the first."""


@pytest.mark.slow
@pytest.mark.parametrize("types", PAIRS, ids="-".join)
@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize("layer", DISTINCT, ids=str)
def test_layers(layer: Layer, m: int, types: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXCOMP_SIM_ENGINE", "fast")  # these are large enough for kernels that are compiled first
    _check(layer, m, types, ORDERS)
