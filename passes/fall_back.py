"""mxcomp-fall-back: multiplies dequantised values where IREE's own lowering of a scaled matmul would not do.

IREE 3.13 lays 8-bit operands out wrongly for scaled MFMA: results are wrong where scales differ. It cannot load 6-bit
ones. A recognised matmul that got no layout of ours is taken apart, unless its operands are 4-bit, as they are needed
in memory, surely two tensors, and only M is dynamic.

Before:

    %r = linalg.generic {…, mxcomp.scaled_matmul = {index = 0, reason = "…"}} ins(%a, %b, %as, %bs) outs(%zero) …

After:

    %c = tensor.collapse_shape %a [[0], [1, 2]] : tensor<64x8x32xf8E4M3FN> into tensor<64x256xf8E4M3FN>
    %d = linalg.generic … ins(%c) { … tensor.extract %as[%m, %k / 32] … arith.scaling_extf } -> tensor<64x256xf32>
    …                                                                          (%e from %b and %bs in the same way)
    %r = linalg.generic {indexing_maps = [(m, n, k) -> (m, k), (n, k), (m, n)], …,
                         mxcomp.scaled_matmul = {index = 0, reason = "…"}} ins(%d, %e) outs(%zero) {
      arith.mulf … arith.addf
    }

K is one dimension, as IREE 3.13 miscompiles some f32 contractions over blocks and what is in them, 2×256×13×32 and
1×1024×13×32 for example.

Activations of bf16 that are not quantised are multiplied as they are, by weights that are dequantised to bf16, which is
exact: IREE uses bf16 matrix instructions for these.

Operands with 6 bits, or in another order in memory, are read from their bytes (`mxcomp.codes.decode`). IREE makes one
or a few dispatches of all this, with f32 matrix instructions: slower than scaled MFMA by far, and right.

A contraction that was not recognised keeps its form, but gets elements (6-bit ones: mxcomp-widen-codes) and scales as
f32, so that nothing takes it for a scaled matmul of the hardware. One that rounds each product to 16 bits sums in f32
and rounds the sum, as for recognised ones: IREE 3.13 cannot distribute the former to threads. Other scales that are
extended on their own (`arith.extf`) are so bit by bit, as IREE takes code 0 for 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.codes import six_bit
from mxcomp.codes.decode import dequantised, scale_value, scaled
from mxcomp.codes.six_bit import is_six_bit
from mxcomp.formats import BLOCK_SIZE
from mxcomp.layout import ACC, LHS, RHS
from mxcomp.matching.canonical import claimed, problem_of
from mxcomp.matching.decision import Decision, decide, decision_of, left_to_iree
from mxcomp.matching.elements import RESHAPES
from mxcomp.matching.operands import SCALE_TYPE
from mxcomp.matching.storage import erase_gather, is_gathered, settled
from mxcomp.matching.symmetry import is_symmetric
from mxcomp.mlir import build, graph, linalg, linalg_ops
from mxcomp.mlir.build import is_sub_byte
from mxcomp.mlir.inline import inline
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise
from mxcomp.options import Options
from mxcomp.packing import runtime_sizes
from mxcomp.ukernels.dequantising import ACTIVATIONS


def run(module: ir.Operation, options: Options) -> None:
    """Takes apart every recognised matmul below `module` that was left to IREE, but those that it compiles well."""
    for op, decision in left_to_iree(module):
        if decision.reason is None:
            continue
        recognised = decision.index is not None and len(op.operands) == ACC + 1
        if recognised:
            _check_sizes(op)
        if recognised and not _compiles_well(op):
            _take_apart(op, decision)
        elif recognised or not claimed(op):
            _settle(op)
            if decision.index is None:
                _extend_elements(_sum_in_f32(op, decision), decision)
    for op, _ in left_to_iree(module):
        _keep_slices_behind(op)
        _keep_transposes_behind(op)
        _keep_branches_behind(op)
    for op in [op for op in graph.walk(module) if _extends_scale(op)]:
        with op.context, op.location, ir.InsertionPoint(op):
            op.results[0].replace_all_uses_with(six_bit.cast(scale_value(op.operands[0]), op.results[0].type))
        op.erase()


def _check_sizes(op: ir.Operation) -> None:
    with op.context, op.location, ir.InsertionPoint(op):
        runtime_sizes.compared(list(op.operands)[:ACC], problem_of(op))


def _settle(op: ir.Operation) -> None:
    """Keeps slices that a contraction reads out of its dispatch: IREE 3.13 reads other elements of their sources."""
    with op.context, op.location, ir.InsertionPoint(op):
        for i, operand in enumerate(list(op.operands)[:-1]):
            if isinstance(operand.type, ir.RankedTensorType) and not is_sub_byte(build.element(operand)):
                op.operands[i] = settled(operand)


def _keep_transposes_behind(op: ir.Operation) -> None:
    """Hides a batch's result from what reads it in another order: IREE 3.13 contracts to that order, and may fail."""
    uses = [(use.owner.operation, use.operand_number) for use in op.results[0].uses]
    turned = [(user, i) for user, i in uses if is_elementwise(user) and not _reads_in_order(user, i)]
    if ir.RankedTensorType(op.results[0].type).rank > _MATRIX and turned:
        with op.context, op.location, ir.InsertionPoint.after(op):
            hidden = build.barrier(op.results[0])
        for user, i in turned:
            user.operands[i] = hidden


def _reads_in_order(user: ir.Operation, operand: int) -> bool:
    maps = indexing_maps(user) or []
    return maps[operand] == maps[-1]


_MATRIX = 2


def _keep_slices_behind(op: ir.Operation) -> None:
    """Hides slices of what is computed from a result: IREE moves them in front of dequantisation, and fails."""
    for user in list(dict.fromkeys(use.owner.operation for use in op.results[0].uses)):
        if user.name == "tensor.extract_slice":
            if user.operands[0] == op.results[0]:
                with user.context, user.location, ir.InsertionPoint(user):
                    user.operands[0] = build.barrier(op.results[0])
        elif user.name in RESHAPES or (is_elementwise(user) and decision_of(user) is None):
            _keep_slices_behind(user)


def _keep_branches_behind(op: ir.Operation) -> None:
    """Keeps functions that branch out of its dispatch, where they may get what is read beyond a tensor's edge.

    That is poison in IREE 3.13's vectors, and branches on it let LLVM take the whole kernel for unreachable.
    """
    consumers = list(_fused(op))
    reads_more = any(len(user.operands) > 2 for user in consumers)  # more than a result and an init
    if reads_more and any(_branches(inner) for user in consumers for inner in graph.walk(user)):
        uses = [(use.owner.operation, use.operand_number) for use in op.results[0].uses]
        with op.context, op.location, ir.InsertionPoint.after(op):
            hidden = build.barrier(op.results[0])
        for user, number in uses:
            user.operands[number] = hidden


def _fused(op: ir.Operation) -> Iterator[ir.Operation]:
    """What IREE may compute in the dispatch of a matmul from its result."""
    for user in list(dict.fromkeys(use.owner.operation for use in op.results[0].uses)):
        if user.name in RESHAPES or (is_elementwise(user) and decision_of(user) is None):
            yield user
            yield from _fused(user)


def _branches(op: ir.Operation) -> bool:
    """Whether an operation may become branches, or undefined behaviour for some operands."""
    return (op.name.startswith("math.") and op.name not in _BRANCHLESS) or op.name in _DIVISIONS


_ROUNDINGS = ("ceil", "floor", "round", "roundeven", "trunc")
_SIMPLE = ("absf", "absi", "copysign", "exp", "exp2", "fma", "log", "log10", "log2", "rsqrt", "sqrt")
_BRANCHLESS = frozenset(f"math.{name}" for name in (*_ROUNDINGS, *_SIMPLE))
"""Functions for which LLVM's AMDGPU target has instructions, or a few in a row."""

_QUOTIENTS = ("ceildivsi", "ceildivui", "divsi", "divui", "floordivsi", "remsi", "remui")
_DIVISIONS = frozenset(f"arith.{name}" for name in _QUOTIENTS)


def _extends_scale(op: ir.Operation) -> bool:
    """Whether it is an extension of a scale in a body of which code 0, 2^-127, would become 0."""
    return op.name == "arith.extf" and str(op.operands[0].type) == SCALE_TYPE


def _compiles_well(op: ir.Operation) -> bool:
    """Whether IREE's own lowering of a scaled matmul in canonical form is right, and makes a good kernel."""
    problem = problem_of(op)
    return (
        problem.types[LHS] == problem.types[RHS] == _FP4
        and not problem.batch
        and None not in (problem.n, problem.k)
        and not any(map(is_gathered, list(op.operands)[:ACC]))
        and not is_symmetric(op)
    )


def _sum_in_f32(op: ir.Operation, decision: Decision) -> ir.Operation:
    """A contraction that adds f32 products, in the place of one that rounds each to what it yields; others as is."""
    accumulator = list(op.regions[0].blocks[0].arguments)[-1]
    add = graph.producer(linalg_ops.yielded(op))
    if add is None or add.name != "arith.addf" or len(list(accumulator.uses)) != 1:
        return op
    rounding = next((term for term in map(graph.producer, add.operands) if term and term.name == "arith.truncf"), None)
    if rounding is None or accumulator not in add.operands or str(rounding.operands[0].type) != "f32":
        return op
    *inputs, init = op.operands
    with op.context, op.location, ir.InsertionPoint(op):
        f32, narrow = ir.F32Type.get(), ir.RankedTensorType(op.results[0].type)
        wide = build.tensor_type(build.static_sizes(init), "f32")

        def rewrite(inner: ir.Operation, operands: list[ir.Value]) -> ir.Value | None:
            if inner == rounding:
                return operands[0]
            return arith.AddFOp(*operands).result if inner == add else None

        def body(*given: ir.Value) -> ir.Value:
            return inline(op, given, rewrite)

        start = build.elementwise(wide, [init], lambda value: arith.ExtFOp(f32, value).result)
        new = build.generic(wide, inputs, start, indexing_maps(op) or [], linalg_ops.iterators(op), body)
        decide(new, decision)
        kind = narrow.element_type
        rounded = build.elementwise(narrow, [new.results[0]], lambda value: arith.TruncFOp(kind, value).result)
    op.results[0].replace_all_uses_with(rounded)
    op.erase()
    return new


def _extend_elements(op: ir.Operation, decision: Decision) -> None:
    """Gives a contraction that was not recognised f32 for elements and scales.

    So nothing takes it for a scaled matmul. Of scales of 8 bits in shared memory, IREE 3.13 reads some that no lane
    wrote.
    """
    *inputs, init = op.operands
    block = op.regions[0].blocks[0]
    extended = [_is_extended(argument) for argument in list(block.arguments)[:-1]]
    if not any(extended):
        return
    with op.context, op.location, ir.InsertionPoint(op):
        values = [_extended(value) if wanted else value for value, wanted in zip(inputs, extended, strict=True)]

        def body(*arguments: ir.Value) -> ir.Value:
            return inline(op, arguments, _without_extension)

        maps, kind = indexing_maps(op) or [], ir.RankedTensorType(op.results[0].type)
        new = build.generic(kind, values, init, maps, linalg_ops.iterators(op), body)
        decide(new, decision)
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()


def _is_extended(argument: ir.Value) -> bool:
    """Whether all that a body does with a value is to multiply an element by its scale."""
    users = [(use.owner.operation.name, use.operand_number) for use in argument.uses]
    if not isinstance(argument.type, ir.FloatType) or is_six_bit(argument.type):  # mxcomp-widen-codes takes those
        return False
    role = 1 if str(argument.type) == SCALE_TYPE else 0
    return bool(users) and all(user == ("arith.scaling_extf", role) for user in users)


def _without_extension(op: ir.Operation, operands: list[ir.Value]) -> ir.Value | None:
    """What arith.scaling_extf gives for an element or a scale that is f32 already."""
    if op.name != "arith.scaling_extf":
        return None
    (element, scale), f32 = operands, ir.F32Type.get()
    is_extended = scale.type != op.operands[1].type
    if element.type != f32 and not is_extended:
        return None
    element = element if element.type == f32 else arith.ExtFOp(f32, element).result
    value = arith.MulFOp(element, scale).result if is_extended else scaled(element, scale)
    return six_bit.cast(value, op.results[0].type)


def _extended(value: ir.Value) -> ir.Value:
    """Elements or scales as f32."""
    result = build.tensor_type(build.static_sizes(value), "f32")
    if str(build.element(value)) == SCALE_TYPE:
        return build.elementwise(result, [value], scale_value)
    return build.elementwise(result, [value], lambda element: arith.ExtFOp(result.element_type, element).result)


_FP4 = "f4E2M1FN"


def _take_apart(op: ir.Operation, decision: Decision) -> None:
    operands = list(op.operands)[:ACC]
    with op.context, op.location, ir.InsertionPoint(op):
        values = _values(*operands)
        result = ir.RankedTensorType(op.results[0].type)
        *outer, m, n, k = (ir.AffineExpr.get_dim(i) for i in range(result.rank + 1))
        maps = [ir.AffineMap.get(result.rank + 1, 0, [*outer, *dims]) for dims in ([m, k], [n, k], [m, n])]
        iterators = ["parallel"] * result.rank + ["reduction"]
        new = build.generic(result, values, op.operands[ACC], maps, iterators, _product)
        decide(new, decision)
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()
    for operand in operands:
        erase_gather(operand)


def _values(lhs: ir.Value, rhs: ir.Value, lhs_scale: ir.Value, rhs_scale: ir.Value) -> list[ir.Value]:
    """What is multiplied: f32, or activations that are not quantised, and weights like them."""
    if str(build.element(lhs)) != ACTIVATIONS:
        return [_dequantised(lhs, lhs_scale), _dequantised(rhs, rhs_scale)]
    activations = _narrowed(_dequantised(lhs, lhs_scale)) if is_gathered(lhs) else _flat(lhs)
    return [activations, _narrowed(_dequantised(rhs, rhs_scale))]


def _dequantised(elements: ir.Value, scales: ir.Value) -> ir.Value:
    """f32 values [(batch,) rows, K]."""
    kind = ir.RankedTensorType(elements.type)
    if ir.FloatType(kind.element_type).width == 6 or is_gathered(elements) or is_gathered(scales):
        return dequantised(elements, scales)
    scales = settled(scales)
    flat = _flat(elements)
    shape = build.static_sizes(flat)

    def body(element: ir.Value) -> ir.Value:
        *row, k = (linalg.IndexOp(i).result for i in range(len(shape)))
        block = arith.DivUIOp(k, build.constant_index(BLOCK_SIZE)).result
        scale = tensor.ExtractOp(scales, [*row, block]).result
        return arith.ScalingExtFOp(ir.F32Type.get(), element, scale).result

    def as_it_is(element: ir.Value) -> ir.Value:
        return arith.ExtFOp(ir.F32Type.get(), element).result

    is_narrow = build.is_narrow(kind.element_type)
    return build.elementwise(build.tensor_type(shape, "f32"), [flat], body if is_narrow else as_it_is)


def _flat(elements: ir.Value) -> ir.Value:
    """[(batch,) rows, K]."""
    *lead, _, _ = build.static_sizes(elements)
    return build.collapse(elements, [*([i] for i in range(len(lead))), [len(lead), len(lead) + 1]])


def _narrowed(value: ir.Value) -> ir.Value:
    """f32 values as bf16, of which they are."""
    result = build.tensor_type(build.static_sizes(value), ACTIVATIONS)
    sizes = build.dynamic_sizes(value)
    return build.elementwise(result, [value], lambda x: arith.TruncFOp(result.element_type, x).result, sizes)


def _product(a: ir.Value, b: ir.Value, acc: ir.Value) -> ir.Value:
    a, b = (factor if factor.type == acc.type else arith.ExtFOp(acc.type, factor).result for factor in (a, b))
    return arith.AddFOp(acc, arith.MulFOp(a, b).result).result
