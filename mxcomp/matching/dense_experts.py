"""Finds sums over all experts whose routing weights are zero except for a token's top-k, as exporters write mixtures.

    %ids = … iree_linalg_ext.sort of logits and 0, 1, 2, …: the first k, those of a token all different
    %r = iree_linalg_ext.scatter … of weights to [t, %ids[t, j]] of zeros [T, E]        (or a sum over j of
         select(%ids[t, j] == e, weight, 0))
    %y = linalg.generic … reduction over e of experts(e, t) · %r[t, e]

An expert that is not among a token's adds nothing, so only those that are need to be computed.
"""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.matching.sizes import in_columns
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.mlir.build import static_sizes
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise, is_zero, iterators, reads_init, yielded

SCATTER = "iree_linalg_ext.scatter"
_CASTS = ("arith.extf", "arith.truncf")
_INTEGER_CASTS = ("arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.index_castui")
_MATRIX = 2


@dataclass(frozen=True)
class Dense:
    """A sum over experts.

    Attributes:
        sum: The operation that adds up.
        weighted: That which multiplies by routing weights, if that is another one.
        experts: What all experts make of all tokens: [E, T, …].
        weights: Routing weights, a matrix; `by_token`: [T, E], else [E, T].
        ids: The experts of each token, integers [T, k].
        token, rest: Loops of `sum` that are T, and those of the other dimensions of `experts`.
    """

    sum: ir.Operation
    weighted: ir.Operation | None
    experts: ir.Value
    weights: ir.Value
    by_token: bool
    ids: ir.Value
    token: int
    rest: tuple[int, ...]


def find(op: ir.Operation) -> Dense | None:
    """Returns the sum over experts of an operation, if it is provably that of a token's top-k."""
    maps = indexing_maps(op)
    if maps is None or len(op.results) != 1 or op.name == "linalg.fill" or iterators(op).count("reduction") != 1:
        return None
    added = _added(op)
    if added is None:
        return None
    summed, weighted = op, None
    loops = {loop: loop for loop in range(maps[-1].n_dims)}
    if isinstance(added, ir.BlockArgument):  # another operation multiplies
        if added.owner != op.regions[0].blocks[0]:
            return None
        weighted = graph.producer(op.operands[added.arg_number])
        if weighted is None or not is_elementwise(weighted):
            return None
        if (user := graph.only_user(weighted)) is None or user != op:
            return None
        outer, inner = _dims(maps[added.arg_number]), _dims((indexing_maps(weighted) or [])[-1])
        if outer is None or inner is None:
            return None
        loops, op = dict(zip(inner, outer, strict=True)), weighted
        added = _uncast(yielded(weighted))
    return _factors(summed, weighted, op, added, loops)


def _factors(
    summed: ir.Operation, weighted: ir.Operation | None, op: ir.Operation, product: ir.Value, loops: dict[int, int]
) -> Dense | None:
    """Returns the factors of `op`, whose loops are those of the sum by `loops`."""
    if (inner := graph.producer(product, "arith.mulf")) is None or len(op.operands) != _MATRIX + 1:
        return None
    factors = [_uncast(operand) for operand in inner.operands]
    if not all(isinstance(each, ir.BlockArgument) and each.owner == op.regions[0].blocks[0] for each in factors):
        return None
    positions = [ir.BlockArgument(each).arg_number for each in factors]
    if sorted(positions) != [0, 1]:
        return None
    maps, (expert,) = indexing_maps(op) or [], [i for i, kind in enumerate(iterators(summed)) if kind == "reduction"]
    for experts, weights in ((0, 1), (1, 0)):
        of_experts, of_weights = _dims(maps[experts]), _dims(maps[weights])
        if of_experts is None or of_weights is None or len(of_weights) != _MATRIX or len(of_experts) <= _MATRIX:
            continue
        first, token, *rest = (loops[loop] for loop in of_experts)
        order = [loops[loop] for loop in of_weights]
        by_token = order == [token, expert]
        if first != expert or expert in rest or not (by_token or order == [expert, token]):
            continue
        ids = _chosen(op.operands[weights], by_token)
        if ids is not None and _are_different(ids):
            return Dense(
                summed, weighted, op.operands[experts], op.operands[weights], by_token, ids, token, tuple(rest)
            )
    return None


def _added(op: ir.Operation) -> ir.Value | None:
    """Returns the term that an operation adds to its result, without casts."""
    inner, acc = graph.producer(yielded(op)), list(op.regions[0].blocks[0].arguments)[-1]
    if inner is None or inner.name != "arith.addf" or acc not in list(inner.operands):
        return None
    (value, *_) = [operand for operand in inner.operands if operand != acc] or [None]
    if value is None:
        return None
    value = _uncast(value)
    return ir.BlockArgument(value) if isinstance(value, ir.BlockArgument) else value


def _uncast(value: ir.Value) -> ir.Value:
    return graph.look_through(value, _CASTS)


def _dims(found: ir.AffineMap) -> list[int] | None:
    """Returns the loops that are the results of a map, if they are distinct; None for other maps."""
    dims = linalg_ops.loops(found)
    return dims if len({*dims}) == len(found.results) else None


def _chosen(weights: ir.Value, by_token: bool) -> ir.Value | None:
    """Returns the ids [T, k] of a matrix of routing weights that is zero elsewhere."""
    op = graph.producer(weights)
    if op is None:
        return None
    if op.name in graph.RESHAPES:
        return _chosen_behind_reshape(op, by_token)
    if is_elementwise(op) and len(op.operands) == _MATRIX and isinstance(_uncast(yielded(op)), ir.BlockArgument):
        maps = indexing_maps(op) or []
        source, result = _dims(maps[0]), _dims(maps[1])
        if source is None or result is None or sorted(source) != sorted(result) or reads_init(op):
            return None
        return _chosen(op.operands[0], by_token == (source == result))
    if op.name == SCATTER:
        return _scattered(op) if by_token else None
    return _counted(op, by_token)


def _chosen_behind_reshape(op: ir.Operation, by_token: bool) -> ir.Value | None:
    """Returns the ids of a reshape to a matrix and back, by dimensions of size 1."""
    source = graph.look_through(op.operands[0], graph.RESHAPES)
    before, after = ([size for size in static_sizes(each) if size != 1] for each in (source, op.results[0]))
    if before != after or len(static_sizes(source)) != _MATRIX or 1 in static_sizes(source):
        return None
    return _chosen(source, by_token)


def _scattered(op: ir.Operation) -> ir.Value | None:
    """Returns the ids of a scatter of weights into zeros."""
    if len(op.operands) != _MATRIX + 1:
        return None
    _, indices, original = op.operands
    (given, *_), returned = op.regions[0].blocks[0].arguments, list(op.regions[0].blocks[0].operations)[-1].operands[0]
    order = list(ir.DenseI64ArrayAttr(op.attributes["dimension_map"]))
    if not is_zero(original) or returned != given or order != [0, 1] or len(static_sizes(op.results[0])) != _MATRIX:
        return None
    columns = [graph.look_through(each, graph.RESHAPES) for each in in_columns(indices)]
    made = {graph.producer(each) for each in columns}
    op = made.pop() if len(made) == 1 and len(columns) == _MATRIX else None
    if op is None or not op.name.startswith("linalg."):
        return None
    *_, end = op.regions[0].blocks[0].operations
    row, id_ = (graph.look_through(end.operands[ir.OpResult(value).result_number], _INTEGER_CASTS) for value in columns)
    if (read := graph.producer(id_, "tensor.extract")) is None or len(read.operands) != _MATRIX + 1:
        return None
    ids, at, _ = read.operands
    tokens = static_sizes(ids)[0]
    return ids if graph.look_through(at, _INTEGER_CASTS) == row and tokens == static_sizes(original)[0] else None


def _counted(op: ir.Operation, by_token: bool) -> ir.Value | None:
    """Returns the ids of a sum over j of `select(ids[t, j] == e, weight, 0)`."""
    maps, inputs = indexing_maps(op) or [], list(op.operands)[:-1]
    is_sum = bool(maps) and len(op.results) == 1 and iterators(op).count("reduction") == 1
    if not is_sum or not is_zero(op.operands[len(inputs)]):
        return None
    kept, inner = _dims(maps[-1]), graph.producer(_added(op) or yielded(op), "arith.select")
    if kept is None or len(kept) != _MATRIX or inner is None or not is_zero(inner.operands[2]):
        return None
    token, expert = kept if by_token else reversed(kept)
    (choice,) = {*range(maps[-1].n_dims)} - {*kept} if maps[-1].n_dims == _MATRIX + 1 else (-1,)
    equal = graph.producer(inner.operands[0], "arith.cmpi")
    is_equality = equal is not None and ir.IntegerAttr(equal.attributes["predicate"]).value == 0
    if equal is None or not is_equality or not _is_wide(equal.operands[0].type):
        return None
    sides = [graph.look_through(value, _INTEGER_CASTS) for value in equal.operands]
    for side, other in (sides, sides[::-1]):
        loop = graph.producer(other, "linalg.index")
        if loop is None or ir.IntegerAttr(loop.attributes["dim"]).value != expert:
            continue
        if isinstance(side, ir.BlockArgument) and side.owner == op.regions[0].blocks[0]:
            at = ir.BlockArgument(side).arg_number
            return op.operands[at] if _dims(maps[at]) == [token, choice] else None
    return None


def _are_different(ids: ir.Value) -> bool:
    """Returns whether the ids of a token, [T, k], are those of a top-k, all different."""
    while (op := graph.producer(ids)) is not None:
        if is_elementwise(op) and len(op.operands) == _MATRIX:
            read, written = indexing_maps(op) or []
            is_same = isinstance(graph.look_through(yielded(op), _INTEGER_CASTS), ir.BlockArgument)
            if read != written or not _is_wide(build.element(ids)) or not is_same:
                return False
        elif op.name == "tensor.extract_slice":
            offsets, _, steps = graph.slicing(op)
            if offsets[0] != 0 or steps != [1, 1]:
                return False
        else:
            break
        ids = op.operands[0]
    if op is None or op.name != graph.SORT or ir.IntegerAttr(op.attributes["dimension"]).value != 1:
        return False  # where logits are -inf or NaN, iree_linalg_ext.topk returns its init: an id twice
    return _is_counting(op.operands[ir.OpResult(ids).result_number])


def _is_wide(kind: ir.Type) -> bool:
    """Returns whether an integer type has room for any id."""
    return isinstance(kind, ir.IndexType) or (isinstance(kind, ir.IntegerType) and kind.width >= 32)


def _is_counting(value: ir.Value) -> bool:
    """Returns whether a matrix has 0, 1, 2, … in each row."""
    op = graph.producer(value)
    if op is None or not is_elementwise(op) or (indexing_maps(op) or [])[-1] != ir.AffineMap.get_identity(_MATRIX):
        return False
    index = graph.producer(graph.look_through(yielded(op), _INTEGER_CASTS), "linalg.index")
    return index is not None and ir.IntegerAttr(index.attributes["dim"]).value == 1
