"""Packs rows that a norm or attention makes and the program quantises: with quantiser and packing one dispatch."""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.formats import element_format
from mxcomp.layout import LHS, DataTiledLayout
from mxcomp.layout.inner_tiles import INNER_ROWS, MFMA, STEPS
from mxcomp.layout.problem import Problem
from mxcomp.matching import offers
from mxcomp.matching.activations import Activations
from mxcomp.matching.decision import VERSIONS
from mxcomp.mlir import attributes, build
from mxcomp.mlir.assumptions import Range, assume, assumed
from mxcomp.mlir.attributes import DECODE
from mxcomp.packing import block_quantiser, standing
from mxcomp.packing.block_quantiser import Padding
from mxcomp.packing.quantised_operand import as_packed
from mxcomp.packing.runtime_sizes import RuntimeSizes
from mxcomp.ukernels.attention_decode import Decode
from mxcomp.ukernels.attention_prefill import Prefill
from mxcomp.ukernels.builder import MOST_BYTES
from mxcomp.ukernels.normalised_rows import NormalisedRows


def fits(found: Activations, layout: DataTiledLayout, sizes: RuntimeSizes) -> bool:
    """Returns whether a norm or attention is in front of so many rows of 16 bits, whose blocks a lane has whole."""
    problem, kind = sizes.problem, sizes.problem.types[LHS]
    if found.bits != 16 or element_format(kind).bits != 4 or not MFMA.holds_blocks(kind):
        return False
    if layout.inner_tiles is None or layout.lhs_row_lines or layout.intrinsics_k != STEPS:
        return False
    if found.batches:
        is_whole = _is_whole(found.batches, layout, problem)
    else:
        is_one = problem.m == INNER_ROWS and layout.inner_tiles[LHS] == 1
        is_whole = found.norm is not None or (bool(found.made) and is_one)
    is_unstored = bool(found.batches) and problem.m is None  # attention bounds its queries, M what is packed
    return is_whole and (is_unstored or _most_rows(sizes) * (problem.k or 0) * found.bits // 8 <= MOST_BYTES)


def _most_rows(sizes: RuntimeSizes) -> int:
    known = assumed(sizes.values["m"]) if sizes.problem.m is None else None
    return sizes.problem.m or (MOST_BYTES if known is None else known.high)


def _is_whole(batches: int, layout: DataTiledLayout, problem: Problem) -> bool:
    """Returns whether heads of rows fill K tiles, and of several batches rows of each inner tiles, all tiles."""
    rows = problem.m or 0
    is_filled = batches == 1 or (rows // batches % INNER_ROWS == 0 and rows % layout.workgroup_tile[0] == 0)
    return is_filled and (problem.k or 0) % layout.workgroup_tile[2] == 0


def pack(
    found: Activations, layout: DataTiledLayout, sizes: RuntimeSizes, ranges: Padding = ()
) -> tuple[ir.Value, ir.Value]:
    """Returns elements and scales of LHS, packed as by `stored_operand.pack`.

    `ranges` are the inner tiles of rows of workgroups' tiles, and for how many rows.
    """
    norm, problem = found.norm, sizes.problem
    if found.made:
        return _by_maker(found, layout, sizes, ranges)
    assert norm is not None and layout.inner_tiles is not None
    inner_tiles, blocks = layout.inner_tiles[LHS], (problem.k or 0) // problem.block
    tiles = sizes.of(LHS).taken(inner_tiles * INNER_ROWS)
    count = None if problem.m is None else inner_tiles * -(-problem.m // (inner_tiles * INNER_ROWS))
    vectors = tuple(build.element(value).width for value in norm.operands[1:])
    text = block_quantiser.text(found, blocks, in_order=True)
    kernel = NormalisedRows(problem.m, count, blocks, len(norm.sums), vectors, text)
    rows, *others = zip(norm.operands, kernel.inputs, strict=True)
    taken = [_words(*rows, sizes), *(build.bitcast(*each) for each in others)]
    of_tiles = [build.times(each, inner_tiles) for each in tiles]
    elements, scales = standing.dispatch(kernel, taken, sizes=of_tiles)
    outer = kernel.inner_tiles, kernel.tiles
    return as_packed(elements, scales, layout, LHS, problem.types[LHS], outer, of_tiles, tiles)


def _words(rows: ir.Value, kind: ir.RankedTensorType, sizes: RuntimeSizes) -> ir.Value:
    """Returns rows as words, a number that is known to fit into a buffer."""
    if kind.has_static_shape:
        return build.bitcast(rows, kind)
    words = (sizes.problem.k or 0) * build.element(rows).width // 32
    count = assume(build.times(sizes.values["m"], words), Range(words, _most_rows(sizes) * words))
    return build.bitcast(rows, kind, [sizes.values["m"]], [count])


def _by_maker(
    found: Activations, layout: DataTiledLayout, sizes: RuntimeSizes, ranges: Padding
) -> tuple[ir.Value, ir.Value]:
    """Returns the same by the kernels that make the rows, of which one runs."""
    tiles = sizes.of(LHS).taken(layout.workgroup_tile[0])
    rows, _, k_tile = layout.workgroup_tile
    problem, of_tiles = sizes.problem, [build.times(each, rows // INNER_ROWS) for each in tiles]
    inner_tiles = None if problem.m is None else -(-problem.m // rows) * rows // INNER_ROWS
    padding = [(each * INNER_ROWS, most) for each, most in ranges] or [
        (INNER_ROWS if found.batches > 1 else rows, None)
    ]
    packed, *others = [_made_by(each, found, problem, inner_tiles, of_tiles, padding) for each in found.made]
    for other in others:
        assert found.choice is not None
        is_first = found.choice.operands[0]
        packed = [arith.SelectOp(is_first, *each).result for each in zip(packed, other, strict=True)]
        for each in packed:
            each.owner.attributes[VERSIONS] = ir.UnitAttr.get()
    (elements, scales), outer = packed, (inner_tiles, (problem.k or 0) // k_tile)
    return as_packed(elements, scales, layout, LHS, problem.types[LHS], outer, of_tiles, tiles)


def _made_by(
    maker: ir.Operation, found: Activations, problem: Problem, inner_tiles: int | None, sizes: Sequence[ir.Value],
    padding: Padding,
) -> list[ir.Value]:  # fmt: skip
    """Returns inner tiles of packed rows of the kernel that makes them.

    Its workgroups have K tiles of each row, in order, or inner tiles of rows of a head.
    """
    kernel, blocks = offers.offered(maker), (problem.k or 0) // problem.block
    results = kernel.results
    if isinstance(kernel, Prefill):
        results = kernel.of_inner_tiles(inner_tiles and inner_tiles // found.batches)
    functions = block_quantiser.text(found, blocks, True, padding if found.batches else ())
    operands = list(maker.operands)[: -len(maker.results)]
    with maker.location:
        packed = standing.dispatch(kernel, operands, (), sizes, results, _completed(kernel, functions))
    if DECODE in maker.attributes:
        decode = attributes.to_python(maker.attributes[DECODE])
        decode = {"kernel": decode["kernel"] | {"packed": True}, "functions": functions}
        standing.placeholder(packed[0]).attributes[DECODE] = attributes.from_python(decode)
    return packed


def _completed(kernel: Decode | Prefill, functions: str) -> str:
    """Returns the module of a kernel with the functions that it calls in their places."""
    module = ir.Module.parse(kernel.text())
    function, *_ = module.body.operations
    return block_quantiser.completed_text(function.operation, functions)
