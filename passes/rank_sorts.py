"""mxcomp-rank-sorts: rows of a sort go to places that are counted, not swapped into them by one thread for each row.

A router's top-k is such a sort. With N elements a row, a thread makes N²/2 steps one after the other: more than a
millisecond for 128 experts, modelled. Here each element counts those before it, all at once.

Before:

    %s:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : tensor<8x128xf32>, tensor<8x128xi64>) {
    ^bb0(%a: f32, %b: f32, %c: i64, %d: i64):
      %0 = arith.cmpf oge, %a, %b : f32
      iree_linalg_ext.yield %0 : i1
    }
    %r0 = tensor.extract_slice %s#0[0, 0] [8, 4] [1, 1]      (and %r1 of %s#1)

After:

    %n = linalg.generic … ins(%x, %x) -> tensor<8x128xi32>       (how many of a row are before each)
    %p = linalg.generic … ins(%n) -> tensor<8x4xi32>             (the sum of places whose number is that of the result)
    %r0 = linalg.generic … { tensor.extract %x[%row, %p] }       (and %r1 of %i)

Equal elements keep their order. NaN is above all numbers, as in PyTorch, and equal to itself. Rows have at most 1024
elements, and one operand alone is compared, by `>`, `>=`, `<` or `<=`; other sorts stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.mlir import attributes, build, graph, linalg
from mxcomp.mlir import scalars as s
from mxcomp.mlir.loops import names, reduced

_MOST = 1024
"""The most elements of a row; each is compared with each."""
_SLICE = "tensor.extract_slice"
_FLOATS = {2: True, 3: True, 4: False, 5: False, 9: True, 10: True, 11: False, 12: False}
_INTEGERS = {2: (False, True), 3: (False, True), 4: (True, True), 5: (True, True), 6: (False, False), 7: (False, False),
             8: (True, False), 9: (True, False)}  # fmt: skip
"""Tables by predicate: whether large elements come first, and for integers whether they have a sign."""


def run(module: ir.Operation) -> None:
    """Rewrites sorts outside of dispatches below `module`."""
    for op in [op for op in graph.walk(module, bodies=False) if op.name == graph.SORT and not graph.is_in_dispatch(op)]:
        order = _order(op)
        axis = ir.IntegerAttr(op.attributes["dimension"]).value
        size = build.static_sizes(op.operands[0])[axis]
        if order is not None and size is not None and 1 < size <= _MOST:
            with op.location, ir.InsertionPoint(op):
                _replace(op, axis, *order)


def _order(op: ir.Operation) -> tuple[int, ir.Operation] | None:
    """Returns the operand that is compared, and the comparison; None where more is computed."""
    block = op.regions[0].blocks[0]
    compare, *others, last = (view.operation for view in block.operations)
    arguments = list(block.arguments)
    if others or compare.name not in ("arith.cmpf", "arith.cmpi") or last.operands[0] != compare.results[0]:
        return None
    places = [arguments.index(each) if each in arguments else None for each in compare.operands]
    predicates = _FLOATS if compare.name == "arith.cmpf" else _INTEGERS
    is_known = ir.IntegerAttr(compare.attributes["predicate"]).value in predicates
    first, second = places
    is_pair = first is not None and second is not None and first % 2 == 0 and second == first + 1
    return (first // 2, compare) if first is not None and is_pair and is_known else None


def _replace(op: ir.Operation, axis: int, compared: int, compare: ir.Operation) -> None:
    sources = [build.barrier(each) for each in op.operands]  # IREE folds slices into what reads them, without end
    slices = [_slices(result, axis) for result in op.results]
    most = max((size for found in slices for _, size in found), default=1)
    whole = build.static_sizes(sources[0])[axis] or 0
    is_sliced = all(len(found) == sum(1 for _ in result.uses) for found, result in zip(slices, op.results, strict=True))
    count = most if is_sliced else whole
    shape = build.static_sizes(sources[0])
    shape[axis] = count
    dynamic = [build.dim(sources[0], i) for i, size in enumerate(shape) if size is None]
    number = _number_before(sources[compared], axis, compare)
    place = _found(number, shape, axis, dynamic)
    if compare.name == "arith.cmpf" and axis == len(shape) - 1:
        predicate = ir.IntegerAttr(compare.attributes["predicate"]).value
        place.owner.attributes[attributes.PLACES] = ir.BoolAttr.get(_FLOATS[predicate])
    for source, result, found in zip(sources, op.results, slices, strict=True):
        made = _taken(source, place, build.tensor_type(shape, build.element(source)), axis, dynamic)
        for user, size in found if is_sliced else []:
            if size == count:
                graph.replace(user, made)
        if is_sliced:
            for use in list(result.uses):
                use.owner.operation.operands[0] = made
        else:
            result.replace_all_uses_with(made)
    op.erase()


def _slices(result: ir.Value, axis: int) -> list[tuple[ir.Operation, int]]:
    """Returns the slices that take the first elements along an axis, all else whole, and how many they take."""
    found, sizes = [], build.static_sizes(result)
    for use in result.uses:
        user = use.owner.operation
        if user.name != _SLICE or len(user.operands) != 1:
            continue
        taken = build.static_sizes(user.results[0])
        offsets, _, strides = graph.slicing(user)
        is_first = not any(offsets) and set(strides) == {1} and len(taken) == len(sizes) and None not in taken
        if is_first and [*taken[:axis], *taken[axis + 1 :]] == [*sizes[:axis], *sizes[axis + 1 :]]:
            found.append((user, taken[axis] or 0))
    return found


def _number_before(x: ir.Value, axis: int, compare: ir.Operation) -> ir.Value:
    """Returns, for each element along an axis, how many are before it."""
    here, there, loops = _loops(x, axis)

    def is_before(own: ir.Value, other: ir.Value) -> ir.Value:
        place, of_other = (linalg.IndexOp(loop).result for loop in (axis, len(here)))
        is_first = arith.CmpIOp(arith.CmpIPredicate.slt, of_other, place).result
        before, is_equal = _compared(other, own, compare)
        return arith.OrIOp(before, arith.AndIOp(is_equal, is_first).result).result

    made = reduced(
        loops, here, build.static_sizes(x), "i32", [(here, x), (there, x)],
        lambda is_one, total: arith.AddIOp(total, arith.ExtUIOp(total.type, is_one).result).result, is_before,
        build.dynamic_sizes(x),
    )  # fmt: skip
    made.owner.attributes[attributes.RANKS] = ir.UnitAttr.get()
    return made


def _loops(x: ir.Value, axis: int) -> tuple[str, str, str]:
    """Returns the loops of an element, of another one of its row, and all of them."""
    here = names(len(build.static_sizes(x)))
    return here, f"{here[:axis]}Z{here[axis + 1 :]}", f"{here}Z"


def _compared(one: ir.Value, other: ir.Value, compare: ir.Operation) -> tuple[ir.Value, ir.Value]:
    """Returns whether one element is before another, and whether they are equal."""
    predicate = ir.IntegerAttr(compare.attributes["predicate"]).value
    if compare.name == "arith.cmpi":
        is_descending, has_sign = _INTEGERS[predicate]
        large, small = (one, other) if is_descending else (other, one)
        above = arith.CmpIPredicate.sgt if has_sign else arith.CmpIPredicate.ugt
        return arith.CmpIOp(above, large, small).result, arith.CmpIOp(arith.CmpIPredicate.eq, one, other).result
    large, small = (one, other) if _FLOATS[predicate] else (other, one)
    of_large, of_small = (arith.CmpFOp(arith.CmpFPredicate.UNO, each, each).result for each in (large, small))
    is_number = arith.XOrIOp(of_small, arith.ConstantOp(of_small.type, 1).result).result
    above = arith.CmpFOp(arith.CmpFPredicate.OGT, large, small).result
    before = arith.OrIOp(above, arith.AndIOp(of_large, is_number).result).result
    same = arith.CmpFOp(arith.CmpFPredicate.OEQ, large, small).result
    return before, arith.OrIOp(same, arith.AndIOp(of_large, of_small).result).result


def _found(number: ir.Value, shape: Sequence[int | None], axis: int, dynamic: Sequence[ir.Value]) -> ir.Value:
    """Returns the place along an axis of the element that belongs to each place of the result: a sum with one term."""
    here, there, loops = _loops(number, axis)

    def place(value: ir.Value) -> ir.Value:
        wanted, at = s.loop_index(axis), s.loop_index(len(here))
        return s.select(s.equal(value, wanted), at, 0)

    return reduced(loops, here, shape, "i32", [(there, number)], lambda at, total: s.plus(total, at), place, dynamic)


def _taken(
    source: ir.Value, place: ir.Value, result: ir.RankedTensorType, axis: int, dynamic: Sequence[ir.Value]
) -> ir.Value:
    """Returns the elements at these places along an axis."""

    def body(at: ir.Value) -> ir.Value:
        where = [linalg.IndexOp(i).result for i in range(result.rank)]
        where[axis] = arith.IndexCastOp(ir.IndexType.get(), at).result
        return tensor.ExtractOp(source, where).result

    return build.elementwise(result, [place], body, dynamic)
