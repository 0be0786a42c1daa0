"""Finds the operands of scaled matmuls in the kernels of a compiled module: binding, offset and shape.

Read from executables at IREE's phase `executable-sources`, where a kernel's arguments have their final order:

    %0 = hal.interface.constant.load ordinal(2)   %1 = arith.index_castui %0   %2 = util.assume.int %1<…>
    %3 = hal.interface.binding.subspan binding(0) offset(%2) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<…xi8>>
    %4 = iree_tensor_ext.dispatch.tensor.load %3   %5 = iree_tensor_ext.bitcast %4 : … -> tensor<…xf4E2M1FN>
    iree_codegen.inner_tiled ins(%5, …)

Numbers that are known only at launch are push constants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from iree.compiler import ir

from mxcomp.layout import ACC, OPERAND_NAMES
from mxcomp.matching.canonical import inner_tiled_loops, is_canonical
from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import indexing_maps
from mxcomp.profiling.reports import KernelOperands, Number, StoredOperand

_RANK = 3
"""The rank of elements without a batch."""


def find(module: ir.Operation, names: set[str]) -> dict[str, KernelOperands]:
    """Returns the operands of each kernel of `module` with one of these names that has one scaled matmul."""
    functions = [function for function in _kernels(module) if graph.symbol_name(function) in names]
    count = Counter(map(graph.symbol_name, functions))
    found = {}
    for function in functions:
        name, matmuls = (
            graph.symbol_name(function),
            [values for op in graph.walk(function) if (values := _operands(op))],
        )
        if len(matmuls) == 1 and count[name] == 1:  # of equal names IREE changes one when it links executables
            stored = [_stored(operand, value) for operand, value in zip(OPERAND_NAMES, matmuls[0], strict=False)]
            found[name] = KernelOperands([each for each in stored if each is not None], _rows(function))
    return found


def _kernels(module: ir.Operation) -> Iterator[ir.Operation]:
    """Yields exported functions of executables."""
    for executable in _children(module, "hal.executable"):
        for variant in _children(executable, "hal.executable.variant"):
            exports = {graph.symbol_name(op) for op in _children(variant, "hal.executable.export")}
            for inner in _children(variant, "builtin.module"):
                functions = (view.operation for view in graph.module_block(inner).operations)
                yield from (function for function in functions if graph.symbol_name(function) in exports)


def _children(op: ir.Operation, name: str) -> Iterator[ir.Operation]:
    return (view.operation for view in graph.module_block(op).operations if view.operation.name == name)


def _operands(op: ir.Operation) -> list[ir.Value]:
    """Returns LHS, RHS, LHS scales and RHS scales of a scaled matmul on tensors; nothing for other operations."""
    values = list(op.operands)
    if not values or not isinstance(values[0].type, ir.RankedTensorType):
        return []
    if op.name == "iree_codegen.inner_tiled":
        with op.context:
            maps = [ir.AffineMapAttr(attr).value for attr in ir.ArrayAttr(op.attributes["indexing_maps"])]
            plain = (inner_tiled_loops(batch=False, inner_tiles=inner_tiles)[0] for inner_tiles in (False, True))
            return values[:ACC] if maps in plain else []
    if op.name == "linalg.generic" and is_canonical(op):
        return values[:ACC] if ir.RankedTensorType(values[0].type).rank == _RANK else []
    if op.name == "linalg.generic" and len(values) == 3:
        return _taken_apart(op)
    return []


def _taken_apart(op: ir.Operation) -> list[ir.Value]:
    """Returns the operands of a product of dequantised values (mxcomp-fall-back), of whose K IREE makes one loop."""
    with op.context:
        m, n, k = (ir.AffineExpr.get_dim(i) for i in range(3))
        if indexing_maps(op) != [ir.AffineMap.get(3, 0, dims) for dims in ([m, k], [n, k], [m, n])]:
            return []
    factors = [_dequantised(graph.producer(value)) for value in list(op.operands)[:2]]
    return [value for pair in zip(*factors, strict=True) for value in pair] if all(factors) else []


def _dequantised(op: ir.Operation | None) -> list[ir.Value]:
    """Returns the elements and scales that an operation dequantises, which looks scales up; nothing of others."""
    if op is None or op.name != "linalg.generic":
        return []
    body = {inner.name: inner for inner in graph.walk(op)}
    if "arith.scaling_extf" not in body or "tensor.extract" not in body:
        return []
    return [op.operands[0], body["tensor.extract"].operands[0]]


def _stored(operand: str, value: ir.Value) -> StoredOperand | None:
    """Follows an operand back to its binding, through changes of type only."""
    kind, shape = str(ir.RankedTensorType(value.type).element_type), build.static_sizes(value)
    op = graph.producer(value)
    while op is not None and op.name in ("iree_tensor_ext.bitcast", "iree_tensor_ext.dispatch.tensor.load"):
        op = graph.producer(op.operands[0])
    if op is None or op.name != "hal.interface.binding.subspan":
        return None
    offset, *sizes = _subspan(op)
    dynamic = iter(sizes)
    numbers = [next(dynamic, None) if size is None else size for size in shape]
    if offset is None or None in numbers:
        return None
    binding = ir.IntegerAttr(op.attributes["binding"]).value
    return StoredOperand(operand, binding, offset, [number for number in numbers if number is not None], kind)


def _rows(function: ir.Operation) -> Number | None:
    """Returns the first size of a dynamic [M, N] result."""
    for op in graph.walk(function):
        if op.name == "hal.interface.binding.subspan" and "<writeonly:" in str(op.results[0].type):
            _, *sizes = _subspan(op)
            return sizes[0] if len(sizes) == 1 else None
    return None


def _subspan(op: ir.Operation) -> list[Number | None]:
    """Returns the offset and dynamic sizes of a subspan."""
    has_offset, _ = ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])
    numbers = [_number(value) for value in op.operands]
    return numbers if has_offset else [0, *numbers]


_SAME_NUMBER = (
    "arith.index_cast",
    "arith.index_castui",
    "arith.extui",
    "util.assume.int",
    "iree_tensor_ext.dispatch.workload.ordinal",
)


def _number(value: ir.Value) -> Number | None:
    """Returns a constant, or the push constants of a value; None for anything else."""
    op = graph.producer(value)
    if op is None:
        return None
    if op.name in _SAME_NUMBER:
        return _number(op.operands[ir.OpResult(value).result_number if op.name == "util.assume.int" else 0])
    if op.name == "hal.interface.constant.load":
        return [ir.IntegerAttr(op.attributes["ordinal"]).value]
    if op.name == "arith.constant":
        return int(ir.IntegerAttr(op.attributes["value"]).value)
    if op.name == "arith.ori":  # of a low word and a high one
        low, high = map(_number, sorted(op.operands, key=_is_shifted))
        return [*low, *high] if isinstance(low, list) and isinstance(high, list) else None
    if op.name == "arith.shli" and _number(op.operands[1]) == 32:
        return _number(op.operands[0])
    return None


def _is_shifted(value: ir.Value) -> bool:
    op = graph.producer(value)
    return op is not None and op.name == "arith.shli"
