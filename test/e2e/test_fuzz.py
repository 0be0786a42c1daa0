"""Random programs against float64 NumPy. A failing case prints the command that runs it again."""

from __future__ import annotations

import numpy as np
import pytest
from fuzz import SOURCES, Case, check
from fuzz_ops import FRONTS
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from modules import BITS, KINDS
from spread import quick_if

from mxcomp.formats import SCALE_MODES
from mxcomp.run import runtime

EDGES = (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
SIZES = st.sampled_from(EDGES) | st.integers(1, 200)
CHUNKS, CHUNK = 10, 24

_ACTIVATIONS = st.sampled_from([(), ("relu",), ("maximum",), ("silu",)])
_ADDED = st.sampled_from([(), ("bias",), ("residual",), ("multiply",)])
_TYPES = st.sampled_from([(), (), ("f16",), ("bf16",)])


@st.composite
def consumers(draw: st.DrawFn) -> tuple[str, ...]:
    """Up to two operations in any order, and a cast; what is added to the product is of its order."""
    operations = [*draw(_ACTIVATIONS), *draw(_ADDED)]
    chosen = (*draw(st.permutations(operations)), *draw(_TYPES))
    return ("factor", *chosen) if {"silu", "bias", "residual", "f16"} & set(chosen) else chosen


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Small ones where 6-bit elements are left to IREE, which then decodes them for every product."""
    kinds = st.sampled_from(list(KINDS))
    mode = draw(st.sampled_from(["", *SCALE_MODES]))
    batch = draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
    behind = draw(consumers())
    types = draw(kinds), draw(kinds)
    ukernels = draw(st.sampled_from(["fastest", "fastest", "benefit", "none"]))
    data_tiling = draw(st.sampled_from([True, True, True, False]))
    slow = any(BITS[kind] == 6 for kind in types) and (ukernels == "none" or not data_tiling)
    m, n = (33, 65) if slow else (66 if batch else 200, 257)
    return Case(
        types=types,
        m=min(m, draw(SIZES)),
        n=min(n, draw(SIZES | st.sampled_from([255, 256, 257]))),
        k=32 * draw(st.integers(1, 4 if slow else 16)),
        batch=batch,
        dynamic_m=draw(st.booleans()) and not batch,
        constant_rhs=draw(st.booleans()),
        unfused=draw(st.booleans()) and not batch,
        mode=mode,
        source=draw(st.sampled_from(list(SOURCES))) if mode else "f32",
        front=draw(st.sampled_from(["", *FRONTS])) if mode else "",
        specials=bool(mode) and "maximum" not in behind and draw(st.sampled_from([False, False, True])),
        consumers=behind,
        ukernels=ukernels,
        data_tiling=data_tiling,
    )


def run(count: int, start: int) -> None:
    """Draws so many cases and runs them; the command of the first that fails, made as small as it goes, is printed."""

    @seed(start)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=cases())
    def each(case: Case) -> None:
        try:
            check(case)
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}\n{case.command}") from None

    each()


def test_some() -> None:
    run(2, start=1000)


@pytest.mark.slow
def test_more() -> None:
    run(8, start=1000)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_many(chunk: int) -> None:
    run(CHUNK, start=chunk)


def test_a_command_gives_its_case() -> None:
    case = Case(types=("f8E5M2", "f4E2M1FN"), m=3, mode="even", consumers=("factor", "silu", "f16"), dynamic_m=True)
    _, _, text = case.command.partition("--case ")
    assert Case.parse(text.strip("'")) == case


ONCE_WRONG = (
    Case(types=("f4E2M1FN", "f8E4M3FN"), m=2, n=256, k=416, data_tiling=False),
    Case(types=("f8E4M3FN", "f4E2M1FN"), m=17, n=2, k=480, data_tiling=False),
)
"""The first, IREE miscompiled as it was left to it; the second loads with a negative VGPR and a positive immediate."""


@pytest.mark.parametrize("case", ONCE_WRONG, ids=lambda case: f"{case.m}x{case.n}x{case.k}")
def test_what_was_wrong_once(case: Case) -> None:
    check(case)


WRONG = {
    (): lambda result: result * np.float32(1 + 1e-3),
    ("bf16",): lambda result: (result.view(np.uint16) ^ 1).view(result.dtype),
    ("factor", "silu"): lambda result: result * np.float32(1 + 1e-3),
}
"""Slightly wrong results, by consumers: of bf16 in the last bit."""


@pytest.mark.parametrize("consumers", quick_if(lambda consumers: "silu" not in consumers, WRONG), ids="-".join)
def test_a_wrong_number_is_noticed(consumers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(m=3, n=5, k=64, consumers=consumers)
    right = runtime.run
    monkeypatch.setattr(runtime, "run", lambda *args, **options: [WRONG[consumers](right(*args, **options)[0])])
    with pytest.raises(AssertionError, match="of 15 are wrong"):
        check(case)


def test_a_lost_nan_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(m=3, n=5, k=64, mode="even", specials=True)
    right = runtime.run
    monkeypatch.setattr(runtime, "run", lambda *args, **options: [np.nan_to_num(right(*args, **options)[0])])
    with pytest.raises(AssertionError, match="expected nan"):
        check(case)
