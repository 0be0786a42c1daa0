"""Finds attention that a model spells out: a product of queries and keys, its softmax, and a product with values.

    %s = linalg.batch_matmul ins(%queries, %keys) …                   scores
    %m = linalg.generic … (maximumf)                                   the largest of each row
    %e = linalg.generic … (exp(%s * scale + %mask - %m))
    %z = linalg.generic … (sum of each row of %e)
    %r = linalg.batch_matmul ins(%e / %z, %values) …

What softmax subtracts of a row changes nothing, and may be anything. Between scores and softmax there may be a scale, a
cap (`tanh(x / c) * c`), a mask that is added or that chooses a low number in place of a score, and a sink: a column
more, which is left out again behind softmax. That results of single steps are rounded to a narrow type is not kept: an
attention computes all of it in f32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from iree.compiler import ir

from mxcomp.matching.elements import ZERO, Element, Index, apply_map
from mxcomp.matching.following import KEY, Following, reduction
from mxcomp.matching.size import Size
from mxcomp.matching.sizes import Sizes
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.mlir.build import is_narrow
from mxcomp.mlir.linalg_ops import indexing_maps, inputs, is_rounding, is_zero, iterators, loop_sizes, sums_products

PRODUCT = "linalg.batch_matmul"
_RESULT = ("n", "t", KEY)
"""The axes of scores: batch and head, the query, the key."""
_MOST_OPERATIONS = 1024
"""The largest number of operations of an expression. No attention has as many, but repeated use of values may give
2⁶⁰."""
LOW = -3e4
"""The highest number in place of a score that hides it: models of f16 have -65504, or what is half of it."""
_MOST_VALUES = 64
"""The number of tensors in front of a product among which another one and its softmax are looked for."""
_BETWEEN = ("linalg.", "tensor.", "arith.", "math.", "util.optimization_barrier")
"""Operations between both products, but for other ones."""
_SAME = ("arith.extf", "arith.truncf")
_LEAF, NUMBER, _SUM, _LARGEST, _CONCAT = "leaf", "number", "sum", "largest", "concat"


@dataclass(frozen=True)
class Node:
    """An operation on scalars by name; a leaf; a number; the sum or the largest of a row; or a row and a column."""

    name: str
    operands: tuple[Node, ...] = ()
    number: float = 0.0
    leaf: Element | None = None
    row: Size | None = field(default=None, compare=False)
    """The size of a row that a column is put behind."""
    access: Element | None = field(default=None, compare=False)
    """An element of a tensor that is equal to this."""
    in_f16: bool = field(default=False, compare=False)
    size: int = field(init=False, repr=False, compare=False)
    """The number of operations, each counted as often as it is used."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + sum(each.size for each in self.operands))


@dataclass(frozen=True)
class Hidden:
    """Scores for which truth values are `truth` are replaced by a number so low that their weights are 0."""

    values: Element
    truth: bool
    number: float


@dataclass(frozen=True)
class Form:
    """An attention in a module, of axes "n", batch and head; "t", the query; "l", the key; and elements of both.

    Attributes:
        op: Whose location it has.
        result: What it computes, [n, t, v].
        query, key, value: Elements of them, by their axes.
        scale, cap: Scores are `cap * tanh(scale * …)`, or `scale * …` where there is no cap.
        mask: Elements of what is added to scores.
        hidden: Which scores are hidden in place of that.
        sink: Elements of a score that has no value.
        adds_in_f16: The mask is added to scores of f16, of which little is left where it is low.
        products: Both, where it is spelled out.
    """

    op: ir.Operation
    result: ir.Value
    query: Element
    key: Element
    value: Element
    scale: float
    cap: float | None = None
    mask: Element | None = None
    hidden: Hidden | None = None
    sink: Element | None = None
    adds_in_f16: bool = False
    products: frozenset[ir.Operation] = frozenset()

    @property
    def axes(self) -> Mapping[str, int | None]:
        """The sizes of axes, None where dynamic."""
        places = self.query, self.key, self.value
        return {index.axis: index.extent for place in places for index in place.indices}


def find(product: ir.Operation) -> Form | None:
    """Returns the attention whose last product this is; None where it is none."""
    if product.name != PRODUCT or not is_zero(product.operands[2]) or len(list(product.operands[0].uses)) != 1:
        return None
    weights, value = _factors(product, ("n", "t", "v"), KEY)
    node = _Follower().element(weights.value, weights.indices)
    if node is None or node.name != "arith.divf":
        return None
    power, total = node.operands
    if power.name != "math.exp" or total.name != _SUM:
        return None
    (summed,) = total.operands
    if _without_column(summed) != power:
        return None
    (score,) = power.operands
    while score.name == "arith.subf" and not _is_of_key(score.operands[1]):
        score = score.operands[0]
    column = _column(summed)
    found = _scores(score)
    if found is None or (column is not None and (column.leaf is None or _is_of_key(column))):
        return None
    scores, mask, scale, cap, adds_in_f16 = found
    query, key = _factors(scores, _RESULT, "d")
    result = product.results[0]
    uses = list(result.uses)
    if len(uses) == 1 and is_rounding(rounding := uses[0].owner.operation):
        result = rounding.results[0]
    added, hidden = (None, mask) if isinstance(mask, Hidden) else (mask, None)
    sink, products = None if column is None else column.leaf, frozenset({scores, product})
    return Form(product, result, query, key, value, scale, cap, added, hidden, sink, adds_in_f16, products)


def resembles(product: ir.Operation) -> bool:
    """Returns whether a product's first factor is a softmax of another product, as in attention of other forms."""
    if product.name != PRODUCT:
        return False
    values, found = [product.operands[0]], set[str]()
    for value in islice(values, _MOST_VALUES):  # values are appended while they are visited
        op = graph.producer(value)
        if op is None or sums_products(op) or not op.name.startswith(_BETWEEN):
            found |= {op.name} if op is not None else set()
            continue
        is_of_rows = op.name == "linalg.generic" and "reduction" in iterators(op)
        found |= {each.name for each in graph.walk(op)} | ({_SUM} if is_of_rows else set())
        numbers = [each for each in op.operands if build.is_tensor(each) and each not in values]
        values += [each for each in numbers if isinstance(build.element(each), ir.FloatType)]  # ids come from a softmax
    return {PRODUCT, "math.exp", _SUM} <= found


def _factors(product: ir.Operation, result: Sequence[str], inner: str) -> tuple[Element, Element]:
    """Returns the factors of a product, by the axes of its result, and the one that it sums over."""
    maps = indexing_maps(product) or []
    sizes = loop_sizes(product, maps)
    names = dict(zip(linalg_ops.loops(maps[2]), result, strict=True))
    loops = [Index(names.get(loop, inner), 1, sizes[loop]) for loop in range(maps[2].n_dims)]
    first, second = (Element(value, apply_map(each, loops)) for value, each in zip(inputs(product), maps, strict=False))
    return first, second


def _is_of_key(node: Node) -> bool:
    if node.name in (_SUM, _LARGEST):
        return False
    if node.leaf is not None:
        return any(index.axis == KEY for index in node.leaf.indices)
    return node.name == PRODUCT or any(_is_of_key(each) for each in node.operands)


def _without_column(node: Node) -> Node:
    if node.name == _CONCAT:
        return node.operands[0]
    if node.name in (_SUM, _LARGEST):
        return node
    return Node(node.name, tuple(map(_without_column, node.operands)), node.number, node.leaf)


def _column(node: Node) -> Node | None:
    """Returns the column that is concatenated to a row from which all of a node is computed, if there is one."""
    if node.name == _CONCAT:
        return node.operands[1]
    if node.name in (_SUM, _LARGEST):
        return None
    return next((found for each in node.operands if (found := _column(each)) is not None), None)


def _scores(node: Node) -> tuple[ir.Operation, Element | Hidden | None, float, float | None, bool] | None:
    """Returns the product of queries and keys, the mask, the scale, the cap if any, and whether it adds in f16."""
    mask: Element | Hidden | None = None
    outer, inner, is_capped, in_f16 = 1.0, 1.0, False, False
    while node.name != PRODUCT:
        if len(node.operands) == 2 and node.operands[0].name == NUMBER:
            node = Node(node.name, node.operands[::-1]) if node.name == "arith.mulf" else node
        one, other = (*node.operands, None, None)[:2]
        match node.name:
            case "arith.addf" if mask is None and not is_capped and (outer, inner) == (1.0, 1.0) and one and other:
                one, other = (one, other) if _has_product(one) else (other, one)
                mask, node, in_f16 = other.access, one, node.in_f16
                if mask is None or _has_product(other):
                    return None
            case "arith.select" if mask is None and not is_capped and (outer, inner) == (1.0, 1.0):
                if (hidden := _hidden(node)) is None:
                    return None
                mask, node = hidden
            case "arith.mulf" | "arith.divf" if one and other and other.name == NUMBER and other.number:
                factor = other.number if node.name == "arith.mulf" else 1 / other.number
                outer, inner = (outer, inner * factor) if is_capped else (outer * factor, inner)
                node = one
            case "math.tanh" if one and not is_capped:
                is_capped, node = True, one
            case _:
                return None
    if node.leaf is None or not math.isfinite(outer) or not math.isfinite(inner):
        return None
    product = graph.producer(node.leaf.value)
    assert product is not None
    return product, mask, inner if is_capped else outer, outer if is_capped else None, in_f16


def _hidden(node: Node) -> tuple[Hidden, Node] | None:
    """Returns what a choice hides, and the scores that it leaves."""
    condition, yes, no = node.operands
    truth = yes.name == NUMBER
    low, scores = (yes, no) if truth else (no, yes)
    if low.name != NUMBER or low.number > LOW or condition.access is None or _has_product(condition):
        return None
    return Hidden(condition.access, truth, low.number), scores


def _has_product(node: Node) -> bool:
    return node.name == PRODUCT or any(map(_has_product, node.operands))


def follow(place: Element) -> Node:
    """Returns what an element is computed from; a leaf where that is not known."""
    found = _Follower().element(place.value, place.indices)
    return Node(_LEAF, leaf=place) if found is None else found


class _Follower(Following[Node]):
    """Follows elements back to products and to what is stored."""

    def of_element(self, place: Element, found: Node | None) -> Node:
        node = Node(_LEAF, leaf=place) if found is None or found.size > _MOST_OPERATIONS else found
        return replace(node, access=node.access or place)

    def outside(self, value: ir.Value) -> Node | None:
        """Returns a constant scalar, or one that all elements of a constant tensor are."""
        number = graph.real(value)
        return None if number is None else Node(NUMBER, number=number)

    def scalar(self, op: ir.Operation, operands: Sequence[Node | None], loops: Sequence[Index]) -> Node | None:
        if (number := self.outside(op.results[0])) is not None:
            return number
        nodes = tuple(each for each in operands if each is not None)
        if not nodes or len(nodes) < len(operands) or not op.name.startswith(("arith.", "math.")):
            return None
        is_same = op.name in _SAME and not is_narrow(op.results[0].type)
        return nodes[0] if is_same else Node(op.name, nodes, in_f16=op.results[0].type == ir.F16Type.get())

    def other(self, op: ir.Operation, place: Element) -> Node | None:
        value, indices = place.value, place.indices
        match op.name:
            case "util.optimization_barrier":
                return self.element(op.operands[0], indices)
            case "tensor.extract_slice":
                return self._sliced(op, indices)
            case "tensor.concat":
                return self._concatenated(op, indices)
            case "arith.constant":
                return self.outside(value)
            case name if name == PRODUCT:
                sizes = build.static_sizes(value)
                whole = [ZERO if size == 1 else Index(each, 1, size) for each, size in zip(_RESULT, sizes, strict=True)]
                return Node(PRODUCT, leaf=place) if is_zero(op.operands[2]) and list(indices) == whole else None
        return self._reduced(op, place)

    def _sliced(self, op: ir.Operation, indices: Sequence[Index]) -> Node | None:
        sizes, source = Sizes(), op.operands[0]
        same_rank = len(build.static_sizes(source)) == len(indices)
        if not same_rank or sizes.offsets(op) != [0] * len(indices):
            return None
        found = self.element(source, indices)
        for dim, size in enumerate(build.static_sizes(op.results[0])):
            if size is None and (known := sizes.of(op.results[0], dim)) != sizes.of(source, dim):
                column = None if found is None or indices[dim].axis != KEY else _column(found)
                found = _without_column(found) if found and column and column.row == known else None
        return found

    def _concatenated(self, op: ir.Operation, indices: Sequence[Index]) -> Node | None:
        """Returns a row and a column, or the row alone for indices inside of it."""
        dim = ir.IntegerAttr(op.attributes["dim"]).value
        if len(op.operands) != 2 or indices[dim].axis != KEY or indices[dim].stride != 1:
            return None
        row, column = (build.static_sizes(each)[dim] for each in op.operands)
        if column != 1 or indices[dim].extent not in ((None,) if row is None else (row, row + 1)):
            return None
        of_row, of_column = list(indices), list(indices)
        of_row[dim], of_column[dim] = Index(KEY, 1, row), ZERO
        found = self.element(op.operands[0], of_row)
        if found is None or (row is not None and indices[dim].extent == row):
            return found
        other, size = self.element(op.operands[1], of_column), Sizes().of(op.operands[0], dim)
        return None if other is None else Node(_CONCAT, (found, replace(other, row=size)))

    def _reduced(self, op: ir.Operation, place: Element) -> Node | None:
        """Returns the sum or the largest of a row."""
        rows = reduction(op, place)
        if rows is None or rows.scalar != op.regions[0].blocks[0].arguments[0] or len(rows.reduced) != 1:
            return None
        name = {"arith.addf": _SUM, "arith.maximumf": _LARGEST}.get(rows.name)
        if name is None or (name == _SUM and not is_zero(op.operands[1])):
            return None
        found = self.body(op, rows.scalar, rows.loops, {})
        return None if found is None else Node(name, (found,))
