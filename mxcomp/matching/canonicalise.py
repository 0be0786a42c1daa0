"""Rewrites a recognised scaled matmul to canonical form, whatever its shape and the order of its operands."""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.matching import exponents, loop_roles, storage
from mxcomp.matching.canonical import contracted
from mxcomp.matching.contraction import Candidate
from mxcomp.matching.decision import Decision, decide
from mxcomp.matching.operands import SCALE_TYPE
from mxcomp.matching.storage import Access, size_of
from mxcomp.mlir import build, graph
from mxcomp.mlir.build import tiles
from mxcomp.mlir.linalg_ops import is_zero


def rewrite(candidate: Candidate) -> None:
    """Replaces the contraction by the canonical `linalg.generic`."""
    root, problem = candidate.root, candidate.problem
    init = root.operands[len(root.operands) - 1]
    wanted, order = ir.RankedTensorType(root.results[0].type), candidate.order
    batch = problem.batch
    with root.context, root.location, ir.InsertionPoint(root):
        plain = ir.RankedTensorType.get([wanted.shape[i] for i in order], wanted.element_type)
        (m, n, blocks), block = _dynamic_sizes(candidate, init), problem.block
        inputs = []
        for operand, (elements, scales), rows, size in (
            (candidate.lhs, candidate.accesses[:2], problem.m, m),
            (candidate.rhs, candidate.accesses[2:], problem.n, n),
        ):
            axis = loop_roles.M if operand is candidate.lhs else loop_roles.N
            shape = [*batch, rows, tiles(problem.k, block)]
            inputs.append(_operand(elements, operand.element_type, [*shape, block], (axis, size), blocks, block))
            if operand.scale is None:
                inputs.append(_ones(shape, SCALE_TYPE, [] if size is None else [size]))
            else:
                scales = exponents.truncated(scales, operand.scale_type)
                inputs.append(_operand(scales, SCALE_TYPE, shape, (axis, size), blocks, block))
        inputs = [inputs[0], inputs[2], inputs[1], inputs[3]]
        sizes = [value for value in (m, n) if value is not None]
        result = build.tensor_type([*batch, problem.m, problem.n], "f32")
        accumulator = None if is_zero(init) else init
        is_init = wanted == plain == result and not accumulator
        zero = init if is_init else build.zero_filled(result, sizes)
        new = contracted(inputs, zero)
        decide(new, Decision())
        value = new.results[0]
        if plain.element_type != result.element_type and accumulator is None:
            value = build.cast(value, plain.element_type, sizes)
        if plain.shape != ir.RankedTensorType(value.type).shape:
            value = _expanded(value, plain.shape, candidate)
        if order != sorted(order):
            back = [order.index(i) for i in range(len(order))]
            value = build.transpose(value, back, build.dynamic_sizes(init))
        if accumulator is not None:
            value = _added(value, accumulator)
    graph.replace(root, value)


def _operand(
    where: Access,
    kind: str,
    shape: Sequence[int | None],
    rows: tuple[str, ir.Value | None],
    blocks: ir.Value | None,
    block: int,
) -> ir.Value:
    """Returns an operand in canonical form; its dynamic sizes are its own if its tensor has them."""
    wanted = build.tensor_type(shape, kind)
    if where.row_major and where.value.type == wanted and not storage.is_slice(where.value):
        return where.value
    axis, size = rows
    own = size and (size_of(where, axis) or size)
    own_blocks = blocks and (size_of(where, loop_roles.K, block) or blocks)
    return storage.operand(where, kind, shape, [value for value in (own, own_blocks) if value is not None])


def _ones(shape: Sequence[int | None], kind: str, sizes: Sequence[ir.Value]) -> ir.Value:
    """Returns scales of 1; `sizes` are the dynamic ones of the shape."""
    result = build.tensor_type(shape, kind)
    return build.filled(arith.ConstantOp(result.element_type, 1.0).result, result, sizes)


def _dynamic_sizes(candidate: Candidate, init: ir.Value) -> list[ir.Value | None]:
    """Returns M, N and blocks along K, where dynamic."""
    problem, roles = candidate.problem, candidate.roles
    first, second = len(roles.batch), len(roles.batch) + len(roles.m)
    dims = candidate.order[first:second], candidate.order[second : second + len(roles.n)]
    m, n = (
        build.product([build.dim(init, i) for i in group]) if size is None else None
        for size, group in zip((problem.m, problem.n), dims, strict=True)
    )
    return [m, n, size_of(candidate.accesses[0], loop_roles.K, problem.block) if problem.k is None else None]


def _added(value: ir.Value, accumulator: ir.Value) -> ir.Value:
    """Returns the sum of f32 sums and the contraction's init operand, of its type."""
    result = ir.RankedTensorType(accumulator.type)

    def body(element: ir.Value, start: ir.Value) -> ir.Value:
        total = arith.AddFOp(element, build.cast(start, element.type)).result
        return build.cast(total, result.element_type)

    return build.elementwise(result, [value, accumulator], body, build.dynamic_sizes(accumulator))


def _expanded(value: ir.Value, sizes: Sequence[int], candidate: Candidate) -> ir.Value:
    """Returns a canonical result with the dimensions of the contraction's."""
    element = ir.RankedTensorType(value.type).element_type
    plain = ir.RankedTensorType.get(sizes, element)
    root, roles = candidate.root, candidate.roles
    loops = [*roles.batch, *roles.m, *roles.n]
    shape = [candidate.loop_sizes.get(d) for d in loops]
    known, groups = build.tensor_type(shape, element), roles.groups()
    if not roles.n:  # a vector, of which the canonical form has one column
        rows = int(bool(roles.batch))
        value, groups = build.collapse(value, [*([i] for i in range(rows)), [rows, rows + 1]]), groups[:-1]
    if known.rank != ir.RankedTensorType(value.type).rank:
        init = root.operands[len(root.operands) - 1]
        dynamic = [build.dim(init, candidate.order[i]) for i, size in enumerate(shape) if size is None]
        value = tensor.ExpandShapeOp(known, value, groups, dynamic, list(known.shape)).result
    return value if value.type == plain else tensor.CastOp(plain, value).result
