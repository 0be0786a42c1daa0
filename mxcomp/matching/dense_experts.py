"""Finds sums over all experts whose routing weights are zero except for a token's top-k, as exporters write mixtures.

    %ids = … iree_linalg_ext.sort of logits and 0, 1, 2, …: the first k, those of a token all different
    %r = iree_linalg_ext.scatter … of weights to [t, %ids[t, j]] of zeros [T, E]        (or a sum over j of
         select(%ids[t, j] == e, weight, 0))
    %y = linalg.generic … reduction over e of experts(e, t) · %r[t, e]

An expert that is not among a token's adds nothing, so only those that are need to be computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from iree.compiler import ir

from mxcomp.matching.elements import Element, Index
from mxcomp.matching.expressions import Apply, Expr, Leaf, Tracer, moved
from mxcomp.matching.sizes import in_columns
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.mlir.build import static_sizes
from mxcomp.mlir.linalg_ops import indexing_maps, inputs, is_elementwise, is_zero, iterators, loop_sizes, yielded

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
    if (added := _added(op)) is None:
        return None
    sizes = loop_sizes(op, maps)
    loops = [Index(f"loop {i}", 1, sizes.get(i)) for i in range(maps[-1].n_dims)]
    expert = loops[iterators(op).index("reduction")]
    weighted = graph.producer(op.operands[0])
    if weighted is not None and not (len(inputs(op)) == 1 and is_elementwise(weighted) and graph.only_user(weighted)):
        weighted = None
    product = _Terms((op if weighted is None else weighted).results[0]).body(op, added, loops, {})
    leaves = product.operands if isinstance(product, Apply) and product.name == "arith.mulf" else ()
    for experts, weights in permutations([each for each in leaves if isinstance(each, Leaf)], 2):
        (made,), (share,) = experts.accesses, weights.accesses
        axes = {loops.index(each) for each in made.indices if each in loops}
        if len(made.indices) <= _MATRIX or len(axes) != len(made.indices) or made.indices[0] != expert:
            continue
        _, token, *rest = made.indices
        ids = _chosen(share, token, expert)
        if ids is not None and _are_different(ids):
            at = tuple(map(loops.index, rest))
            by_token = share.indices == (token, expert)
            return Dense(op, weighted, made.value, share.value, by_token, ids, loops.index(token), at)
    return None


class _Terms(Tracer):
    """Traces scalars to elements of tensors, of which one is followed once, without casts."""

    def __init__(self, inside: ir.Value) -> None:
        super().__init__()
        self._inside = inside

    def element(self, value: ir.Value, indices: Sequence[Index]) -> Expr | None:
        is_inside = value == self._inside
        return super().element(value, indices) if is_inside else Leaf((Element(value, tuple(indices)),))

    def scalar(self, op: ir.Operation, operands: Sequence[Expr | None], loops: Sequence[Index]) -> Expr:
        source = operands[0] if op.name in _CASTS else None
        return source or super().scalar(op, operands, loops)


def _added(op: ir.Operation) -> ir.Value | None:
    """Returns the term that an operation adds to its result."""
    inner, acc = graph.producer(yielded(op), "arith.addf"), list(op.regions[0].blocks[0].arguments)[-1]
    terms = [] if inner is None else [operand for operand in inner.operands if operand != acc]
    return terms[0] if len(terms) == 1 else None


def _chosen(weights: Element, token: Index, expert: Index) -> ir.Value | None:
    """Returns the ids [T, k] of a matrix of routing weights that is zero elsewhere."""
    if len(weights.indices) != _MATRIX or {*weights.indices} != {token, expert}:
        return None
    *_, place = moved(weights, _CASTS)
    op = graph.producer(place.value)
    if op is None or {*place.indices} != {token, expert} or len(place.indices) != _MATRIX:
        return None
    if op.name == SCATTER:
        return _scattered(op) if place.indices == (token, expert) else None
    return _counted(op, place.indices.index(token))


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


def _counted(op: ir.Operation, of_token: int) -> ir.Value | None:
    """Returns the ids of a sum over j of `select(ids[t, j] == e, weight, 0)`, whose dimension of this number is t."""
    maps = indexing_maps(op) or []
    is_sum = bool(maps) and len(op.results) == 1 and iterators(op).count("reduction") == 1
    if not is_sum or maps[-1].n_dims != _MATRIX + 1 or not is_zero(op.operands[len(inputs(op))]):
        return None
    inner, kept = graph.producer(_added(op) or yielded(op), "arith.select"), linalg_ops.loops(maps[-1])
    if inner is None or not is_zero(inner.operands[2]):
        return None
    (choice,) = {*range(_MATRIX + 1)} - {*kept}
    of_ids = ir.AffineMap.get(_MATRIX + 1, 0, [ir.AffineExpr.get_dim(i) for i in (kept[of_token], choice)])
    equal = graph.producer(inner.operands[0], "arith.cmpi")
    is_equality = equal is not None and ir.IntegerAttr(equal.attributes["predicate"]).value == 0
    if equal is None or not is_equality or not _is_wide(equal.operands[0].type):
        return None
    sides = [graph.look_through(value, _INTEGER_CASTS) for value in equal.operands]
    for side, other in (sides, sides[::-1]):
        loop, arguments = graph.producer(other, "linalg.index"), list(op.regions[0].blocks[0].arguments)[:-1]
        if loop is None or ir.IntegerAttr(loop.attributes["dim"]).value != kept[1 - of_token]:
            continue
        if side in arguments and maps[arguments.index(side)] == of_ids:
            return op.operands[arguments.index(side)]
    return None


def _are_different(ids: ir.Value) -> bool:
    """Returns whether the ids of a token, [T, k], are those of a top-k, all different."""
    places = tuple(Index(axis, 1, size) for axis, size in zip("tj", static_sizes(ids), strict=True))
    accesses = moved(Element(ids, places), _INTEGER_CASTS)
    while all(_is_wide(build.element(each.value)) for each in accesses):
        *_, place = accesses
        op = graph.producer(place.value)
        if op is None or place.indices != places:
            return False
        if op.name == graph.SORT:  # where logits are -inf or NaN, iree_linalg_ext.topk returns its init: an id twice
            is_of_rows = ir.IntegerAttr(op.attributes["dimension"]).value == 1
            return is_of_rows and _is_counting(op.operands[ir.OpResult(place.value).result_number])
        if op.name != "tensor.extract_slice":
            return False
        offsets, _, steps = graph.slicing(op)
        if offsets[0] != 0 or steps != [1, 1]:
            return False
        accesses = moved(Element(op.operands[0], places), _INTEGER_CASTS)
    return False


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
