"""Operations of chains (`chain.py`): which there may be, what they read and cost, and how reductions are divided."""

from __future__ import annotations

import math
from collections.abc import Collection

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.mlir import attributes, build, graph
from mxcomp.mlir.inline import ASSERT
from mxcomp.mlir.linalg_ops import indexing_maps, inputs, iterators, loop_sizes, steps_reduced, yielded
from mxcomp.ukernels.top_k import TopK

MOST_STEPS = 2**17
"""The most steps of an operation, all loops together."""
MOST_ELEMENTS = 2**14
"""The most elements of a tensor."""
_FEW = 16
"""The most steps of a reduction that is repeated wherever it is read."""
REGION, BARRIER, SCATTER = "flow.dispatch.region", "util.optimization_barrier", "iree_linalg_ext.scatter"
VIEWS = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice", "tensor.concat")
_COSTLY = ("math.", "arith.div", "tensor.extract")
_COSTLY_SLOTS, FEW_SLOTS = 12, 200
"""The instructions of a function; and how many take no longer than a barrier: they are repeated where they are read."""
_READS = ("linalg.index", "tensor.extract")


def is_possible(op: ir.Operation) -> bool:
    """Returns whether operations of a chain may be this one, by its own."""
    if op.name == REGION:
        return all(each.name == "tensor.empty" or is_possible(each) for each in inner(op))
    if not all(_is_small(value) or _is_condition(value) for value in op.results):
        return False
    if op.name == "arith.constant":
        return graph.constant(op.results[0]) is not None
    if op.name == SCATTER:
        body = [view.operation for view in op.regions[0].blocks[0].operations]
        is_plain = len(body) == 1 and body[0].operands[0] == op.regions[0].blocks[0].arguments[0]
        is_unique = ir.BoolAttr(op.attributes["unique_indices"]).value
        ranks = {len(build.static_sizes(value)) for value in (op.operands[0], op.results[0])}
        return is_plain and is_unique and ranks == {1}
    if op.name in (*VIEWS, BARRIER):
        return is_of_tensors(op)
    is_plain = "compilation_info" not in op.attributes and attributes.UKERNEL not in op.attributes
    return op.name in ("linalg.generic", "linalg.fill") and is_plain and is_followed(op)


def is_of_tensors(view: ir.Operation) -> bool:
    """Returns whether a view has tensors alone as operands, and no sizes."""
    return len(view.operands) == len(view.results) or view.name == "tensor.concat"


def is_followed(op: ir.Operation, most: float = MOST_STEPS) -> bool:
    """Returns whether a linalg operation of so few steps has scalar arithmetic alone, on elements of known places."""
    maps = indexing_maps(op) or []
    exprs = [expr for each in maps for expr in each.results]
    steps = loop_sizes(op, maps).values()
    count = 0 if TopK.of(op) else math.prod(size or 1 for size in steps)
    if None in steps or count > most or len(set(maps[len(inputs(op)) :])) > 1:
        return False
    body = [view.operation for view in op.regions[0].blocks[0].operations][:-1]
    captured = [user.operands[i] for user, i in graph.inputs(op)[len(op.operands) :]]
    is_known = all(build.is_tensor(each) or _is_constant(each) for each in op.operands)
    is_read = all(build.is_tensor(each) != _is_constant(each) for each in captured)
    return (
        is_known and is_read and all(isinstance(each, ir.AffineDimExpr | ir.AffineConstantExpr) for each in exprs)
        and all(each.name.startswith(("arith.", "math.")) or each.name in (*_READS, ASSERT) for each in body)
    )  # fmt: skip


def _is_constant(value: ir.Value) -> bool:
    return graph.producer(value, "arith.constant") is not None


def has_numbers(value: ir.Value) -> bool:
    """Returns whether a tensor is of a known size, in no encoding, and of elements that are loaded one by one."""
    kind = build.element(value)
    is_known = size(value) > 0 and isinstance(kind, ir.FloatType | ir.IntegerType) and kind.width in (16, 32, 64)
    return is_known and ir.RankedTensorType(value.type).encoding is None


def _is_small(value: ir.Value) -> bool:
    return has_numbers(value) and size(value) <= MOST_ELEMENTS


def _is_condition(value: ir.Value) -> bool:
    """Returns whether a tensor is of i1, computed in few steps wherever one is read: it is not kept."""
    op = graph.producer(value)
    is_bits = size(value) > 0 and build.element(value) == ir.IntegerType.get_signless(1)
    return is_bits and op is not None and (not op.name.startswith("linalg.") or 0 < (steps_reduced(op) or 0) <= _FEW)


def is_operand(value: ir.Value) -> bool:
    """Returns whether a chain may read a tensor from outside."""
    return _is_small(value) and size(value) > 1


def size(value: ir.Value) -> int:
    """Returns the number of elements of a tensor; 0 if it is not known."""
    return math.prod(each or 0 for each in build.static_sizes(value)) if build.is_tensor(value) else 0


def inner(region: ir.Operation) -> list[ir.Operation]:
    return [view.operation for view in region.regions[0].blocks[0].operations][:-1]


def read(op: ir.Operation) -> list[ir.Value]:
    """Returns the tensors that an operation reads, those of its body included, and those that are empty left out."""
    values = dict.fromkeys(user.operands[i] for user, i in graph.inputs(op))
    return [value for value in values if build.is_tensor(value) and graph.producer(value, "tensor.empty") is None]


def is_costly(op: ir.Operation) -> bool:
    if not op.name.startswith("linalg."):
        return op.name == SCATTER
    return "reduction" in iterators(op) or any(each.name.startswith(_COSTLY) for each in graph.walk(op))


def slots(op: ir.Operation) -> int:
    """Returns about how many instructions compute all elements of a result."""
    if not op.name.startswith("linalg."):
        return FEW_SLOTS + 1 if op.name == SCATTER else 0
    each = sum(_COSTLY_SLOTS if inner.name.startswith("math.") else 1 for inner in graph.walk(op) if inner != op)
    return size(op.results[0]) * (steps_reduced(op) or 1) * each


_LEAST, _MOST = float("-inf"), float("inf")
_IDENTITIES: dict[str, float] = {
    "arith.addf": 0.0, "arith.addi": 0, "arith.maximumf": _LEAST, "arith.maxnumf": _LEAST, "arith.minimumf": _MOST,
    "arith.minnumf": _MOST,
}  # fmt: skip
"""The values that parts of a reduction begin with, by the operation that combines them."""


def combining(op: ir.Operation) -> ir.Operation | None:
    """Returns the operation that combines parts of the only result of a reduction that is read, if one does."""
    if not op.name.startswith("linalg.") or read_results(op) != list(op.results)[:1]:
        return None
    block, made = op.regions[0].blocks[0], graph.producer(yielded(op))
    acc = list(block.arguments)[len(inputs(op)) :]
    if made is None or made.name not in _IDENTITIES or list(made.operands).count(acc[0]) != 1:
        return None
    pending = [value for value in made.operands if value != acc[0]]
    while pending:
        value = pending.pop()
        if value in acc:
            return None
        if (source := graph.producer(value)) is not None and source.block == block:
            pending += source.operands
    return made


def identity(op: ir.Operation, kind: ir.Type) -> ir.Value:
    """Returns what a part of a reduction begins with; for results that nothing reads any number."""
    made = combining(op)
    assert made is not None
    number = _IDENTITIES[made.name]
    is_float = isinstance(kind, ir.FloatType)
    return arith.ConstantOp(kind, number if is_float else 0).result


def combined(op: ir.Operation, one: ir.Value, other: ir.Value) -> ir.Value:
    """Returns two parts of a reduction as one."""
    made = combining(op)
    assert made is not None
    copy = made.clone()
    copy.operands[0], copy.operands[1] = one, other
    return copy.results[0]


def source(value: ir.Value) -> ir.Value:
    """Returns what a result of a dispatch region is in it."""
    op = graph.producer(value, REGION)
    if op is None:
        return value
    *_, end = op.regions[0].blocks[0].operations
    return end.operands[list(op.results).index(value)]


def read_results(op: ir.Operation) -> list[ir.Value]:
    return [value for value in op.results if any(True for _ in value.uses)]


def is_read(value: ir.Value, ops: Collection[ir.Operation]) -> bool:
    users = (use.owner.operation for use in value.uses)
    return any(user in ops or user.name == "flow.return" or user.parent.name.startswith("linalg.") for user in users)
