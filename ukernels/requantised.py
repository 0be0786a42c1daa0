"""The member of the family whose results can be quantised in their tile, computed transposed, weights in place of LHS.

Its K is its M: a tile of accumulators, transposed, is a tile of the next operand.
"""

from __future__ import annotations

from mxcomp.ukernels import data_tiled, family

TILE = data_tiled.TILES[0]

RESULT, JOINED, BESIDE = "_requantised", "_joined", "_transposed"
SUFFIXES = (RESULT, JOINED, BESIDE)
"""Behind an instance's name in a table of times: quantising its result; quantising what SwiGLU makes of its and another
one's; and storing its result as it is, as the other one does, and the product behind.
"""


def is_instance(instance: family.Instance) -> bool:
    """Whether it is one of them."""
    return instance.tile == TILE


def instance_of(types: tuple[str, ...]) -> data_tiled.Instance:
    """For elements of a problem as it is multiplied."""
    lhs, rhs, *_ = types
    return data_tiled.Instance(TILE, (lhs, rhs))
