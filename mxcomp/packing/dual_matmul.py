"""Builds a matmul of one LHS and two RHS, whose ukernel has columns of both in a tile.

    %g, %u = linalg.generic {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_dual_…", tensor>}
        ins(%lhs, %lhs_scale, %gate, %gate_scale, %up, %up_scale) outs(%zero, %zero)

As in `quantising_matmul` a generic is a placeholder, from which IREE takes loops over tiles.
"""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir

from mxcomp.layout import LHS_SCALE, DataTiledLayout
from mxcomp.layout.inner_tiles import LANES
from mxcomp.mlir import build
from mxcomp.packing import result_tiles, standing
from mxcomp.packing.result_tiles import UNROLL, Launch

_LOOPS = 12
"""Tiles along M and N, inner tiles along both, groups, rows and values of a fragment; K tiles, and bytes of each
operand."""


def flat(packed: Sequence[ir.Value], layout: DataTiledLayout) -> list[ir.Value]:
    """Returns packed operands as bytes: [tiles, inner tiles, K tiles, bytes of an inner tile]."""
    found = []
    for index, value in enumerate(packed):
        tiles, inner_tiles, k_tiles, *_, size = build.static_sizes(value)
        each = layout.intrinsics_k * LANES * (1 if index >= LHS_SCALE else size or 1)
        found.append(build.bitcast(value, build.tensor_type((tiles, inner_tiles, k_tiles, each), "i8")))
    return found


def accumulate(
    lhs: Sequence[ir.Value], each_rhs: Sequence[Sequence[ir.Value]], tiled: ir.RankedTensorType, launch: Launch,
    counts: list[ir.Value],
) -> list[ir.Value]:  # fmt: skip
    """Returns accumulator tiles, of type `tiled`, of `flat` operands: elements and scales of LHS, and of each RHS.

    `counts` are those of tiles where dynamic.
    """
    count = len(each_rhs)
    *result, k, left, left_scale, right, right_scale = range(_LOOPS)
    m, n, inner_m, inner_n, *_ = result
    rows = [(m, inner_m, k, each) for each in (left, left_scale)]
    columns = [(n, inner_n, k, each) for each in (right, right_scale)]
    inputs = [*lhs, *(value for rhs in each_rhs for value in rhs)]
    accs = [build.zero_filled(tiled, counts) for _ in each_rhs]
    dims, tile = [*rows, *columns * count, *[result] * count], [1, 1] + [0] * (_LOOPS - 2)
    op, tile = standing.generic([tiled] * count, inputs, accs, dims, len(result), tile)
    result_tiles.annotate(op, launch, tile, False, UNROLL)
    return list(op.results)
