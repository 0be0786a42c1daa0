"""mxcomp-defer-constants: keeps matmuls of constants for run time.

IREE evaluates what depends on nothing but constants when it compiles, on the CPU, which has none of our kernels. What
it may evaluate is the packing of stored operands.

Before:

    %x = arith.constant dense<…> : tensor<64x256xf32>
    …                                                        (quantised to %a and %as)
    %r = linalg.generic {…, mxcomp.scaled_matmul = {}} ins(%a, %b, %as, %bs) outs(%zero) …

After:

    %c = arith.constant dense<…> : tensor<64x256xf32>
    %x = util.optimization_barrier %c : tensor<64x256xf32>
    …

Constants that elements are selected from get barriers as well: if they are equal, IREE folds the selection.

Where constants are overwritten, as by a sort, the result gets the barrier. The initial value of a reduction gets none:
the kernel has to set it, and IREE does not look through a barrier for overwritten values (mxcomp-keep-for-steps).
"""

from __future__ import annotations

from collections.abc import Iterable

from iree.compiler import ir

from mxcomp.layout import ACC, LHS, LHS_SCALE, RHS, RHS_SCALE
from mxcomp.matching.decision import is_recognised
from mxcomp.mlir import build, graph, variables
from mxcomp.mlir.linalg_ops import inputs
from mxcomp.packing.stored_operand import is_constant, is_constant_global

_MOVES = ("tensor.", "iree_tensor_ext.bitcast", "flow.tensor.")
_CALCULATIONS = ("arith.", "math.", "linalg.")
_EXTENSIONS = "iree_linalg_ext."


def run(module: ir.Operation) -> None:
    """Puts barriers behind constants below `module` that both sides of a matmul are computed from."""
    varying = set[ir.Operation]()
    for op in [op for op in graph.walk(module, bodies=False) if op.name == "linalg.generic" and _chooses(op)]:
        _hold_choices(op, varying)
    for op in [op for op in graph.walk(module, bodies=False) if is_recognised(op)]:
        operands = [graph.producer(value) for value in list(op.operands)[:ACC]]
        sides = ((operands[LHS], operands[LHS_SCALE]), (operands[RHS], operands[RHS_SCALE]))
        if all(_constants(side, varying) is not None for side in sides):
            defer(sides[0], varying)
        for value in list(op.operands)[:ACC]:
            if not is_constant(value):  # perhaps computed from constants: packing would be evaluated too early
                defer([graph.producer(value)], varying)


def _chooses(op: ir.Operation) -> bool:
    return any(inner.name == "arith.select" for inner in graph.walk(op))


def _hold_choices(op: ir.Operation, varying: set[ir.Operation]) -> None:
    """Puts barriers behind constants that elements are selected from: if they are equal, IREE folds the selection."""
    producers = [graph.producer(value) for value in inputs(op) if isinstance(value.type, ir.RankedTensorType)]
    chosen = [producer for producer in producers if producer is not None and _constants([producer], varying)]
    if len(chosen) > 1:
        defer(chosen, varying)


def _constants(
    ops: Iterable[ir.Operation | None], varying: set[ir.Operation]
) -> dict[ir.Operation, list[tuple[ir.Operation, int]]] | None:
    """Returns the constant tensors that operations depend on, and the uses on the way. None if they depend on anything
    else.

    `varying` are some that do, to which a single one is added: what is behind it need not be followed any further back.
    """
    first = list(ops)
    found = None if any(op in varying for op in first) else _followed(first, varying)
    if found is None and len(first) == 1 and first[0] is not None:
        varying.add(first[0])
    return found


def _followed(
    pending: list[ir.Operation | None], varying: set[ir.Operation]
) -> dict[ir.Operation, list[tuple[ir.Operation, int]]] | None:
    found: dict[ir.Operation, list[tuple[ir.Operation, int]]] = {}
    uses: dict[ir.Operation, list[tuple[ir.Operation, int]]] = {}
    pending, seen = list(pending), set[ir.Operation]()
    while pending:
        op = pending.pop()
        if op is None or op in varying:
            return None
        if op in seen or op.name == "tensor.empty":
            continue
        seen.add(op)
        if _is_constant(op) or _is_written_over(op, varying):
            found[op] = uses.setdefault(op, [])
            continue
        if not op.name.startswith((*_MOVES, *_CALCULATIONS)):
            return None
        for user, i in graph.inputs(op):
            value = user.operands[i]
            source = graph.producer(value)
            pending.append(source)
            if source is not None and isinstance(value.type, ir.RankedTensorType):
                uses.setdefault(source, []).append((user, i))
    return found


def _is_written_over(op: ir.Operation, varying: set[ir.Operation]) -> bool:
    """Returns whether constants are sorted, or overwritten otherwise: then the result gets the barrier, not the
    constant."""
    if not op.name.startswith(_EXTENSIONS):
        return False
    is_constant = _followed([graph.producer(user.operands[i]) for user, i in graph.inputs(op)], varying) is not None
    if not is_constant:
        varying.add(op)
    return is_constant


def _is_constant(op: ir.Operation) -> bool:
    if op.name == variables.LOAD:
        return is_constant_global(op)
    return op.name == "arith.constant"


def are_constant(ops: Iterable[ir.Operation | None]) -> bool:
    """Returns whether operations, None for none, depend on nothing but constants."""
    return _constants(ops, set()) is not None


def defer(ops: Iterable[ir.Operation | None], varying: set[ir.Operation]) -> None:
    """Puts barriers behind the constants that operations depend on, if they depend on nothing else."""
    for constant, uses in (_constants(ops, varying) or {}).items():
        deferred: dict[ir.Value, ir.Value] = {}
        for user, index in uses:
            value = user.operands[index]
            if value not in deferred:
                with constant.location, ir.InsertionPoint.after(constant):
                    deferred[value] = build.barrier(value)
            user.operands[index] = deferred[value]
