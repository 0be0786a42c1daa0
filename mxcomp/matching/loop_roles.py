"""The roles of the loops of a contraction: a batch of both operands, M, N, or parts of K.

A result [b, h, m, n] of operands [b, h, m, k] and [b, h, n, k] has two loops that index both operands, the batch. With
an RHS [n, k], they index the LHS only, and count as rows: M is b·h·m. A result whose dimensions come in another order,
[m, b, n] for example, is one of these that is transposed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from mxcomp.matching.elements import Index
from mxcomp.matching.operands import NotOursError

BATCH, M, N, K = "b", "m", "n", "k"
"""Names of axes. The part outside of a dynamic loop of the same role has an axis of its own, with a prime appended."""

LoopSizes = dict[int, int | None]
"""The sizes of loops, None where dynamic."""


@dataclass(frozen=True)
class Roles:
    """Loops by role, outermost first; those of the result are in the order of its dimensions.

    `lhs` is the operand, 0 or 1, that M indexes.
    """

    batch: tuple[int, ...]
    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    lhs: int

    def axes(self, sizes: LoopSizes) -> dict[int, Index]:
        """Returns a subscript for each loop."""
        axes: dict[int, Index] = {}
        for name, loops in ((BATCH, self.batch), (M, self.m), (N, self.n), (K, self.k)):
            stride = 1
            for d in reversed(loops):
                size = sizes.get(d)
                axes[d] = Index(name, stride, size)
                name, stride = (f"{name}'", 1) if size is None else (name, stride * size)
        return axes

    def groups(self) -> list[list[int]]:
        """Returns the result dimensions of (batch,) M and N."""
        counts = [len(self.batch)] * bool(self.batch) + [len(self.m), len(self.n)]
        starts = [sum(counts[:i]) for i in range(len(counts) + 1)]
        return [list(range(*pair)) for pair in pairwise(starts)]


def extent(loops: Sequence[int], sizes: LoopSizes) -> int | None:
    """Returns the product of the sizes of these loops."""
    known = [sizes.get(d) for d in loops]
    return None if None in known else math.prod(size for size in known if size is not None)


def _columns(rest: Sequence[tuple[int, int]], last: int) -> tuple[int, int]:
    """Returns the first result dimension of N, and the operand that M indexes.

    `rest` are the dimensions behind the batch that are not of size 1, and the operand that each indexes.
    """
    if not rest:
        return last, 0
    lhs = rest[0][1]
    others = [i for i, owner in rest if owner != lhs]
    if others:
        return others[0], lhs
    return (rest[0][0], 1 - lhs) if rest[-1][0] == last else (last, lhs)


def ordered(parallel: Sequence[int], sizes: LoopSizes, used: Sequence[set[int]]) -> list[int]:
    """Returns the same loops with the batch in front of M and N; loops of size 1 keep their predecessors."""
    ranks: list[int] = []
    first: set[int] | None = None
    for d in parallel:
        owner = {i for i in (0, 1) if d in used[i]}
        if sizes.get(d) == 1 or not owner:
            ranks.append(ranks[-1] if ranks else 0)
        elif len(owner) > 1:
            ranks.append(0)
        else:
            first = first or owner
            ranks.append(1 if owner == first else 2)
    return [d for _, d in sorted(zip(ranks, parallel, strict=True), key=lambda pair: pair[0])]


def roles(parallel: Sequence[int], reductions: Sequence[int], sizes: LoopSizes, used: Sequence[set[int]]) -> Roles:
    """Returns the roles of loops. `parallel` is in the order of the result, `used` are the loops that index each
    operand.

    Loops of size 1 say nothing; they are taken for parts of their neighbours. Raises NotOursError.
    """
    if len(parallel) == 1 and len(owner := {i for i in (0, 1) if parallel[0] in used[i]}) == 1:
        return Roles((), tuple(parallel), (), tuple(reductions), min(owner))  # a vector: N is 1
    if len(parallel) < 2:
        raise NotOursError(f"{len(parallel)} parallel dimensions: expected M and N")
    owners = [{i for i in (0, 1) if d in used[i]} if sizes.get(d) != 1 else None for d in parallel]
    if set() in owners:
        raise NotOursError("the result is repeated along a dimension that indexes no operand")
    first = max((i + 1 for i, owner in enumerate(owners) if owner == {0, 1}), default=0)
    if any(owner not in (None, {0, 1}) for owner in owners[:first]):
        raise NotOursError("a batch of both operands: expected it in front of M and N")
    rest = [(i, min(owner)) for i, owner in enumerate(owners) if i >= first and owner]
    one_owner = len({owner for _, owner in rest}) == 1 and len(rest) == len(parallel) - first
    if 0 < first < len(parallel) and (one_owner or not rest):
        lhs = rest[0][1] if rest else 0
        return Roles(tuple(parallel[:first]), tuple(parallel[first:]), (), tuple(reductions), lhs)  # N is 1
    columns, lhs = _columns(rest, len(parallel) - 1)
    if columns == first or any((owner == lhs) != (i < columns) for i, owner in rest):
        raise NotOursError("each operand must hold K and one of M and N")
    return Roles(
        tuple(parallel[:first]), tuple(parallel[first:columns]), tuple(parallel[columns:]), tuple(reductions), lhs
    )
