"""The operations that a plugin replaces: a DAG that a matcher finds by its last operation, and its inputs.

That is a whole function where it may be, with all that its matmuls share and fuse with, in as many dispatches as in
process; else each scaled matmul by itself. A matcher finds no more than what one operation's result is computed from,
so a function is taken whole that computes one tensor, of static sizes, by plain calculations without constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from iree.compiler import ir

from mxcomp.codes.six_bit import is_six_bit
from mxcomp.matching.contraction import Candidate
from mxcomp.matching.storage import BITCASTS, whole
from mxcomp.mlir import build, graph
from mxcomp.packing.stored_operand import is_constant
from mxcomp.passes.defer_constants import are_constant

_CALCULATIONS = ("linalg.", "tensor.", "arith.", "math.", "iree_tensor_ext.bitcast")
_FUNCTIONS = ("util.func", "func.func")


class Dag:
    """The operations that a root's result is computed from, users last, up to values that are `is_outside`.

    `inputs` are these values, empty tensors, and dynamic sizes.
    """

    def __init__(self, root: ir.Operation, is_outside: Callable[[ir.Value], bool]) -> None:
        self.root = root
        self.inputs: list[ir.Value] = []
        self.ops: list[ir.Operation] = []
        self._visit(root, is_outside, set())

    def _visit(self, op: ir.Operation, is_outside: Callable[[ir.Value], bool], seen: set[ir.Operation]) -> None:
        if op in seen:
            return
        seen.add(op)
        for value in _operands(op):
            source = graph.producer(value)
            if source is None or source.name == "tensor.empty" or is_outside(value) or _is_size(value):
                if value not in self.inputs:
                    self.inputs.append(value)
            else:
                self._visit(source, is_outside, seen)
        self.ops.append(op)

    def clone(self, arguments: Sequence[ir.Value], point: ir.InsertionPoint) -> ir.Value:
        """Copies the operations, with `arguments` for `inputs`; returns the root's result."""
        values = dict(zip(self.inputs, arguments, strict=True))
        result = arguments[0]
        for op in self.ops:
            copy = op.clone(ip=point)
            for user in (copy.operation, *graph.walk(copy.operation)):
                for index, operand in enumerate(list(user.operands)):
                    if operand in values:
                        user.operands[index] = values[operand]
            values |= zip(op.results, copy.results, strict=True)
            result = copy.results[0]
        return result


def of_matmul(candidate: Candidate) -> Dag:
    """Returns the operations of one matmul before recognition. Its inputs are its operands as recognition found
    them."""
    taken = {_stored(leaf.value) for side in (candidate.lhs, candidate.rhs) for leaf in side.leaves}
    accumulator = candidate.root.operands[-1]
    if (source := graph.producer(accumulator)) is not None and source.name != "linalg.fill":
        taken.add(accumulator)
    return Dag(candidate.root, taken.__contains__)


def _stored(value: ir.Value) -> ir.Value:
    """Returns the tensor that contains an operand. IREE 3.13 overestimates the size of a tensor of 6-bit elements that
    is moved."""
    value = whole(value)
    return graph.look_through(value, BITCASTS) if is_six_bit(value.type) else value


def whole_functions(candidates: Iterable[Candidate]) -> list[Dag]:
    """Returns the functions around all matmuls; none if one of them cannot be replaced as a whole.

    Matchers are tried operation by operation: those of single matmuls would take what those of functions wait for.
    """
    roots: dict[ir.Operation, list[ir.Operation]] = {}
    for candidate in candidates:
        roots.setdefault(_function(candidate.root), []).append(candidate.root)
    found = [_of_function(function, matmuls) for function, matmuls in roots.items()]
    return [] if None in found else [each for each in found if each is not None]


def _of_function(function: ir.Operation, matmuls: list[ir.Operation]) -> Dag | None:
    """Returns the operations of a function, if it computes a single tensor and nothing else."""
    if function.name not in _FUNCTIONS or len(function.regions[0].blocks) != 1:
        return None
    *_, end = function.regions[0].blocks[0].operations
    returned = list(end.operation.operands)
    root = graph.producer(returned[0]) if len(returned) == 1 else None
    if root is None or not _calculates(root):
        return None
    dag = Dag(root, lambda value: not _calculates(graph.producer(value)))
    inside = set(dag.ops)
    if not inside.issuperset(matmuls) or not all(map(_calculates, dag.ops)):
        return None
    users = (use.owner.operation for op in dag.ops if op != root for use in op.results[0].uses)
    if any(not any(around in inside for around in graph.around(user)) for user in users):
        return None  # computed anyway
    if any(_is_fixed(op) or _uses_constants(op) for op in dag.ops):
        return None
    return dag


def _calculates(op: ir.Operation | None) -> bool:
    """Returns whether an operation computes one static tensor, or a number, from its operands alone."""
    if op is None or not op.name.startswith(_CALCULATIONS) or len(op.results) != 1:
        return False
    kind = op.results[0].type
    if isinstance(kind, ir.RankedTensorType):
        return op.name != "arith.constant" and None not in build.static_sizes(op.results[0])
    return op.name == "arith.constant"


def _is_fixed(op: ir.Operation) -> bool:
    """Returns whether a tensor is computed from constants alone: IREE evaluates it, unseen by a function's passes.

    As they are stored, constants may be operands.
    """
    if op.name in ("arith.constant", "linalg.fill") or is_constant(op.results[0]):
        return False
    return are_constant([op])


def _uses_constants(op: ir.Operation) -> bool:
    """Returns whether an operation's body uses a constant, or another value from outside of it.

    IREE 3.13 moves constants out of bodies before it matches anything, and a body that uses a value from outside equals
    no other: so quantisers are not taken, nor most activation functions (the smallest
    case is in test/plugin/test_plugin.py).
    """
    inner = any(below.name == "arith.constant" for below in graph.walk(op))
    return inner or any(user != op for user, _ in graph.inputs(op))


def _is_size(value: ir.Value) -> bool:
    return isinstance(value.type, ir.IndexType)


def _function(op: ir.Operation) -> ir.Operation:
    return next((each for each in graph.around(op) if each.name in _FUNCTIONS), graph.root(op))


def _operands(op: ir.Operation) -> list[ir.Value]:
    return [user.operands[i] for user, i in graph.inputs(op)]
