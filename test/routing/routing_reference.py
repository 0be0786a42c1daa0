"""Routing in NumPy: what `mxcomp.routing` computes on a device, token for token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mxcomp.routing.rules import SIGMOID, Extent, Rule

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Tables:
    """`slots`, `experts` and `valid_blocks` of `mxcomp.routing.Routing`, slots in one dimension."""

    slots: Ints
    experts: Ints
    valid_blocks: int


def choose(logits: NDArray[np.float32], rule: Rule, bias: NDArray[np.float32] | None = None) -> tuple[Ints, Floats]:
    """Returns experts [T, top_k], best first, and their weights. Of equal scores the lowest expert wins, NaN comes
    last.

    Without a bias logits are compared, exactly; with one float64 scores plus the bias.
    """
    x = logits.astype(np.float64)
    with np.errstate(all="ignore"):
        scores = _sigmoid(x) if rule.score == SIGMOID else _softmax(x)
        ranked = x if bias is None else scores + bias
        if rule.groups > 1:
            ranked = _grouped(ranked if bias is not None else scores, ranked, rule)
        chosen = _order(ranked)[:, : rule.top_k]
        weights = np.take_along_axis(scores, chosen, 1)
        if rule.renormalise:
            weights = weights / weights.sum(axis=1, keepdims=True)
    return chosen.astype(np.int32), weights * rule.scale


def sort(chosen: Ints, extent: Extent) -> Tables:
    """Returns slots sorted by expert, each expert's padded to whole blocks; those of a single token in their order.
    Slots of experts out of range are dropped."""
    ids = chosen.reshape(-1)
    rows, experts = [], []
    for expert in range(extent.experts) if extent.tokens > 1 else ids[ids < extent.experts]:
        mine = np.flatnonzero(ids == expert)
        count = -(-len(mine) // extent.block_m)
        rows.append(np.pad(mine, (0, count * extent.block_m - len(mine)), constant_values=extent.slots))
        experts += [expert] * count
    found = np.concatenate(rows)
    rest = extent.blocks - len(experts)
    slots = np.pad(found, (0, rest * extent.block_m), constant_values=extent.slots).astype(np.int32)
    return Tables(slots, np.array(experts + [-1] * rest, np.int32), len(experts))


def _order(values: Floats) -> NDArray[np.int64]:
    """Returns the indices of each row from the largest value to the smallest, NaN last, stable."""
    return np.argsort(-values, axis=1, kind="stable")


def _sigmoid(x: Floats) -> Floats:
    result: Floats = 1 / (1 + np.exp(-x))
    return result


def _softmax(x: Floats) -> Floats:
    """Returns softmax without NaN in the sum."""
    parts = np.exp(x - np.where(np.isnan(x), -np.inf, x).max(axis=1, keepdims=True))
    result: Floats = parts / np.nansum(parts, axis=1, keepdims=True)
    return result


def _grouped(scores: Floats, ranked: Floats, rule: Rule) -> Floats:
    """Returns `ranked` with NaN for experts whose group is not among the best."""
    tokens, experts = ranked.shape
    grouped = scores.reshape(tokens, rule.groups, -1)
    best = np.sort(np.where(np.isnan(grouped), -np.inf, grouped), axis=2)[:, :, -2:].sum(axis=2)
    kept = np.argsort(_order(best), axis=1) < rule.kept_groups
    result: Floats = np.where(np.repeat(kept, experts // rule.groups, axis=1), ranked, np.nan)
    return result
