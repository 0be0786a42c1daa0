"""The sizes and element types of one scaled matmul, as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mxcomp.formats import E8M0, BlockFormat, block_format

T = TypeVar("T")

SCALES_AND_RESULT = (E8M0.mlir_type, E8M0.mlir_type, "f32")
"""The types of a problem after those of LHS and RHS."""


def flipped(operands: Sequence[T]) -> tuple[T, ...]:
    """Returns the entries of operands with LHS and RHS swapped, for a matmul that is computed transposed."""
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
        """The sizes among m, n and k that are known only at run time."""
        return tuple(axis for axis, size in self.sizes.items() if size is None)

    @property
    def formats(self) -> tuple[BlockFormat | None, BlockFormat | None]:
        """The block formats of LHS and RHS; None for an operand that is not quantised."""
        lhs, rhs, lhs_scale, rhs_scale, *_ = self.types
        return block_format(lhs, lhs_scale), block_format(rhs, rhs_scale)

    @property
    def block(self) -> int:
        """The number of elements along K that share a scale. Raises StopIteration for a problem without scales."""
        return next(each.size for each in self.formats if each is not None)

    @property
    def matrices(self) -> int:
        """The number of matrices of the batch; 1 without one."""
        return math.prod(self.batch)

    @property
    def flipped(self) -> Problem:
        """Returns the problem of the transposed result, with LHS and RHS swapped."""
        return replace(self, m=self.n, n=self.m, types=flipped(self.types), stored=self.stored[::-1])

    def stored_matrices(self, operand: int) -> int:
        """Returns the number of matrices in a buffer of LHS (0) or RHS (1)."""
        return self.stored[operand] or self.matrices
