"""Packs rows that a norm makes and the program quantises: norm, quantiser and packing are one dispatch."""

from __future__ import annotations

import math

from iree.compiler import ir

from mxcomp.formats import element_format
from mxcomp.layout import LHS, LHS_SCALE, DataTiledLayout
from mxcomp.layout.problem import Problem
from mxcomp.layout.units import MFMA, STEPS, UNIT_ROWS
from mxcomp.matching.activations import Activations
from mxcomp.mlir import build
from mxcomp.packing import block_quantiser, standing
from mxcomp.ukernels.normalised_rows import NormalisedRows


def fits(found: Activations | str, layout: DataTiledLayout, problem: Problem) -> bool:
    """Returns whether a norm is in front of so many rows of 16 bits, whose blocks a lane has whole."""
    if isinstance(found, str) or found.norm is None or layout.units is None or layout.lhs_row_lines:
        return False
    kind, is_unit = problem.types[LHS], layout.intrinsics_k == STEPS
    return (
        is_unit and bool(problem.m) and found.bits == 16 and element_format(kind).bits == 4 and MFMA.holds_blocks(kind)
    )


def pack(found: Activations, layout: DataTiledLayout, problem: Problem) -> tuple[ir.Value, ir.Value]:
    """Returns elements and scales of LHS, packed as by `stored_operand.pack`."""
    norm, rows = found.norm, problem.m or 0
    assert norm is not None and layout.units is not None
    tiles = -(-rows // (layout.units[LHS] * UNIT_ROWS))
    blocks = (problem.k or 0) // problem.block
    vectors = tuple(build.element(value).width for value in norm.operands[1:])
    text = block_quantiser.text(found, blocks, in_order=True)
    kernel = NormalisedRows(rows, tiles * layout.units[LHS], blocks, len(norm.sums), vectors, text)
    taken = [
        build.bitcast(value, build.tensor_type((math.prod(kind.shape),), "i32"))
        for value, kind in zip(norm.operands, kernel.inputs, strict=True)
    ]
    results = kernel.result_types(kernel.units, UNIT_ROWS)
    elements, scales = standing.dispatch(kernel, taken, results, kernel.threads, along=kernel.along)
    return tuple(
        _shaped(value, layout.multiplied_shape(index, layout.packed_shape(index, (kernel.units, kernel.tiles))), kind)
        for value, index, kind in ((elements, LHS, "i8"), (scales, LHS + LHS_SCALE, "f8E8M0FNU"))
    )


def _shaped(value: ir.Value, shape: tuple[int | None, ...], element: str) -> ir.Value:
    """Returns bytes with the dimensions of a packed operand."""
    flat = build.flat(value)
    if element != "i8":
        flat = build.bitcast(flat, build.tensor_type(build.static_sizes(flat), element))
    sizes = list(shape)
    if element == "i8":
        sizes[-1] = build.static_sizes(value)[-1]
    return build.expand(flat, sizes)
