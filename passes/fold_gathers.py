"""mxcomp-fold-gathers: makes workgroups read the packed matrices of their expert directly.

Before (in the loop over workgroups, which IREE's own pass makes):

    %all = tensor.extract_slice %packed[0, %n, 0, …] [128, 1, 12, …] [1, …]
    %id  = tensor.extract_slice %ids[%b] [1] [1]
    %w   = iree_linalg_ext.gather dimension_map = [0] ins(%all, %id) outs(%out)
    %r   = iree_codegen.inner_tiled ins(%lhs, %w, …)

After:

    %0 = tensor.extract %id[0]      %1 = maxsi %0, 0      %e = minsi %1, 127
    %w = tensor.extract_slice %all[%e, 0, 0, …] [1, 1, 12, …] [1, …]
    %r = iree_codegen.inner_tiled ins(%lhs, %w, …)

So a ukernel begins at the matrix of an expert, and nothing is copied. An id that is none of the experts' is clamped.

A block without an expert, whose id is negative, is not multiplied if nothing reads its product: of operands of a matmul
with `mxcomp.skips_negative` nothing along K is left there.

    %size = select (%id >= 0), 12, 0
    %part = tensor.extract_slice %lhs[0, 0, 0, …] [1, 1, %size, …] [1, …]
    %r = iree_codegen.inner_tiled ins(%part, %w, …)
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.errors import InternalError
from mxcomp.layout import RHS
from mxcomp.mlir import buffers, build, graph, linalg_ops
from mxcomp.mlir import scalars as s
from mxcomp.mlir.build import static_sizes
from mxcomp.packing.block_quantiser import QUANTISER
from mxcomp.packing.expert_tiles import GATHER
from mxcomp.packing.result_tiles import IN_PARTS, SKIPS
from mxcomp.passes import order_workgroups

INNER_TILED = "iree_codegen.inner_tiled"


def run(module: ir.Operation) -> None:
    """Folds the gathers of every data-tiled matmul below `module`, all of which are ours. Raises InternalError."""
    for function in [op for op in graph.walk(module) if op.name == "func.func"]:
        if _gathers(function) and any(map(_is_matmul, graph.walk(function))):
            for load in [op for op in graph.walk(function) if op.name == buffers.LOAD]:
                _load_whole(load)
            order_workgroups.distribute(function)
            for matmul in [op for op in graph.walk(function) if IN_PARTS in op.attributes]:
                _fold_parts(matmul)
            ids = [_fold(gather) for gather in _gathers(function)]
            for matmul in [op for op in graph.walk(function) if SKIPS in op.attributes]:
                _skip(matmul, ids[0])
            for matmul in [op for op in graph.walk(function) if QUANTISER in op.attributes]:
                _hide_slices(matmul)


def _is_matmul(op: ir.Operation) -> bool:
    return op.name == INNER_TILED or QUANTISER in op.attributes


def _gathers(function: ir.Operation) -> list[ir.Operation]:
    return [op for op in graph.walk(function) if op.name == GATHER]


def _load_whole(load: ir.Operation) -> None:
    """Gives a buffer the shape of the tensor that it is loaded as: IREE folds a bitcast only of an unchanged load.

    IREE has dropped dimensions of size 1 from a gather, and so from its buffer, which is expanded again then.
    """
    if (expanded := graph.producer(load.operands[0], "memref.expand_shape")) is None:
        return
    shape = list(ir.RankedTensorType(load.results[0].type).shape)
    with load.location, ir.InsertionPoint(load):
        if (whole := buffers.rebind(expanded.operands[0], shape)) is not None:
            load.operands[0] = whole


def _fold(gather: ir.Operation) -> ir.Value:
    """Replaces a gather by the matrix itself; returns the id that selects it."""
    packed, ids, *_ = gather.operands
    experts, *_ = static_sizes(packed)
    count, *sizes = static_sizes(gather.results[0])
    if experts is None or count != 1:
        raise InternalError(f"{gather.location}: a gather of {count} matrices in a workgroup")
    with gather.location, ir.InsertionPoint(gather):
        id_ = tensor.ExtractOp(ids, [build.constant_index(0)]).result
        expert = s.subscript(s.clamped(id_, experts - 1))
        whole = [build.dim(packed, i + 1) if size is None else size for i, size in enumerate(sizes)]
        matrix = build.sliced(packed, [expert, *[0] * len(sizes)], [1, *whole])
    gather.results[0].replace_all_uses_with(matrix)
    graph.erase_dead(gather)
    return id_


def _fold_parts(matmul: ir.Operation) -> None:
    """Gives a matmul its part along K of each operand: the batch index is the number of the part."""
    loops, along_k = _loops(matmul)
    for index, of_operand in enumerate(loops):
        gather = graph.producer(matmul.operands[index])
        ids = None if gather is None or gather.name != GATHER else graph.producer(gather.operands[1])
        if gather is None or ids is None or ids.name != "tensor.extract_slice" or len(ids.operands) != 2:
            raise InternalError(f"{matmul.location}: operand {index} has no part of its own in a workgroup")
        parts, dim = static_sizes(ids.operands[0])[0], of_operand.index(along_k)
        shape = list(ir.RankedTensorType(gather.results[0].type).shape)
        shape[dim] //= parts or 1
        with gather.location, ir.InsertionPoint(gather):
            start = build.times(ids.operands[1], shape[dim])
            offsets = [start if i == dim else 0 for i in range(len(shape))]
            matmul.operands[index] = build.sliced(gather.operands[0], offsets, shape)
        graph.erase_dead(gather)
    del matmul.attributes[IN_PARTS]


def _loops(matmul: ir.Operation) -> tuple[list[list[int]], int]:
    """Returns the loops of each operand's dimensions, and the one along K."""
    maps = [ir.AffineMapAttr(each).value for each in ir.ArrayAttr(matmul.attributes["indexing_maps"])]
    *loops, kept = map(linalg_ops.loops, maps)
    return loops, next(loop for loop in loops[RHS] if loop not in kept)


def _skip(matmul: ir.Operation, id_: ir.Value) -> None:
    """Makes the size along K 0 where an id is negative."""
    loops, along_k = _loops(matmul)
    with matmul.location, ir.InsertionPoint(matmul):
        has_expert = arith.CmpIOp(arith.CmpIPredicate.sge, id_, arith.ConstantOp(id_.type, 0).result).result
        whole = build.dim(matmul.operands[RHS], loops[RHS].index(along_k))
        size = arith.SelectOp(has_expert, whole, build.constant_index(0)).result
        for operand, dims in enumerate(loops):
            if along_k in dims:
                matmul.operands[operand] = _first(matmul.operands[operand], dims.index(along_k), size)
    del matmul.attributes[SKIPS]


def _hide_slices(matmul: ir.Operation) -> None:
    """Casts slices that a generic reads, as IREE would move them behind it (iree-codegen-gpu-pad-convs)."""
    with matmul.location, ir.InsertionPoint(matmul):
        for i, value in enumerate(list(matmul.operands)[:-1]):
            if (op := graph.producer(value)) is not None and op.name == "tensor.extract_slice":
                kind = ir.RankedTensorType(value.type)
                dynamic = build.tensor_type([None] * kind.rank, kind.element_type)
                matmul.operands[i] = tensor.CastOp(dynamic, value).result


def _first(value: ir.Value, dim: int, size: ir.Value) -> ir.Value:
    """Returns the first `size` elements along a dimension."""
    sizes = list[build.Number](ir.RankedTensorType(value.type).shape)
    sizes[dim] = size
    return build.sliced(value, [0] * len(sizes), sizes)
