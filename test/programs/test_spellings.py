"""Quantisers as others write them, one part of the spelling at a time, and several calls of what they are in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import made
import numpy as np
import pytest
import reference
import spellings
import steps_state
from checking import check
from drawing import Drawing
from elementwise import cast
from iree.compiler import ir
from made import FP4, Make, floats, multiplied, program, stored
from nodes import ELEMENTS, FLOATS, Node
from spread import quick_if
from steps_matmul import Scale

from mxcomp import formats, pipeline
from mxcomp.run.resident import Resident

FP8 = "f8E4M3FN"
SPELLINGS: dict[str, tuple[str, dict[str, str]]] = {
    **{f"amax {name}": (FP4, {"amax": name}) for name in spellings.AMAX},
    **{f"amax {name} in 8 bits": (FP8, {"amax": name, "mode": "rceil"}) for name in ("two steps", "with index")},
    **{
        f"{mode} by {name}": (FP4, {"code": name, "mode": mode})
        for name, how in spellings.CODES.items()
        for mode in how.modes
    },
    **{f"scaled by {name}": (FP4, {"scaled": name}) for name in spellings.SCALED},
    **{
        f"flat, scaled by {name}": ("f8E5M2", {"layout": "flat", "scaled": name, "code": "quotient", "mode": "rceil"})
        for name in spellings.SCALED
    },
    **{f"laid out {name}": (FP4, {"layout": name}) for name in spellings.LAYOUTS if name},
    **{f"clamped by {name}": (FP8, {"scaled": "inverse", "clamp": name}) for name in spellings.CLAMPS},
    **{f"scales as {name}": (FP4, {"scales": name}) for name in spellings.STORED},
    **{f"to {kind}": (kind, {"scaled": "extf", "clamp": "minnumf"}) for kind in ELEMENTS},
    "by comparison": (FP4, {"scaled": "inverse", "elements:by comparison": "yes"}),
}
QUICK = (
    "amax two steps",
    "amax with index",
    "amax with index in 8 bits",
    "laid out keepdims",
    "laid out columns",
    "flat, scaled by shift",
)


def _quantised(drawing: Drawing, kind: str) -> list[Node]:
    rows = floats(drawing, 33, 64)
    return [multiplied(drawing, spellings.draw(drawing, rows, "m", kind), stored(drawing, "n", 17, 2))]


@pytest.mark.parametrize("name", quick_if(lambda name: name in QUICK, SPELLINGS))
def test_spelling(name: str) -> None:
    """Each with our ukernels: nothing falls back."""
    kind, chosen = SPELLINGS[name]
    found = check(program(lambda drawing: _quantised(drawing, kind), chosen=chosen))
    assert found.kind == "right", found.message


@pytest.mark.slow
@pytest.mark.parametrize("layout", spellings.LAYOUTS)
def test_plugin(layout: str) -> None:
    """A plugin is emitted, or refused, whatever tensors scales were stored in."""
    found = check(program(lambda drawing: _quantised(drawing, FP4), chosen={"layout": layout}, way="plugin"))
    assert found.kind == "right", found.message


@pytest.mark.parametrize("mode", reference.EXPONENTS)
@pytest.mark.parametrize("kind", ELEMENTS)
def test_reference(kind: str, mode: str) -> None:
    """What the specification says, written down twice."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((60, 64)) * np.exp2(rng.integers(-140, 120, (60, 1)))).astype(np.float32)
    x[:20] = np.round(x[:20] / np.abs(x[:20]).max() * 8)
    x[3, 2], x[5, 40], x[9, :32] = np.nan, -np.inf, 0
    for found, expected in zip(reference.quantise(x, kind, mode), formats.quantise(x, kind, mode), strict=True):
        np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def _total(drawing: Drawing) -> list[Node]:
    product = multiplied(drawing, stored(drawing, "m", 4, 1), stored(drawing, "n", 32, 1))
    rows = steps_state.cache(drawing, steps_state.total(drawing, product))
    again = spellings.draw(drawing, rows, "m", FP4)
    return [rows, multiplied(drawing, again, stored(drawing, "n", 8, 1))]


def _cached(drawing: Drawing) -> list[Node]:
    return [steps_state.cached_product(drawing, Scale(rows={3: 1}, columns={5: 1}, blocks={2: 1}))]


STATES = {"floats": (_total, {}), "counted": (_total, {"position": "counted"})} | {
    kind: (_cached, {"cached": kind}) for kind in steps_state.CACHED
}


@pytest.mark.parametrize("name", quick_if(lambda name: name in ("counted", FP4), STATES))
def test_state(name: str) -> None:
    """What is kept from call to call, and read by matmuls."""
    make, chosen = STATES[name]
    found = check(program(make, chosen=chosen, rounds=3))
    assert found.kind == "right", found.message


def _cache_and_total(drawing: Drawing) -> list[Node]:
    """Two variables that begin with the same zeros, the first of which is written into in place."""
    product = multiplied(drawing, stored(drawing, "m", 4, 1), stored(drawing, "n", 32, 1))
    return [steps_state.total(drawing, steps_state.cache(drawing, product))]


def _caches(drawing: Drawing, kind: str) -> list[Node]:
    """Keys and values."""
    keys, values = (steps_state.cache(drawing, cast(floats(drawing, 4, 32), kind)) for _ in range(2))
    return [multiplied(drawing, made.quantised(drawing, keys), stored(drawing, "n", 8, 1)), values]


def test_variables_that_begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has memory of its own; without the pass that sees to it, both are one."""
    drawn = program(_cache_and_total, rounds=3)
    found = check(drawn)
    assert found.kind == "right", found.message
    kept = tuple(name for name in pipeline.DISPATCH_PASSES if name != "mxcomp-separate-variables")
    monkeypatch.setattr(pipeline, "DISPATCH_PASSES", kept)
    assert check(drawn).kind == "wrong"


@pytest.mark.slow
@pytest.mark.parametrize("kind", FLOATS)
def test_caches(kind: str) -> None:
    found = check(program(lambda drawing: _caches(drawing, kind), rounds=3))
    assert found.kind == "right", found.message


@pytest.mark.slow
def test_plugin_with_variables() -> None:
    """A stock iree-compile has no such pass: the model is refused."""
    found = check(program(_cache_and_total, rounds=2, way="plugin"))
    assert found.kind == "right", found.message


def _forgotten(drawing: Drawing, name: str, node: Node) -> None:
    """The reference knows of it, the program does not."""
    drawing.module.state[name] = node.data


def _floor(amax: ir.Value, kind: str, _: str, least: int) -> ir.Value:
    return spellings._by_carry(amax, kind, "floor", least)


def _clamped_early(x: ir.Value, bound: float) -> ir.Value:
    return spellings.CLAMPS["minimumf"](x, bound / 4)


WRONG: dict[str, tuple[str, str, object, str, dict[str, str]]] = {
    "another mode": ("CODES", "carry", spellings.Code(_floor), FP4, {"mode": "even"}),
    "start": ("AMAX", "maximumf", replace(spellings.AMAX["maximumf"], start=64.0), FP4, {}),
    "scales": ("SCALED", "inverse", spellings.Scaled(lambda x, code: x), FP4, {"scaled": "inverse"}),
    "saturation": ("CLAMPS", "minnumf", _clamped_early, FP8, {"scaled": "inverse", "clamp": "minnumf"}),
}
"""Mistakes of whoever writes a quantiser: a table's entry, and what it becomes."""


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_wrong_spelling(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference notices them."""
    table, entry, mistake, kind, chosen = WRONG[name]
    monkeypatch.setitem(getattr(spellings, table), entry, mistake)
    assert check(program(lambda drawing: _quantised(drawing, kind), chosen=chosen)).kind == "wrong"


@pytest.mark.slow
@pytest.mark.parametrize("make", [_total, _cached])
def test_forgotten_state(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that does not keep what it should is wrong from the second call on."""
    monkeypatch.setattr(steps_state, "_keep", _forgotten)
    found = check(program(make, rounds=3))
    assert found.kind == "wrong" and "of call 1" in found.message and "of call 0" not in found.message


@pytest.mark.slow
def test_stale_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of the call before are wrong in the next."""
    run, results = Resident.run, list[Any]()

    def stale(self: Resident, *arrays: np.ndarray, function: str | None = None) -> list[np.ndarray]:
        results.append(run(self, *arrays, function=function))
        return results[max(0, len(results) - 2)]

    monkeypatch.setattr(Resident, "run", stale)
    found = check(program(lambda drawing: _quantised(drawing, FP4), rounds=2))
    assert found.kind == "wrong" and "of call 1" in found.message
