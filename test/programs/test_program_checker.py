"""What checks programs notices what is wrong with them, and a campaign survives what they do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import campaign
import checking
import drawn
import made
import numpy as np
import products
import program
import pytest
from checking import Outcome, check, compared
from drawing import Drawing
from nodes import FLOATS, Node, outside, packed, summed, unpacked
from seeds import BASE
from steps_control import _multiplied_alike
from steps_matmul import Scale

import mxcomp
from mxcomp.run import runtime

SEED = 1
"""A program whose results are floats."""


@pytest.fixture(scope="module")
def some() -> program.Program:
    return next(
        drawn_
        for drawn_ in (program.draw(seed, "matmul", "plain") for seed in range(SEED, 100))
        if all(node.kind == "f32" and node.exact and node.data.any() for f in drawn_.functions for node in f.results)
    )


def _returning(change: Callable[[np.ndarray], np.ndarray], drawn_: program.Program) -> Callable[..., list[np.ndarray]]:
    """A device that computes as NumPy does, and then changes the results."""
    results = {f.name: [node.data.astype(FLOATS[node.kind]) for node in f.results] for f in drawn_.functions}
    return lambda _, name, *args, **options: [change(array) for array in results[name]]


WRONG = {
    "right": (lambda array: array, "right"),
    "last bit": (lambda array: np.nextafter(array, np.float32(1e9)), "wrong"),
    "transposed": (lambda array: array[::-1].copy() + np.eye(*array.shape[-2:], dtype=array.dtype), "wrong"),
    "type": (lambda array: array.astype(np.float16), "wrong"),
    "NaN": (lambda array: array * np.float32(np.nan), "wrong"),
    "shape": (lambda array: array[None], "wrong"),
}


@pytest.fixture(scope="module")
def compiled(some: program.Program, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return checking._compiled(some, tmp_path_factory.mktemp("some"))


@pytest.mark.parametrize("name", WRONG)
def test_wrong_numbers(name: str, some: program.Program, compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    change, kind = WRONG[name]
    monkeypatch.setattr(checking, "_compiled", lambda *_: compiled)
    monkeypatch.setattr(runtime, "run", _returning(change, some))
    found = check(some)
    assert found.kind == kind, found.message


def test_a_lost_nan() -> None:
    node = Node(None, np.array([1.0, np.nan]), "f32")
    assert not outside(np.array([1, np.nan], np.float32), node).any()
    assert outside(np.array([1, 0], np.float32), node).tolist() == [False, True]
    assert outside(np.array([np.nan, np.nan], np.float32), node).tolist() == [True, False]


def test_bounds() -> None:
    node = Node(None, np.array([1.0]), "f32", np.array([2.0**-20]))
    assert not outside(np.array([1 + 2.0**-21], np.float32), node).any()
    assert outside(np.array([1 + 2.0**-19], np.float32), node).all()


def test_operands_beyond_f32() -> None:
    """Sums with an operand of 2^128 or more are what the limits say: finite, infinite or NaN; others are exact."""
    lhs, rhs = np.full((2, 1, 32), 2.0**-120), np.ones((3, 1, 32))
    rhs[1, 0, 5], rhs[2] = 2.0**128, 2.0**127
    node = products._added(None, products.sums_of((lhs, "mki"), (rhs, "nki"), "mn"), "f32", None)
    assert not node.exact
    found = node.data.astype(np.float32)
    for value in (np.nan, np.inf, found[0, 1]):
        found[:, 1] = value
        assert not outside(found, node).any()
    found[:, [0, 2]] = np.nextafter(found[:, [0, 2]], np.float32(np.inf))
    assert outside(found, node).tolist() == [[True, False, True]] * 2


def test_what_is_exact() -> None:
    """A sum is if all terms are multiples of one step, and not more than 2^24 of them together."""
    whole, step = np.array([3.0]), np.array([1.0])
    assert summed(None, whole, np.array([2.0**24]), step, 9, "f32").exact
    assert not summed(None, whole, np.array([2.0**25]), step, 9, "f32").exact
    assert not summed(None, whole, np.array([2.0**12]), step, 9, "f16").exact


@pytest.mark.parametrize("kind", ["f4E2M1FN", "f6E3M2FN", "f8E4M3FN", "i4"])
def test_bytes(kind: str) -> None:
    """Elements are compared as bits, but for the sign of zero."""
    bits = {"i4": 4}.get(kind, int(kind[1]) if kind[0] == "f" else 0)
    codes = np.arange(16, dtype=np.uint8).reshape(2, 8)
    node = Node(None, codes, kind)
    right = packed(codes, bits)
    assert (unpacked(right, bits) == codes.reshape(-1)).all()
    assert compared(right.reshape(2, -1).view(np.int8), node) == ""
    wrong = packed(codes ^ 1, bits)
    assert "16 of 16 are wrong" in compared(wrong.reshape(2, -1).view(np.int8), node)


def test_an_unexpected_exception(some: program.Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **options: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(mxcomp, "compile", fail)
    found = check(some)
    assert (found.kind, found.message.split(" (")[0]) == ("crash", "KeyError: 'lost'")


def test_an_error_of_ours(some: program.Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise mxcomp.errors.InputError("why")

    monkeypatch.setattr(mxcomp, "compile", refuse)
    assert check(some).kind == "refused"


def test_a_failure_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever program is drawn: some run in sessions."""
    monkeypatch.setattr(drawn, "check", lambda _: Outcome("wrong", "other numbers", 0.0))
    with pytest.raises(AssertionError, match=rf"run.py --seed {BASE + 3} --way "):
        drawn.check_one(3)


def test_a_seed_gives_the_same_program() -> None:
    first, second = program.draw(7), program.draw(7)
    assert first.text == second.text and first.features == second.features
    assert program.draw(8).text != first.text


def test_a_branch_that_is_too_large() -> None:
    """A value with which no product is small enough is drawn as it is, not for ever."""

    def make(drawing: Drawing) -> list[Node]:
        node = made.floats(drawing, 8, 8)
        assert _multiplied_alike(drawing, node, Scale(products=8 * 8 * 32 - 1)) is node
        return [_multiplied_alike(drawing, node, Scale(products=8 * 8 * 32))]

    assert "scaling_extf" in made.program(make).text


class Deadly:
    """A seed that ends the process it is sent to."""

    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        return os._exit, (3,)


def test_a_campaign_goes_on(tmp_path: Path) -> None:
    """A process that dies is a crash; what is in the log is not run again."""
    worker = campaign._Worker()
    record = worker.run(Deadly())
    assert (record.kind, record.message) == ("crash", "the process ended with 3")
    log = tmp_path / "log.jsonl"
    (record,) = campaign.run([SEED], 1, log)
    assert record.kind in campaign.KINDS and record.features
    assert campaign.read(log) == [record]
    assert list(campaign.run([SEED], 1, log)) == []
    assert "theme" in campaign.summary([record])


def test_sums() -> None:
    """Products of blocks, their magnitudes and steps, against a loop."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (3, 2, 32)) * 0.5, rng.integers(-4, 5, (5, 2, 32)) * 0.25
    found = products.sums_of((a, "mki"), (b, "nki"), "mn")
    expected = a.reshape(3, -1) @ b.reshape(5, -1).T
    assert (found.data == expected).all() and found.terms == 64
    assert (found.magnitude == np.abs(a.reshape(3, -1)) @ np.abs(b.reshape(5, -1)).T).all()
    assert (found.step == 0.125).all()
