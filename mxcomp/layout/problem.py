"""What is multiplied: the sizes and element types of one scaled matmul, as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mxcomp.formats import E8M0, BlockFormat, block_format

T = TypeVar("T")

SCALES_AND_RESULT = (E8M0.mlir_type, E8M0.mlir_type, "f32")
"""Types of a problem behind those of LHS and RHS."""


def flipped(operands: Sequence[T]) -> tuple[T, ...]:
    """What there is of each operand, with RHS in the place of LHS, for a matmul that is computed transposed."""
    lhs, rhs, lhs_scale, rhs_scale, *acc = operands
    return (rhs, lhs, rhs_scale, lhs_scale, *acc)


@dataclass(frozen=True)
class Problem:
    """The product of LHS [(batch,) M, K] and RHS [(batch,) N, K].

    Sizes are in elements, None where dynamic; a batch is static. `types` are the MLIR types of LHS, RHS, LHS scales,
    RHS scales and result. `stored` are how many matrices of LHS and RHS there are, if ids choose those of the batch
    among them.
    """

    m: int | None
    n: int | None
    k: int | None
    types: tuple[str, ...]
    batch: tuple[int, ...] = ()
    stored: tuple[int | None, int | None] = (None, None)

    @property
    def sizes(self) -> dict[str, int | None]:
        """M, N and K under the keys m, n and k."""
        return {"m": self.m, "n": self.n, "k": self.k}

    @property
    def dynamic(self) -> tuple[str, ...]:
        """Which of m, n and k only the running program knows."""
        return tuple(axis for axis, size in self.sizes.items() if size is None)

    @property
    def formats(self) -> tuple[BlockFormat | None, BlockFormat | None]:
        """The block formats of LHS and RHS; None for an operand that is multiplied as it is."""
        lhs, rhs, lhs_scale, rhs_scale, *_ = self.types
        return block_format(lhs, lhs_scale), block_format(rhs, rhs_scale)

    @property
    def block(self) -> int:
        """Elements along K that share a scale. Raises StopIteration for a problem without any."""
        return next(each.size for each in self.formats if each is not None)

    @property
    def matrices(self) -> int:
        """How many matrices the batch has; 1 without one."""
        return math.prod(self.batch)

    @property
    def flipped(self) -> Problem:
        """The problem of the transposed result: RHS is multiplied in the place of LHS."""
        return replace(self, m=self.n, n=self.m, types=flipped(self.types), stored=self.stored[::-1])

    def held(self, operand: int) -> int:
        """How many matrices a buffer of LHS (0) or RHS (1) has."""
        return self.stored[operand] or self.matrices
