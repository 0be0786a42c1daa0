"""Masks that models compute, as transformers spells them: by position where they say where keys start and end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers.masking_utils import eager_mask, sdpa_mask, sliding_window_causal_mask_function

import mxcomp.torch
from mxcomp.torch.values import array

BATCH, HEADS, KEY_HEADS, KEYS, SIZE = 2, 4, 2, 96, 64
Masks = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]
"""A mask of so many queries, from the position of the first one, and what there is of sequences."""


def of_transformers(boolean: bool, window: int | None = None, padded: bool = False, holes: bool = False) -> Masks:
    def mask(queries: int, position: torch.Tensor, of_sequences: torch.Tensor) -> torch.Tensor:
        options: dict[str, Any] = {"batch_size": BATCH, "q_length": queries, "kv_length": KEYS, "q_offset": position}
        if window is not None:
            options["mask_function"] = sliding_window_causal_mask_function(window)
        if padded:
            options["attention_mask"] = torch.arange(KEYS)[None] >= of_sequences[:, None]
        if holes:
            options["attention_mask"] = torch.arange(KEYS)[None] * of_sequences[:, None] % 3 != 1
        made = sdpa_mask(allow_is_causal_skip=False, **options)
        return made if boolean else eager_mask(dtype=torch.bfloat16, **options)

    return mask


def places(queries: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(queries)[:, None], torch.arange(KEYS)[None]


def of_lengths(queries: int, position: torch.Tensor, of_sequences: torch.Tensor) -> torch.Tensor:
    """A position for each sequence."""
    query, key = places(queries)
    return (key <= query + of_sequences[:, None, None])[:, None]


def of_lengths_and_window(queries: int, position: torch.Tensor, of_sequences: torch.Tensor) -> torch.Tensor:
    """A mask of numbers: a query that sees no key weighs all of them alike."""
    query, key = places(queries)
    hidden = (key > query + position) | (key <= query + position - 9) | (key >= of_sequences[:, None, None])
    return torch.zeros(hidden.shape, dtype=torch.bfloat16).masked_fill(hidden, -3.3e38)[:, None]


def of_diagonals(queries: int, position: torch.Tensor, of_sequences: torch.Tensor) -> torch.Tensor:
    """What ends and starts do not say."""
    query, key = places(queries)
    return (((key <= 2 * query + position) & (key != query)) | (key > query + 80))[None, None]


CASES: dict[str, tuple[Masks, int]] = {
    "causal, of truth values": (of_transformers(True), 1),
    "causal, of numbers": (of_transformers(False), 1),
    "causal, of truth values, many queries": (of_transformers(True), 70),
    "window, of truth values": (of_transformers(True, 20), 1),
    "window, several queries": (of_transformers(True, 20), 5),
    "window, of truth values, many queries": (of_transformers(True, 20), 70),
    "window, of numbers, many queries": (of_transformers(False, 20), 70),
    "padded": (of_transformers(True, padded=True), 1),
    "padded, many queries": (of_transformers(True, padded=True), 40),
    "padded, of numbers": (of_transformers(False, padded=True), 40),
    "holes": (of_transformers(True, holes=True), 1),
    "holes, many queries": (of_transformers(True, holes=True), 40),
    "lengths": (of_lengths, 1),
    "lengths, several queries": (of_lengths, 3),
    "lengths, many queries": (of_lengths, 40),
    "lengths and window": (of_lengths_and_window, 2),
    "lengths and window, many queries": (of_lengths_and_window, 40),
}
STORED: dict[str, tuple[Masks, int]] = {
    "holes, of numbers": (of_transformers(False, holes=True), 40),
    "diagonals": (of_diagonals, 40),
}
"""Those that are computed."""
ANYTHING = ("*",)


class Attention(torch.nn.Module):
    def __init__(self, masks: Masks) -> None:
        super().__init__()
        self.masks = masks

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, position: torch.Tensor, of_sequences: torch.Tensor
    ) -> torch.Tensor:
        mask = self.masks(q.shape[2], position, of_sequences)
        mask = mask.to(q.dtype) if mask.is_floating_point() else mask
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if tensor.is_floating_point() else tensor.numpy()


CALLS = ((7, (3, 40)), (0, (95, 0)), (60, (96, 7)), (150, (-2, 300)), (-3, (20, -70)))
"""Positions, and those of sequences; also such that no key is there, or all are."""


def check(masks: Masks, queries: int, *others: str, calls: Sequence[tuple[int, tuple[int, int]]] = CALLS) -> None:
    """Results of calls; `others`: what is dispatched before the attention, where that matters."""
    generator = torch.Generator().manual_seed(queries)
    sizes = (HEADS, queries), (KEY_HEADS, KEYS), (KEY_HEADS, KEYS)
    tensors = [torch.randn(BATCH, *each, SIZE, generator=generator).bfloat16() for each in sizes]
    module = Attention(masks)
    program = mxcomp.torch.compile(module, (*tensors, torch.tensor(7), torch.tensor([3, 40])), strict=True)
    assert [each.ukernel is not None for each in program.report.attentions] == [True]
    parts = [each.part for each in program.report.launches]
    if others != ANYTHING:
        assert parts == [*others, "attention"]
    with program.session() as session:
        for position, of_sequences in calls:
            given = *tensors, torch.tensor(position), torch.tensor(of_sequences)
            (found,) = session.main(*map(as_numpy, given))
            expected = module(*(each.double() if each.is_floating_point() else each for each in given)).numpy()
            assert np.isfinite(expected).all()
            assert np.abs(found.astype(np.float64) - expected).max() <= 2**-7 * tensors[2].abs().max().item()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_masks_by_position(name: str) -> None:
    """None is computed; where keys have holes, whether each has one becomes a number."""
    check(*CASES[name], *([""] if "holes" in name else []))


@pytest.mark.slow
@pytest.mark.parametrize("name", STORED)
def test_masks_that_are_computed(name: str) -> None:
    masks, queries = STORED[name]
    check(masks, queries, *ANYTHING)


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> Masks:
    """Comparisons, joined, turned round, and chosen by each other."""
    kind = draw(st.sampled_from(["compare", "and", "or", "not", "where"] if depth else ["compare"]))
    if kind == "compare":
        return _comparison(*(draw(st.integers(low, high)) for low, high in ((0, 4), (0, 3), (-20, 20), (0, 1))))
    each = [draw(conditions(depth - 1)) for _ in range(3)]
    join = {
        "and": lambda a, b, _: a & b, "or": lambda a, b, _: a | b, "not": lambda a, *_: ~a, "where": torch.where,
    }[kind]  # fmt: skip
    return lambda *given: join(*(mask(*given) for mask in each))


def _comparison(order: int, of: int, number: int, queries_count: int) -> Masks:
    def mask(queries: int, position: torch.Tensor, of_sequences: torch.Tensor) -> torch.Tensor:
        query, key = places(queries)
        middle = (0, position, of_sequences[:, None, None], key * 0 + 30)[of] + number
        compare = (torch.le, torch.lt, torch.ge, torch.gt, torch.ne)[order]
        return compare(key.expand(BATCH, queries, KEYS), query * queries_count + middle)

    return mask


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(conditions(), st.sampled_from([1, 3, 40]), st.sampled_from([None, -3.3e38, -math.inf]))
def test_conditions(condition: Masks, queries: int, hidden: float | None) -> None:
    """Whether a mask is taken for one by position or not: its results are right."""

    def masks(*given: Any) -> torch.Tensor:
        mask = condition(*given)[:, None]
        return mask if hidden is None else torch.where(mask, 0.0, hidden)

    check(masks, queries, *ANYTHING, calls=CALLS[1:])


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, pytest.param(torch.bfloat16, marks=pytest.mark.slow)], ids=str)
def test_an_infinity_of_the_only_key(dtype: torch.dtype) -> None:
    """Keys that no query sees are not there: an infinity of one that is seen meets no weight of 0."""

    class Lengths(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            seen = torch.arange(k.shape[-2]) < lengths[:, None]
            keys, values = (x.to(q.dtype) for x in (k, v))
            return torch.nn.functional.scaled_dot_product_attention(q, keys, values, seen[:, None, None])

    q, k, v = (torch.randn(2, 2, count, 64).bfloat16() for count in (1, 32, 32))
    v[:, :, 0, :2] = torch.tensor([math.inf, -math.inf])
    given = q, k.to(dtype), v.to(dtype), torch.tensor([1, 5])
    program = mxcomp.torch.compile(Lengths(), given, strict=True)
    (found,) = program.run(*map(array, given))
    assert program.report.attentions[0].ukernel
    np.testing.assert_allclose(found.astype(np.float32), Lengths()(*given).float().numpy(), atol=0.02, rtol=0.01)
