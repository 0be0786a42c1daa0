"""Finds the scaled matmul in a linalg contraction: its loops and its two factors."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import reduce
from itertools import permutations

from iree.compiler import ir

from mxcomp.errors import InputError
from mxcomp.formats import ELEMENT_TYPES
from mxcomp.layout.problem import Problem
from mxcomp.matching import byte_dequantisation, canonical, factors, loop_roles, weight_only
from mxcomp.matching.elements import Element, Index, UntraceableError, apply_expr
from mxcomp.matching.expressions import Apply, Expr, Leaf, Tracer, passed
from mxcomp.matching.factors import MULTIPLY, Factor
from mxcomp.matching.loop_roles import LoopSizes, Roles
from mxcomp.matching.operands import SCALE_TYPE, NotOursError, Operand, follows, mentions_mx, operand_of, warning_of
from mxcomp.matching.storage import Access, locate
from mxcomp.mlir.linalg_ops import indexing_maps, inputs, loop_sizes, loops
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
    found = factors.find(op, maps)
    if found is None or not reductions:
        return None

    contraction = Contraction(op, maps, found, loop_sizes(op, maps), target)
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
        return [
            set().union(*(factors.loops_of(self.op, self.maps, value) for value in factor)) for factor in self.factors
        ]

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


def _reductions(maps: list[ir.AffineMap], parallel: list[int]) -> list[int]:
    """Returns reduction loops, the outermost part of K first: a loop over blocks also indexes scales, one inside a
    block does not."""
    order = [loop for each in maps for loop in loops(each)]
    reductions = [d for d in range(maps[0].n_dims) if d not in parallel and d in order]
    return sorted(reductions, key=lambda d: (-order.count(d), order.index(d)))


def _joined(exprs: list[Expr]) -> Expr:
    """Returns the product of scalars of one factor."""
    return reduce(lambda one, other: Apply(MULTIPLY, (one, other), one.type), exprs)


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
