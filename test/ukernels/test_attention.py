"""Kernels of attention against float64, by IREE's runtime on the simulator with all checks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mxcomp
from mxcomp.run.runtime import RunError
from mxcomp.target import gfx950
from mxcomp.ukernels.attention_memory import Stored, Subscript
from mxcomp.ukernels.attention_prefill import Prefill

MODULE = (Path(__file__).parent / "attention.mlir.in").read_text()
TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "i1": np.bool_}
CAUSAL = "causal"
TOLERANCE = {"bf16": 2**-8, "f16": 2**-10}
"""Of the largest value, which no result exceeds: what a result, and weights, are rounded to."""


@dataclass(frozen=True)
class Attention:
    """An attention; None is a dynamic batch, or number of queries or keys. `by_head`: keys of a head are neighbours."""

    key_heads: int
    group: int
    queries: int | None
    keys: int | None
    size: int
    value_size: int = 0
    batch: int | None = 1
    mask: str = ""
    type: str = "bf16"
    by_head: bool = True
    result: str = ""

    @property
    def values(self) -> int:
        return self.value_size or self.size

    @property
    def scale(self) -> float:
        return float(np.float32(self.size**-0.5))

    @property
    def heads(self) -> int:
        return self.key_heads * self.group

    def stored(self, batch: int | str, keys: int | str) -> tuple[int | str, ...]:
        return (batch, self.key_heads, keys) if self.by_head else (batch, keys, self.key_heads)

    def text(self) -> str:
        sizes = {"%b": self.batch, "%rows": self.batch and self.batch * self.heads, "%t": self.queries, "%l": self.keys}
        b, rows, t, keys = ("?" if size is None else size for size in sizes.values())
        is_causal = self.mask == CAUSAL
        kinds = {"masked", CAUSAL if is_causal else "given"} if self.mask else {"not masked"}
        others = {"masked", "not masked", "given", CAUSAL} - kinds
        lines = [line for line in MODULE.splitlines() if line.rpartition("// ")[2] not in others]

        def dynamic(*names: str) -> str:
            return ", ".join(name for name in names if sizes[name] is None)

        return Template("\n".join(lines)).substitute(
            batch=b, heads=self.heads, key_heads=self.key_heads, group=self.group, queries=t,
            keys=keys, size=self.size, value_size=self.values, rows=rows, type=self.type,
            mask="f32" if is_causal else self.mask or "f32", result=self.result or self.type, scale=self.scale,
            stored_keys="x".join(map(str, self.stored(b, keys))), along=2 if self.by_head else 1,
            stored="(b, h, l, d)" if self.by_head else "(b, l, h, d)", of_keys=dynamic("%b", "%l"),
            of_masks=dynamic("%b", "%t", "%l"), of_rows=dynamic("%rows", "%t"),
        )  # fmt: skip

    def program(self) -> mxcomp.Program:
        program = mxcomp.compile(self.text(), strict=True)
        (attention,) = program.report.attentions
        assert attention.ukernel is not None and attention.reason is None
        return program

    def operands(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Returns operands, and a mask, of static sizes."""
        batch, queries, keys = self.batch or 1, self.queries or 1, self.keys or 1
        shapes = (
            (batch, self.heads, queries, self.size),
            *((*self.stored(batch, keys), size) for size in (self.size, self.values)),
        )
        return [rng.standard_normal(shape).astype(TYPES[self.type]) for shape in shapes]

    def masks(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Of random numbers, and of keys that are not seen; every query sees one."""
        if self.mask in ("", CAUSAL):
            return []
        shape = self.batch or 1, self.queries or 1, self.keys or 1
        keys = shape[-1]
        seen = rng.random(shape) > 0.5
        seen[..., rng.integers(keys)] = True
        if self.mask == "i1":
            return [seen]
        return [np.where(seen, 3 * rng.standard_normal(shape), -np.inf).astype(TYPES[self.mask])]

    def expected(self, queries: np.ndarray, keys: np.ndarray, values: np.ndarray, *masks: np.ndarray) -> np.ndarray:
        q, k, v = (each.astype(np.float64) for each in (queries, keys, values))
        if not self.by_head:
            k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)
        k, v = np.repeat(k, self.group, 1), np.repeat(v, self.group, 1)
        scores = np.einsum("bhtd,bhld->bhtl", q, k) * self.scale
        if self.mask == CAUSAL:
            scores += np.where(np.tri(*scores.shape[2:], dtype=bool), 0, -np.inf)
        for mask in masks:
            added = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask.astype(np.float64)
            scores += added[:, None]
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        result = np.einsum("bhtl,bhlv->bhtv", weights / weights.sum(-1, keepdims=True), v)
        return result.reshape(-1, *result.shape[2:])

    def check(self, *sizes: Mapping[str, int], seed: int = 0) -> mxcomp.Program:
        """Checks a result for each of some dynamic sizes, and returns the program."""
        program, rng = self.program(), np.random.default_rng(seed)
        for case in [replace(self, **each) for each in sizes or [{}]]:
            operands = [*case.operands(rng), *case.masks(rng)]
            (found,) = program.run(*operands)
            expected = case.expected(*operands)
            assert found.shape == expected.shape and found.dtype == TYPES[self.result or self.type]
            error = np.abs(found.astype(np.float64) - expected).max()
            assert error <= TOLERANCE[self.type] * np.abs(operands[2].astype(np.float64)).max()
        return program


def test_grouped_queries() -> None:
    """Two steps of 32 keys in each of 64 parts, for a whole fragment of queries; keys of a head apart."""
    Attention(2, 16, 1, 64 * 2 * 32, 64, by_head=False).check()


@pytest.mark.parametrize(
    "case", [Attention(96, 2, 1, 100, 48, batch=2), Attention(2, 8, 1, 128, 64)], ids=["many", "short"]
)
def test_a_workgroup_for_each_head(case: Attention) -> None:
    """Checks attention of many heads of keys, or of few bytes each, in one dispatch, of which a workgroup has all of a
    head: also where the last wave has keys that fill no step."""
    assert len(case.check().report.launches) == 1


def test_parts_of_a_head() -> None:
    """Checks that a workgroup has a part where a head of keys has more bytes, or LDS no room for all sums."""
    for case in (Attention(2, 8, 1, 256, 80), Attention(2, 32, 1, 32, 256)):
        assert len(case.program().report.launches) == 2


@pytest.mark.slow
@pytest.mark.parametrize("case", ["rows that fill no fragment", "values of pieces", "f16", "results in f32"])
def test_cases_of_a_workgroup_for_each_head(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setattr("mxcomp.matching.attention._ALONE", ((0, math.inf),))
    CASES[case].check()


@pytest.mark.slow
def test_dynamic_keys_with_a_mask() -> None:
    """Several queries of a head; a number of keys for which most workgroups have none, and one that fills no step."""
    Attention(2, 4, 2, None, 80, mask="bf16").check({"keys": 3}, {"keys": 70})


def test_many_queries() -> None:
    """Of two workgroups for each head, whose last queries are padding, and keys that fill no step, with a mask."""
    Attention(1, 2, 70, 150, 64, 32, mask="bf16").check()


def test_a_single_key() -> None:
    """Checks a key that IREE, of a dynamic batch, crashes on; the result is its value."""
    Attention(1, 1, 33, 1, 16, batch=None, by_head=False).check({"batch": 3})


def test_dynamic_queries() -> None:
    """Checks numbers of queries that fill no tile, and several tiles, where a query sees keys up to its own only."""
    case = Attention(2, 2, None, None, 64, mask=CAUSAL)
    case.check(*({"queries": queries, "keys": keys} for queries, keys in ((1, 1), (5, 40), (64, 64), (130, 130))))


@pytest.mark.slow
def test_few_queries_or_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that a call decides between tiles of 64 queries, and of 256 where these are enough for all units."""
    monkeypatch.setattr("mxcomp.matching.attention._FEW", 8 / 256)
    case = Attention(2, 2, None, None, 64, mask=CAUSAL)
    case.check(*({"queries": queries, "keys": keys} for queries, keys in ((5, 33), (15, 65), (16, 65), (300, 300))))


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Attention(2, 4, None, None, 128, mask=CAUSAL),
        Attention(1, 1, None, 77, 64, mask="f32", type="f16"),
        Attention(2, 2, None, None, 64, mask="i1", batch=2),
    ],
    ids=["causal", "one head", "truth values"],
)
def test_many_numbers_of_queries(case: Attention) -> None:
    sizes = ({"queries": each} for each in (1, 5, 33, 64, 100, 300, 512))
    case.check(*(each | ({} if case.keys else {"keys": each["queries"]}) for each in sizes))


@pytest.mark.slow
@pytest.mark.parametrize("queries", [100, 300])
@pytest.mark.parametrize("mask", ["", "f32"])
def test_eight_waves(monkeypatch: pytest.MonkeyPatch, queries: int, mask: str) -> None:
    """Two on a SIMD, of which one multiplies at a time; of two workgroups for each head, or of one that is not full."""
    monkeypatch.setattr("mxcomp.matching.attention._FEW", 1 / 256)
    case = Attention(1, 2, queries, 300, 128, mask=mask)
    assert "_m256_d128_" in str(case.program().report.attentions[0].ukernel)
    case.check()


@pytest.mark.parametrize("waves", [8, 4, 2])
def test_lds_has_room(waves: int) -> None:
    """Keys and values of all sizes, with what waves copy behind the last row."""
    row = Stored("bf16", (64, 64), (Subscript("l", 1, None), Subscript("d", 1, None)))
    for size, value_size in itertools.product(range(16, 257, 16), repeat=2):
        room = gfx950.TARGET.lds_bytes
        spec = (4, 99, size, value_size, 99, 1.0, row, row, row, None, None, None, None, "bf16")
        kernel = Prefill(*spec, waves=waves, xcds=8, room=room)
        assert waves == 8 or kernel.has_room
        shared = [replace(kernel, waves=2 * waves, splits=2)] if waves < 8 and kernel.may_split else []
        for each in [kernel, *shared]:
            assert not each.has_room or each.lds_bytes <= room
            assert not (each.has_room and each.is_staggered) or each.slots == 4


CASES = {
    "many queries": Attention(2, 2, 128, 256, 128),
    "many queries, large": Attention(1, 2, 33, 100, 256, mask="f32", batch=2),
    "many queries, values of another size": Attention(2, 1, 64, 128, 192, 128, by_head=False),
    "many queries, truth values": Attention(2, 1, 40, 77, 80, mask="i1", type="f16"),
    "many queries, in f32": Attention(1, 1, 65, 40, 16, result="f32"),
    "more queries": Attention(256, 2, 128, 32, 32),
    "no group": Attention(6, 1, 1, 100, 128),
    "one head of keys": Attention(1, 8, 1, 40, 128),
    "32 rows": Attention(1, 8, 4, 96, 256),
    "rows that fill no fragment": Attention(2, 5, 4, 64, 192, mask="f32"),
    "values of another size": Attention(2, 2, 1, 130, 192, 128),
    "values of pieces": Attention(2, 2, 1, 64, 96, 176),
    "the smallest": Attention(1, 1, 2, 2, 16),
    "truth values": Attention(2, 2, 3, 77, 64, mask="i1", batch=2),
    "a single key": Attention(2, 4, 3, 1, 64, mask="f32", batch=2, by_head=False),
    "a single key, one head": Attention(1, 8, 1, 1, 128, mask="i1"),
    "many queries, a single key": Attention(2, 2, 70, 1, 80, mask="i1"),
    "f16": Attention(2, 2, 1, 64, 48, type="f16", mask="f16"),
    "results in f32": Attention(2, 4, 1, 512, 128, result="f32"),
    "more rows than fit": Attention(1, 64, 1, 64, 64),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_cases(case: Attention) -> None:
    case.check()


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_sizes(data: st.DataObject) -> None:
    """Of random sizes: all results, of a number of keys that is known and of several that are not."""
    draw = data.draw
    queries = draw(st.integers(1, 8) | st.integers(33, 150))
    group, size = draw(st.integers(1, max(1, 32 // queries))), 16 * draw(st.integers(1, 16))
    keys: Sequence[int] = draw(st.lists(st.just(1) | st.integers(1, 700), min_size=1, max_size=3))
    is_dynamic, batch = draw(st.booleans()), draw(st.integers(1, 2))
    attention = Attention(
        draw(st.integers(1, 4)), group, queries, None if is_dynamic else keys[0], size,
        draw(st.sampled_from([0, 64, 128])), batch, draw(st.sampled_from(["", "bf16", "f32", "i1"])),
        by_head=draw(st.booleans()),
    )  # fmt: skip
    if batch * attention.heads > 1 or 1 < queries <= 32 or queries > 64:
        attention.check(*([{"keys": each} for each in keys] if is_dynamic else ()), seed=draw(st.integers(0, 1000)))


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_dynamic_sizes(data: st.DataObject) -> None:
    """Checks several sizes of a dynamic batch, of a dynamic number of queries, and of queries and keys."""
    draw = data.draw
    names = draw(st.sampled_from([["batch"], ["queries"], ["queries", "keys"]]))
    most = {"batch": 3, "queries": 350, "keys": 300}
    sizes = [{name: draw(st.integers(1, most[name])) for name in names} for _ in range(3)]
    mask = draw(st.sampled_from(["", CAUSAL, "bf16", "f32", "i1"]))
    others = {"batch": 1, "queries": draw(st.integers(33, 150)), "keys": draw(st.just(1) | st.integers(1, 300))}
    attention = Attention(
        draw(st.integers(1, 4)), draw(st.integers(1, 3)), size=16 * draw(st.integers(1, 16)),
        value_size=draw(st.sampled_from([0, 16, 64, 128])), mask=mask,
        type=draw(st.sampled_from(["bf16", "f16"])), by_head=draw(st.booleans()),
        **{**others, **dict.fromkeys(names)},
    )  # fmt: skip
    attention.check(*sizes, seed=draw(st.integers(0, 1000)))


@pytest.mark.slow
def test_rows_that_see_no_key() -> None:
    """They are 0, whatever the values are, and what a query does not see counts for nothing where others do."""
    attention, rng = Attention(2, 2, 2, 64, 64, mask="i1"), np.random.default_rng(1)
    operands, seen = attention.operands(rng), np.zeros((1, 2, 64), bool)
    seen[:, 1, 40] = True
    (found,) = attention.program().run(*operands, seen)
    assert not found[:, 0].any()
    np.testing.assert_array_equal(found[:, 1], np.repeat(operands[2][0, :, 40], 2, 0))


@pytest.mark.slow
def test_results_are_the_same_in_every_run() -> None:
    attention, rng = Attention(2, 4, 1, 2048, 64), np.random.default_rng(2)
    program, operands = attention.program(), attention.operands(rng)
    (first,), (second,) = (program.run(*operands) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_other_numbers_of_keys_than_values() -> None:
    attention, rng = Attention(2, 4, 1, None, 64), np.random.default_rng(3)
    queries, keys, _ = replace(attention, keys=40).operands(rng)
    with pytest.raises(RunError, match="dimension 2 of argument 2 and dimension 2 of argument 1 must be equal"):
        attention.program().run(queries, keys, replace(attention, keys=41).operands(rng)[2])
