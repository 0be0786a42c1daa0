"""Packs rows that a norm or attention makes and the program quantises: with quantiser and packing one dispatch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.formats import element_format
from mxcomp.layout import LHS, LHS_SCALE, DataTiledLayout
from mxcomp.layout.problem import Problem
from mxcomp.layout.units import MFMA, STEPS, UNIT_ROWS
from mxcomp.matching.activations import Activations
from mxcomp.mlir import attributes, build, graph
from mxcomp.mlir.attributes import PACKS
from mxcomp.packing import block_quantiser, standing
from mxcomp.ukernels.normalised_rows import CODE_BYTES, NormalisedRows


def fits(found: Activations | str, layout: DataTiledLayout, problem: Problem) -> bool:
    """Returns whether a norm or attention is in front of so many rows of 16 bits, whose blocks a lane has whole."""
    if isinstance(found, str) or layout.units is None or layout.lhs_row_lines:
        return False
    kind, is_unit = problem.types[LHS], layout.intrinsics_k == STEPS
    if found.batches:
        is_unit = is_unit and _is_whole(found.batches, layout, problem)
    elif found.norm is None:
        is_unit = is_unit and found.made is not None and problem.m == UNIT_ROWS and layout.units[LHS] == 1
    return (
        is_unit and bool(problem.m) and found.bits == 16 and element_format(kind).bits == 4 and MFMA.holds_blocks(kind)
    )


def _is_whole(batches: int, layout: DataTiledLayout, problem: Problem) -> bool:
    """Returns whether heads of rows fill K tiles; of several batches, rows of each fill units, all of them tiles."""
    rows = problem.m or 0
    is_filled = batches == 1 or (rows // batches % UNIT_ROWS == 0 and rows % layout.workgroup_tile[0] == 0)
    return is_filled and (problem.k or 0) % layout.workgroup_tile[2] == 0


def pack(found: Activations, layout: DataTiledLayout, problem: Problem) -> tuple[ir.Value, ir.Value]:
    """Returns elements and scales of LHS, packed as by `stored_operand.pack`."""
    norm, rows = found.norm, problem.m or 0
    if found.made is not None:
        return _by_maker(found, found.made, layout, problem)
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
    packed = standing.dispatch(kernel, taken, results, kernel.threads, along=kernel.along)
    return _as_packed(packed, layout, (kernel.units, kernel.tiles))


def _by_maker(
    found: Activations, maker: ir.Operation, layout: DataTiledLayout, problem: Problem
) -> tuple[ir.Value, ir.Value]:
    """Returns the same by the kernel that makes the rows.

    Its workgroups have K tiles of each row, in order, or units of rows of a head.
    """
    entries = attributes.to_python(maker.attributes[PACKS])
    module = ir.Module.parse(entries["text"])
    function, *_ = (view.operation for view in module.body.operations)
    kinds = [ir.RankedTensorType(each) for each in function.attributes["function_type"].value.results]
    rows, _, k_tile = layout.workgroup_tile
    blocks, units = (problem.k or 0) // problem.block, -(-(problem.m or 0) // rows) * rows // UNIT_ROWS
    multiple, along = None, {0: blocks // kinds[0].shape[1], 2: UNIT_ROWS}
    if found.batches:
        multiple, along = UNIT_ROWS if found.batches > 1 else rows, {0: entries["heads"], 1: units // found.batches}
    results = [build.tensor_type([along.get(i, size) for i, size in enumerate(kind.shape)], "i8") for kind in kinds]
    completed = _Completed(function, block_quantiser.text(found, blocks, True, multiple))
    operands = list(maker.operands)[: -len(maker.results)]
    with maker.location:
        packed = standing.dispatch(
            completed, operands, results, entries["threads"], along=tuple(along),
            llvm_func_attrs=entries["llvm_func_attrs"], tile=entries["tile"],
        )  # fmt: skip
    return _as_packed(packed, layout, (units, (problem.k or 0) // k_tile))


def _as_packed(
    packed: Sequence[ir.Value], layout: DataTiledLayout, outer: tuple[int, int]
) -> tuple[ir.Value, ir.Value]:
    """Returns elements and scales of so many tiles with the dimensions of packed operands."""
    elements, scales = (
        _shaped(value, layout.multiplied_shape(index, layout.packed_shape(index, outer)), kind)
        for value, index, kind in zip(packed, (LHS, LHS + LHS_SCALE), ("i8", "f8E8M0FNU"), strict=True)
    )
    return elements, scales


@dataclass(frozen=True)
class _Completed:
    """A kernel with the functions that it calls in their places."""

    function: ir.Operation
    functions: str

    @property
    def name(self) -> str:
        return graph.symbol_name(self.function)

    def text(self) -> str:
        return block_quantiser.completed_text(self.function, self.functions)


def _shaped(value: ir.Value, shape: tuple[int | None, ...], element: str) -> ir.Value:
    """Returns bytes with the dimensions of a packed operand."""
    flat = build.flat(value)
    if element != "i8":
        flat = build.bitcast(flat, build.tensor_type(build.static_sizes(flat), element))
    sizes = list(shape)
    if element == "i8":
        sizes[-1] = CODE_BYTES
    return build.expand(flat, sizes)
