"""Finds the scaled matmul in a linalg contraction: its loops and its two factors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations, permutations

from iree.compiler import ir

from mxcomp.errors import InputError
from mxcomp.formats import ELEMENT_TYPES
from mxcomp.layout.problem import Problem
from mxcomp.matching import byte_dequantisation, canonical, loop_roles, weight_only
from mxcomp.matching.elements import Element, Index, UntraceableError, apply_expr
from mxcomp.matching.expressions import Apply, Expr, Leaf, Tracer, passed
from mxcomp.matching.loop_roles import LoopSizes, Roles
from mxcomp.matching.operands import SCALE_TYPE, NotOursError, Operand, follows, mentions_mx, operand_of, warning_of
from mxcomp.matching.storage import Access, locate
from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import indexing_maps, inputs, loop_sizes, loops, yielded
from mxcomp.target import Target


@dataclass
class Candidate:
    """A contraction with at least one MX operand; `ops` compute its dequantised operands.

    `order` says which dimension of the result each of (batch,) M and N is, in the order of `roles`.
    """

    root: ir.Operation
    lhs: Operand
    rhs: Operand
    problem: Problem
    accesses: list[Access]
    roles: Roles
    loop_sizes: LoopSizes
    order: list[int]
    ops: list[ir.Operation] = field(default_factory=list)


RESULT_TYPES = ("f32", "f16", "bf16")
"""The result types. Sums are made in f32, and rounded once to the others."""


def match(op: ir.Operation, target: Target | None = None) -> Candidate | None:
    """Returns the scaled matmul at `op`, or None; raises NotOursError for an unsupported one.

    With a `target`, activations need not be quantised: a ukernel of it may dequantise weights.
    """
    maps = indexing_maps(op)
    if maps is None or len(op.results) != 1 or len(maps) < 3:
        return None
    parallel = loops(maps[-1])
    if len(parallel) < len(maps[-1].results):
        return None
    reductions = _reductions(maps, parallel)
    values = _multiplied(op, len(maps) - 1)
    if len(values) < 2 or not reductions:
        return None

    factors = _factors(op, values, [_loops(op, maps, value) & {*parallel} for value in values])
    contraction = Contraction(op, maps, factors, loop_sizes(op, maps), target)
    first: NotOursError | InputError | None = None
    for order in _orders(reductions):
        try:
            return _match_in_order(contraction, parallel, order)
        except (NotOursError, InputError) as other:
            first = first or other
    assert first is not None
    raise first


def _orders(reductions: list[int]) -> list[list[int]]:
    """Returns possible orders of parts of K, the likeliest first, where the scales do not tell it."""
    if len(reductions) > _MOST_REORDERED:
        return [reductions]
    return [list(order) for order in permutations(reductions)]


_MOST_REORDERED = 3


def _match_in_order(contraction: Contraction, parallel: list[int], reductions: list[int]) -> Candidate | None:
    op, result = contraction.op, parallel
    try:
        roles, wrong = loop_roles.roles(parallel, reductions, contraction.sizes, contraction.used), None
    except NotOursError as other:
        parallel = loop_roles.ordered(parallel, contraction.sizes, contraction.used)
        try:
            roles, wrong = loop_roles.roles(parallel, reductions, contraction.sizes, contraction.used), None
        except NotOursError:
            roles, wrong = Roles((), tuple(parallel[:-1]), tuple(parallel[-1:]), tuple(reductions), 0), other
    traced = contraction.trace(roles)
    if not any(map(mentions_mx, traced)):
        if reason := byte_dequantisation.find(inputs(op)):
            raise NotOursError(reason)
        return None
    if reason := canonical.claimed(op):
        raise NotOursError(reason)
    operands = contraction.operands(roles, traced)
    types = tuple(operand.element_type for operand in operands)
    scaled = {operand.element_type for operand in operands if operand.scale is not None}
    if not scaled <= set(ELEMENT_TYPES):
        raise NotOursError(f"element types {' × '.join(types)}: expected {', '.join(ELEMENT_TYPES)}")
    try:
        if wrong is not None:
            raise wrong
        if roles.batch and (
            alone := [i for i, operand in enumerate(operands) if not follows(operand, loop_roles.BATCH)]
        ):
            # The same for the whole batch: the other operand's batch counts as rows.
            used = [loops - set(roles.batch) if i in alone else loops for i, loops in enumerate(contraction.used)]
            roles = loop_roles.roles(parallel, reductions, contraction.sizes, used)
            operands = contraction.operands(roles, contraction.trace(roles))
        return _check(contraction, operands, roles, [result.index(d) for d in parallel])
    except NotOursError as other:
        raise NotOursError(str(other), warning_of(types)) from None


Factor = tuple[ir.Value, ...]
"""Scalars in the body of a contraction whose product is multiplied with that of the other factor."""


@dataclass(frozen=True)
class Contraction:
    """A linalg op that multiplies two `factors` and sums; `sizes` are those of its loops.

    One of the factors may be no MX operand if a ukernel of `target` may dequantise the other.
    """

    op: ir.Operation
    maps: list[ir.AffineMap]
    factors: tuple[Factor, Factor]
    sizes: LoopSizes
    target: Target | None

    @property
    def used(self) -> list[set[int]]:
        """The loops that index each factor."""
        return [set().union(*(_loops(self.op, self.maps, value) for value in factor)) for factor in self.factors]

    def trace(self, roles: Roles, untraced: Collection[int] = ()) -> list[Expr]:
        """Returns the factors over stored tensors, by these axes.

        Operands that are `untraced` are not followed back.
        """
        tracer, known = Tracer(), dict[ir.Value, Expr | None]()
        for i, (value, argument) in enumerate(
            zip(inputs(self.op), self.op.regions[0].blocks[0].arguments, strict=False)
        ):
            at = Element(value, self.subscripts(i, roles))
            known[argument] = Leaf((at,)) if i in untraced else tracer.element(value, at.indices)
        traced = ([tracer.body(self.op, value, (), known) for value in factor] for factor in self.factors)
        return [_joined(list(filter(None, each))) for each in traced if None not in each]

    def subscripts(self, operand: int, roles: Roles) -> tuple[Index, ...]:
        """Returns the subscripts of an operand's element."""
        subscripts = roles.axes(self.sizes)
        return tuple(_subscript(expr, subscripts) for expr in self.maps[operand].results)

    def operands(self, roles: Roles, exprs: list[Expr]) -> list[Operand]:
        """Returns the operands of both factors, once traced. Raises NotOursError."""
        try:
            return [operand_of(expr) for expr in exprs]
        except NotOursError:
            pairs = zip(self.factors, exprs, strict=True)
            plain = [
                weight_only.argument(self.op, factor[0]) if len(factor) == 1 and not mentions_mx(expr) else None
                for factor, expr in pairs
            ]
            if plain == [None, None] or self.target is None:
                raise
            exprs = self.trace(roles, [each for each in plain if each is not None])
            return [
                operand_of(expr) if each is None else weight_only.operand(self.op, each, self.subscripts(each, roles))
                for expr, each in zip(exprs, plain, strict=True)
            ]


def _arguments(op: ir.Operation, value: ir.Value) -> set[int]:
    """Returns the inputs of a linalg op that a scalar in its body is computed from."""
    block, pending = op.regions[0].blocks[0], [value]
    seen, found = set[ir.Operation](), set[int]()
    while pending:
        value = pending.pop()
        if isinstance(value, ir.BlockArgument):
            if ir.BlockArgument(value).owner == block:
                found.add(ir.BlockArgument(value).arg_number)
        elif (below := value.owner.operation) not in seen:  # it may be used many times
            seen.add(below)
            pending += below.operands
    return found


def _dims(affine_map: ir.AffineMap) -> set[int]:
    """Returns the loops that an indexing map uses."""
    return {d for expr in affine_map.results for d in _expr_dims(expr)}


def _expr_dims(expr: ir.AffineExpr) -> set[int]:
    if isinstance(expr, ir.AffineDimExpr):
        return {ir.AffineDimExpr(expr).position}
    if isinstance(expr, ir.AffineBinaryExpr):
        binary = ir.AffineBinaryExpr(expr)
        return _expr_dims(binary.lhs) | _expr_dims(binary.rhs)
    return set()


def _reductions(maps: list[ir.AffineMap], parallel: list[int]) -> list[int]:
    """Returns reduction loops, the outermost part of K first: a loop over blocks also indexes scales, one inside a
    block does not."""
    order = [loop for each in maps for loop in loops(each)]
    reductions = [d for d in range(maps[0].n_dims) if d not in parallel and d in order]
    return sorted(reductions, key=lambda d: (-order.count(d), order.index(d)))


def _multiplied(op: ir.Operation, count: int) -> list[ir.Value]:
    """Returns what is multiplied in `accumulator + x * y * …`, whatever the order; nothing for another body."""
    accumulator = op.regions[0].blocks[0].arguments[count]
    add = graph.producer(yielded(op), "arith.addf", "math.fma")
    if add is None:
        return []
    if add.name == "math.fma":
        *factors, addend = add.operands
        return _parts(factors) if addend == accumulator else []
    terms = [operand for operand in add.operands if operand != accumulator]
    product = graph.producer(terms[0]) if len(terms) == 1 else None
    if product is not None and product.name in ("arith.extf", "arith.truncf"):
        product = graph.producer(product.operands[0])
    return _parts(list(product.operands)) if product is not None and product.name == _MULTIPLY else []


_MULTIPLY = "arith.mulf"
_MOST_FACTORS = 6


def _parts(values: list[ir.Value]) -> list[ir.Value]:
    """Returns factors of which none is a product; of many, the products that they are."""
    parts = values
    while products := [value for value in parts if graph.producer(value, _MULTIPLY) is not None]:
        parts = [part for value in parts for part in (_operands(value) if value in products else [value])]
        if len(parts) > _MOST_FACTORS:
            return values
    return parts


def _operands(value: ir.Value) -> list[ir.Value]:
    return list(value.owner.operands)


def _factors(op: ir.Operation, values: list[ir.Value], parallel: Sequence[set[int]]) -> tuple[Factor, Factor]:
    """Returns values in two groups that share as few loops of the result as they can, `parallel` of each value.

    An element and its scale are multiplied in any order: (a · b) · (a's scale · b's scale) is a scaled matmul, too.
    """
    first, *others = range(len(values))
    groups = [{first, *more} for n in range(len(others)) for more in combinations(others, n)]

    scales = [_is_scale(op, value) for value in values]

    def cost(group: set[int]) -> tuple[int, int, int]:
        rest = {*others} - group
        loops = [set().union(*(parallel[i] for i in part)) for part in (group, rest)]
        elements = [sum(not scales[i] for i in part) for part in (group, rest)]
        return len(loops[0] & loops[1]), abs(elements[0] - elements[1]), abs(len(group) - len(rest))

    chosen = min(groups, key=cost)
    left, right = ([value for i, value in enumerate(values) if (i in chosen) == side] for side in (True, False))
    return tuple(left), tuple(right)


def _is_scale(op: ir.Operation, value: ir.Value) -> bool:
    """Returns whether a scalar in the body of a linalg op is computed from tensors of scales only."""
    kinds = {str(build.element(op.operands[i])) for i in _arguments(op, value)}
    return kinds == {SCALE_TYPE}


def _loops(op: ir.Operation, maps: list[ir.AffineMap], value: ir.Value) -> set[int]:
    """Returns the loops that index what a scalar in the body of a linalg op is computed from."""
    return {d for i in _arguments(op, value) for d in _dims(maps[i])}


def _joined(exprs: list[Expr]) -> Expr:
    """Returns the product of scalars of one factor."""
    return reduce(lambda one, other: Apply(_MULTIPLY, (one, other), one.type), exprs)


def _subscript(expr: ir.AffineExpr, subscripts: dict[int, Index]) -> Index:
    try:
        return apply_expr(expr, [subscripts.get(d, Index("?", 1, None)) for d in range(max(subscripts) + 1)])
    except UntraceableError:
        return Index("?", 1, None)


def _check(contraction: Contraction, operands: list[Operand], roles: Roles, order: list[int]) -> Candidate:
    """Returns a candidate from a contraction of two MX operands; raises NotOursError with what does not fit."""
    op = contraction.op
    batch, m, n, k = (loop_roles.extent(loops, contraction.sizes) for loops in (roles.batch, roles.m, roles.n, roles.k))
    if batch is None:
        raise NotOursError("a dynamic batch of both operands: expected a static one")
    result = str(ir.RankedTensorType(op.results[0].type).element_type)
    if result not in RESULT_TYPES:
        raise NotOursError(f"result type {result}: expected {', '.join(RESULT_TYPES)}")
    if 0 in (batch, m, n, k):
        raise NotOursError("a dimension is 0")
    for operand in operands:
        if operand.scale is not None:
            _check_blocks(op, operand, operand.scale, k)
    lhs, rhs = operands[roles.lhs], operands[1 - roles.lhs]
    subscripts = roles.axes(contraction.sizes)
    shared, *parts = (
        Index.join_runs([subscripts[d] for d in loops]) for loops in (roles.batch, roles.m, roles.n, roles.k)
    )
    if len(parts[-1]) > 1:
        raise NotOursError("a dynamic size inside of K: expected it outermost, a number of blocks")
    accesses = [
        locate(leaf, shared, rows, parts[-1], block)
        for operand, rows in ((lhs, parts[0]), (rhs, parts[1]))
        for leaf, block in ((operand.element, 1), (operand.scale or operand.element, operand.block))
    ]
    formats = [operand.format for operand in (lhs, rhs) if operand.format is not None]
    if len({each.size for each in formats}) > 1:
        raise NotOursError(f"blocks of {' and of '.join(map(str, formats))} differ in size: expected one size")
    if reason := next(filter(None, map(canonical.objection, formats)), ""):
        raise NotOursError(reason)
    scales = (operand.format.scale.mlir_type if operand.format else SCALE_TYPE for operand in (lhs, rhs))
    types = (lhs.element_type, rhs.element_type, *scales, "f32")
    problem = Problem(m, n, k, types, (batch,) if roles.batch else ())
    if contraction.target is not None and (lhs.scale is None or rhs.scale is None):
        weight_only.check(problem, accesses[0], is_left=lhs.scale is None)
    ops = passed(inputs(op), [*lhs.leaves, *rhs.leaves])
    return Candidate(op, lhs, rhs, problem, accesses, roles, contraction.sizes, order, ops)


def _check_blocks(op: ir.Operation, operand: Operand, scale: Leaf, k: int | None) -> None:
    strides = {index.stride for index in scale.accesses[-1].indices if index.axis == loop_roles.K}
    if not strides and k is None:
        raise NotOursError(f"one scale for a dynamic K: expected blocks of {operand.block}")
    block = min(strides, default=k or 0)
    if block % operand.block:
        raise NotOursError(f"block size {block}: expected a multiple of {operand.block}")
    if k is not None and k % operand.block:
        raise InputError(
            f"{op.location}: {op.name}: K = {k} is not a multiple of the block size {operand.block}: "
            f"pad K to a multiple of {operand.block} with zero elements"
        )
