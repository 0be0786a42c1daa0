"""Subscripts of what is quantised in packed order, over row, block and position in the block."""

from __future__ import annotations

import pytest
from iree.compiler import ir

from mxcomp.matching.elements import Index
from mxcomp.packing.packed_loops import LoopNest, OperandSize


def subscript(stride: int, extent: int | None) -> ir.AffineExpr:
    """Returns a part of the place in a row of 12 blocks."""
    zero = ir.AffineExpr.get_constant(0)
    nest = LoopNest(OperandSize(64, 12, 32, None, []), (16, 4), 1, (), 0, 1, zero, (32,))
    return nest.position(Index("k", stride, extent))


@pytest.mark.parametrize("stride, extent", [(1, 128), (1, 80), (1, 16), (8, 4), (16, 6), (32, 4), (64, 3), (128, None)])
def test_parts_of_a_row(stride: int, extent: int | None) -> None:
    """Checks what heads of a row, and elements of a head, are read at, also where they are parts of a block."""
    with ir.Context():
        position = subscript(stride, extent)
        for block in range(12):
            for within in range(32):
                k = 32 * block + within
                numbers = [ir.AffineExpr.get_constant(each) for each in (0, block, within)]
                found = position.compose(ir.AffineMap.get(0, 0, numbers))
                expected = k // stride if extent is None else k // stride % extent
                assert ir.AffineConstantExpr(found).value == expected


def test_elements_of_a_block_are_neighbours() -> None:
    """Checks that a lane sees it, and so loads several at once, where a row is of heads that are apart."""
    with ir.Context():
        assert str(subscript(1, 128)) == "(d1 mod 4) * 32 + d2"
