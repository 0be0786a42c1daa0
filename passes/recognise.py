"""mxcomp-recognise: finds MX scaled matmuls, in whatever form a model spells them, and gives them one form.

Before (one of many spellings; scales may be broadcast, blocks collapsed, operands and body in any order):

    %d = linalg.generic … ins(%a, %as : tensor<64x8x32xf4E2M1FN>, tensor<64x8xf8E8M0FNU>) {
      … %0 = arith.extf %x   %1 = arith.extf %s   %2 = arith.mulf %0, %1   linalg.yield %2
    } -> tensor<64x8x32xf32>
    %c = tensor.collapse_shape %d [[0], [1, 2]] : tensor<64x8x32xf32> into tensor<64x256xf32>
    …
    %r = linalg.matmul indexing_maps = […] ins(%c, %e : tensor<64x256xf32>, tensor<128x256xf32>) outs(%zero)

After:

    %r = linalg.generic {indexing_maps = [(m, n, ko, kb) -> (m, ko, kb), (n, ko, kb), (m, ko), (n, ko), (m, n)], …,
                         mxcomp.scaled_matmul = {}}
         ins(%a, %b, %as, %bs) outs(%zero) {
      … arith.scaling_extf %a, %as   arith.scaling_extf %b, %bs   arith.mulf   arith.addf
    } -> tensor<64x128xf32>

What looks like a scaled matmul but is not one of ours keeps its form and gets a reason:
`mxcomp.scaled_matmul = {reason = "block size 16: expected 32"}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp import build
from mxcomp.build import static_sizes
from mxcomp.errors import InputError
from mxcomp.formats import ELEMENT_TYPES
from mxcomp.layout import BLOCK_SIZE
from mxcomp.options import Options
from mxcomp.passes.canonical import ATTRIBUTE, CANONICAL_ITERATORS, canonical_maps, scaled_product
from mxcomp.passes.operands import (
    NotOursError,
    Operand,
    mentions_mx,
    operand_of,
    row_axis,
    stored_at,
    warning_of,
)
from mxcomp.passes.trace import (
    Index,
    Leaf,
    Tracer,
    UntraceableError,
    apply_expr,
    indexing_maps,
    is_elementwise,
    is_narrow,
    scalar,
    yielded,
)

RESULT_TYPES = ("f32", "f16", "bf16")
"""Sums are made in f32, and rounded once to the others."""


@dataclass
class Candidate:
    """A contraction with at least one MX operand; `ops` compute its dequantised operands."""

    root: ir.Operation
    lhs: Operand
    rhs: Operand
    sizes: tuple[int | None, int, int]
    ops: list[ir.Operation] = field(default_factory=list)


def run(module: ir.Operation, options: Options) -> None:
    """Rewrites every recognised scaled matmul below `module`. Raises InputError where K is not a multiple of 32."""
    candidates = find(module)
    for candidate in candidates:
        _rewrite(candidate)
    # Producers come before users in each list, and so in all of them together.
    for op in reversed(dict.fromkeys(op for candidate in candidates for op in candidate.ops)):
        build.erase_dead(op)


def find(module: ir.Operation) -> list[Candidate]:
    """The scaled matmuls below `module` that are ours; the others get a reason. Raises InputError."""
    candidates: list[Candidate] = []
    for op in list(build.walk(module)):
        if ATTRIBUTE in op.attributes:
            continue
        try:
            candidate = _match(op)
        except NotOursError as other:
            _leave(op, str(other), other.warning)
            continue
        if candidate is not None:
            candidates.append(candidate)
    return _without_shared(candidates)


def _leave(op: ir.Operation, reason: str, warning: str = "") -> None:
    entries = {"reason": reason} | ({"warning": warning} if warning else {})
    with op.context:
        op.attributes[ATTRIBUTE] = ir.DictAttr.get({k: ir.StringAttr.get(v) for k, v in entries.items()})


def _match(op: ir.Operation) -> Candidate | None:
    """The scaled matmul at `op`, None if it has nothing of one; NotOursError if it is another kind."""
    maps = indexing_maps(op)
    if maps is None or len(op.results) != 1 or len(maps) < 3:
        return None
    parallel = _positions(maps[-1])
    if parallel is None:
        return None
    reductions = _reductions(maps, parallel)
    factors = _product(op, len(maps) - 1)
    if factors is None or not reductions:
        return None

    sizes = _loop_sizes(op, maps)
    axes = _axes(parallel, reductions, sizes)
    tracer = Tracer()
    inputs = [
        tracer.element(value, tuple(_subscript(expr, axes) for expr in m.results))
        for value, m in zip(list(op.operands)[:-1], maps[:-1], strict=True)
    ]
    exprs = [scalar(factor, op.regions[0].blocks[0], inputs) for factor in factors]
    if not any(mentions_mx(expr) for expr in exprs):
        return None
    _check_free(op)
    operands = [operand_of(expr) for expr in exprs]
    types = tuple(operand.element_type for operand in operands)
    if not set(types) <= set(ELEMENT_TYPES):
        raise NotOursError(f"element types {' × '.join(types)}: expected {', '.join(ELEMENT_TYPES)}")
    try:
        return _check(op, operands, parallel, sizes, axes, tracer.ops)
    except NotOursError as other:
        raise NotOursError(str(other), warning_of(types)) from None


def _check_free(op: ir.Operation) -> None:
    """Leaves a matmul alone whose compilation the model has decided on itself. Raises NotOursError."""
    for attribute in ("lowering_config", "compilation_info"):
        if attribute in op.attributes:
            raise NotOursError(f"it has a {attribute} of its own")
    parent = op.parent
    while parent is not None:
        if parent.name.startswith(("flow.dispatch.", "hal.executable")):
            raise NotOursError(f"it is in a {parent.name} already")
        parent = parent.parent


def _positions(affine_map: ir.AffineMap) -> list[int] | None:
    if not all(isinstance(expr, ir.AffineDimExpr) for expr in affine_map.results):
        return None
    return [ir.AffineDimExpr(expr).position for expr in affine_map.results]


def _reductions(maps: list[ir.AffineMap], parallel: list[int]) -> list[int]:
    """Reduction loops, outermost part of K first: a loop over blocks also indexes scales, one inside a block not."""
    order = [expr.position for m in maps for expr in map(_dim, m.results) if expr is not None]
    reductions = [d for d in range(maps[0].n_dims) if d not in parallel and d in order]
    return sorted(reductions, key=lambda d: (-order.count(d), order.index(d)))


def _dim(expr: ir.AffineExpr) -> ir.AffineDimExpr | None:
    return ir.AffineDimExpr(expr) if isinstance(expr, ir.AffineDimExpr) else None


def _product(op: ir.Operation, inputs: int) -> tuple[ir.Value, ir.Value] | None:
    """The factors of `accumulator + x * y` in the body of a contraction, whatever their order."""
    body = op.regions[0].blocks[0]
    accumulator = body.arguments[inputs]
    add = yielded(op).owner
    if not isinstance(add, ir.OpView) or add.operation.name != "arith.addf":
        return None
    terms = [operand for operand in add.operation.operands if operand != accumulator]
    if len(terms) != 1 or not isinstance(terms[0].owner, ir.OpView):
        return None
    product = terms[0].owner.operation
    if product.name in ("arith.extf", "arith.truncf") and isinstance(product.operands[0].owner, ir.OpView):
        product = product.operands[0].owner.operation
    return (product.operands[0], product.operands[1]) if product.name == "arith.mulf" else None


def _loop_sizes(op: ir.Operation, maps: list[ir.AffineMap]) -> dict[int, int | None]:
    sizes: dict[int, int | None] = {}
    for value, m in zip(op.operands, maps, strict=True):
        if not m.results:
            continue  # a scalar
        for expr, size in zip(m.results, static_sizes(value), strict=True):
            if isinstance(expr, ir.AffineDimExpr):
                position = ir.AffineDimExpr(expr).position
                sizes[position] = sizes.get(position) or size
    return sizes


def _axes(parallel: list[int], reductions: list[int], sizes: dict[int, int | None]) -> dict[int, Index]:
    """A subscript for each loop: the last result dimension is axis `p1`, those before it are parts of `p0`, and the
    reduction loops parts of `k`."""
    axes = {parallel[-1]: Index("p1", 1, sizes.get(parallel[-1]))}
    for axis, loops in (("p0", parallel[:-1]), ("k", reductions)):
        stride = 1
        for d in reversed(loops):
            size = sizes.get(d)
            axes[d] = Index(axis, stride, size)
            stride *= size or 1
    return axes


def _subscript(expr: ir.AffineExpr, axes: dict[int, Index]) -> Index:
    try:
        return apply_expr(expr, [axes[d] for d in range(len(axes))])
    except UntraceableError:
        return Index("?", 1, None)


def _check(
    op: ir.Operation,
    operands: list[Operand],
    parallel: list[int],
    loop_sizes: dict[int, int | None],
    axes: dict[int, Index],
    ops: list[ir.Operation],
) -> Candidate:
    """A candidate from a contraction of two MX operands, or NotOursError saying what does not fit."""
    if len(parallel) < 2:
        raise NotOursError(f"{len(parallel)} parallel dimensions: expected M and N")
    rows, n = [loop_sizes.get(d) for d in parallel[:-1]], loop_sizes.get(parallel[-1])
    if len(rows) > 1 and None in rows:
        raise NotOursError("a batch and a dynamic M: expected one dynamic dimension, M, or static ones")
    m = None if None in rows else math.prod(size for size in rows if size is not None)
    k_extents = [axis.extent for axis in axes.values() if axis.axis == "k"]
    if n is None or None in k_extents:
        raise NotOursError("dynamic N or K: only M may be dynamic")
    k = math.prod(extent or 0 for extent in k_extents)
    result = str(ir.RankedTensorType(op.results[0].type).element_type)
    if result not in RESULT_TYPES:
        raise NotOursError(f"result type {result}: expected {', '.join(RESULT_TYPES)}")
    if 0 in (m, n, k):
        raise NotOursError("a dimension is 0")
    for operand in operands:
        _check_blocks(op, operand, k)
    first, second = (row_axis(operand) for operand in operands)
    if first == second != "":
        raise NotOursError("each operand must hold K and one of M and N")
    if len(parallel) > 2 and "" in (first, second):
        raise NotOursError("a batch of both operands: expected one operand with a batch, taken for rows")
    lhs, rhs = operands if first == "p0" or second == "p1" or first == second else operands[::-1]
    for operand, axis, size in ((lhs, "p0", m), (rhs, "p1", n)):
        stored_at(operand.element, axis, size, k, block=False)
        stored_at(operand.scale, axis, size, k, block=True)
    if not _is_zero(op.operands[len(op.operands) - 1]):
        raise NotOursError("accumulator is not zero: expected a linalg.fill with 0.0")
    return Candidate(op, lhs, rhs, (m, n, k), ops)


def _check_blocks(op: ir.Operation, operand: Operand, k: int) -> None:
    strides = {index.stride for index in operand.scale.places[-1][1] if index.axis == "k"}
    block = min(strides, default=k)
    if k % block:
        raise InputError(
            f"{op.location}: {op.name}: K = {k} is not a multiple of the block size {block}: "
            f"pad K to a multiple of {BLOCK_SIZE} with zero elements"
        )
    if block != BLOCK_SIZE:
        raise NotOursError(f"block size {block}: expected {BLOCK_SIZE}")


def _is_zero(value: ir.Value) -> bool:
    op = value.owner
    if not isinstance(op, ir.OpView):
        return False
    op = op.operation
    if is_elementwise(op):  # linalg.fill, and the generic that says the same
        element, arguments = yielded(op), list(op.regions[0].blocks[0].arguments)
        return _is_zero(op.operands[arguments.index(element)] if element in arguments else element)
    if op.name != "arith.constant":
        return False
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseFPElementsAttr):
        dense = ir.DenseFPElementsAttr(attribute)
        attribute = dense.get_splat_value() if dense.is_splat else attribute
    return isinstance(attribute, ir.FloatAttr) and ir.FloatAttr(attribute).value == 0.0


def _without_shared(candidates: list[Candidate]) -> list[Candidate]:
    """Drops candidates whose dequantised operands someone else uses: they have to be computed anyway."""
    while True:
        own = {op for candidate in candidates for op in (candidate.root, *candidate.ops)}
        kept = []
        for candidate in candidates:
            user = next((use for op in candidate.ops if (use := _foreign_use(op, own)) is not None), None)
            if user is None:
                kept.append(candidate)
            else:
                _leave(candidate.root, f"a dequantised operand is also used at {user.location}")
        if len(kept) == len(candidates):
            return kept
        candidates = kept


def _foreign_use(op: ir.Operation, own: set[ir.Operation]) -> ir.Operation | None:
    if is_narrow(ir.RankedTensorType(op.results[0].type).element_type):
        return None  # a stored operand, shared at no cost
    users = (use.owner.operation for use in op.results[0].uses)
    return next((user for user in users if user not in own), None)


def _rewrite(candidate: Candidate) -> None:
    """Replaces the contraction by the canonical `linalg.generic`."""
    root, (m, n, k) = candidate.root, candidate.sizes
    with root.context, root.location, ir.InsertionPoint(root):
        inputs = [
            _stored(operand.element, axis, rows, k, operand.element_type, block=False)
            for operand, axis, rows in ((candidate.lhs, "p0", m), (candidate.rhs, "p1", n))
        ] + [
            _stored(operand.scale, axis, rows, k, operand.scale_type, block=True)
            for operand, axis, rows in ((candidate.lhs, "p0", m), (candidate.rhs, "p1", n))
        ]
        plain = ir.RankedTensorType(root.results[0].type)
        result = build.tensor_type((m, n), "f32")
        init = root.operands[len(root.operands) - 1]
        if plain != result:
            init = build.zero_filled(result, build.dynamic_sizes(init))
        new = build.generic(result, inputs, init, canonical_maps(), CANONICAL_ITERATORS, scaled_product)
        new.attributes[ATTRIBUTE] = ir.DictAttr.get({})
        value = new.results[0]
        if plain.element_type != result.element_type:
            value = rounded(value, build.tensor_type((m, n), plain.element_type))
        if plain.rank > 2:
            groups = [list(range(plain.rank - 1)), [plain.rank - 1]]
            value = tensor.ExpandShapeOp(plain, value, groups, [], list(plain.shape)).result
    root.results[0].replace_all_uses_with(value)
    root.erase()


def rounded(value: ir.Value, result: ir.RankedTensorType) -> ir.Value:
    """f32 sums as f16 or bf16."""
    identity = ir.AffineMap.get_identity(2)

    def body(element: ir.Value, _: ir.Value) -> ir.Value:
        return arith.TruncFOp(result.element_type, element).result

    init = build.empty(result, build.dynamic_sizes(value))
    return build.generic(result, [value], init, [identity, identity], ["parallel"] * 2, body).results[0]


def _stored(leaf: Leaf, axis: str, rows: int | None, k: int, element: str, block: bool) -> ir.Value:
    value = stored_at(leaf, axis, rows, k, block)
    shape = (rows, k // BLOCK_SIZE) if block else (rows, k // BLOCK_SIZE, BLOCK_SIZE)
    return build.bitcast(value, build.tensor_type(shape, element))
