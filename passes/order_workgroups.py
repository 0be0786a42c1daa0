"""mxcomp-order-workgroups: makes workgroups take tiles of a result in the chosen order.

Before (a function of an executable, as IREE has configured it):

    %r = iree_codegen.inner_tiled … {lowering_config = #iree_gpu.lowering_config<{workgroup = [1, 1, 0, 0], …}>,
                                     mxcomp.workgroup_order = {band = 4, xcds = 8}}
    … consumers of %r

After:

    scf.forall (%y, %x) in (40, 112) … {
      %i = %y * 112 + %x
      %row, %column = …                       (`mxcomp.layout.order.tile_of`)
      … tensor.extract_slice %lhs[%row, 0, …]
      %r = iree_codegen.inner_tiled … {lowering_config = #iree_gpu.lowering_config<{…}>}
      … consumers of %r, in its tile
    } {mapping = [#iree_codegen.workgroup_mapping<y>, #iree_codegen.workgroup_mapping<x>]}

IREE's own pass makes the loop over workgroups, with all that it fuses into it, exactly as it would later; done now, its
indices can be replaced. Later IREE finds the loop made. A stock iree-compile knows nothing of the attribute, and keeps
the plain order.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import iree_gpu
from iree.compiler.passmanager import PassManager

from mxcomp.errors import CompileError
from mxcomp.layout.order import Order, tile_of
from mxcomp.mlir import build, graph
from mxcomp.mlir.attributes import to_python
from mxcomp.mlir.unsigned import Number, Unsigned, minimum
from mxcomp.packing.result_tiles import WORKGROUP_ORDER

PIPELINE = "func.func(iree-codegen-tile-and-distribute-to-workgroups-using-forall-op)"
_CONFIG = "lowering_config"


def run(module: ir.Operation) -> None:
    """Orders the workgroups of every function below `module` that has a matmul with an order. Raises CompileError."""
    functions = {_function(op): _order(op) for op in graph.walk(module) if WORKGROUP_ORDER in op.attributes}
    for function, order in functions.items():
        distribute(function)
        for op in graph.walk(function):
            if WORKGROUP_ORDER in op.attributes:
                del op.attributes[WORKGROUP_ORDER]
            elif "#iree_codegen.workgroup_mapping" in str(op.attributes.get("mapping", "")):
                _permute(op, order)


def _function(op: ir.Operation) -> ir.Operation:
    function = next((each for each in graph.around(op) if each.name == "func.func"), None)
    if function is None:
        raise CompileError(f"{op.location}: expected a func.func around a matmul with an order of workgroups")
    return function


def _order(op: ir.Operation) -> Order:
    return Order(**to_python(op.attributes[WORKGROUP_ORDER]))


def distribute(function: ir.Operation) -> None:
    """Builds the loop over workgroups of a dispatch, if it is missing. Raises CompileError."""
    try:
        PassManager.parse(PIPELINE).run(function)
    except ir.MLIRError as error:
        raise CompileError(f"{function.location}: workgroups were not distributed", (str(error),)) from None
    for op in graph.walk(function):
        if _CONFIG in op.attributes:
            _mark_distributed(op)


def _mark_distributed(op: ir.Operation) -> None:
    """Marks an operation in the loop as distributed."""
    if not isinstance(op.attributes[_CONFIG], iree_gpu.LoweringConfigAttr):
        return
    config = ir.DictAttr(iree_gpu.LoweringConfigAttr(op.attributes[_CONFIG]).attributes)
    kept = {each.name: each.attr for each in config if each.name != "workgroup"}
    op.attributes[_CONFIG] = iree_gpu.LoweringConfigAttr.get(ir.DictAttr.get(kept))


def _permute(loop: ir.Operation, order: Order) -> None:
    """Replaces the indices of a loop over (matrices,) rows and columns by those in this order.

    A loop over one of them alone, which IREE makes where the others count one, stays as it is.
    """
    sizes = list(ir.DenseI64ArrayAttr(loop.attributes["staticUpperBound"]))
    if len(sizes) not in (2, 3):
        return
    body = loop.regions[0].blocks[0]
    indices = list(body.arguments)[: len(sizes)]
    segments = list(ir.DenseI32ArrayAttr(loop.attributes["operandSegmentSizes"]))
    upper = build.mixed(sizes, list(loop.operands)[segments[0] : sum(segments[:2])])
    with ir.InsertionPoint.at_block_begin(body), loop.location:
        counts: list[Number] = [size if isinstance(size, int) else Unsigned.of(size) for size in upper]
        given = [Unsigned.of(index) for index in indices]
        number: Number = 0
        for one, count in zip(given, counts, strict=True):
            number = number * count + one
        matrices, rows, columns = [1, *counts][-3:]
        taken = tile_of(number, (matrices, rows, columns), order.xcds, order.band, minimum)[-len(sizes) :]
        for index, one, new in zip(indices, given, taken, strict=True):
            index.replace_all_uses_except(new.index, one.value.owner.operation)
