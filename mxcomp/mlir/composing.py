"""Elements of tensors at places: what they are computed from, down to tensors that are stored, in one body.

Arithmetic, reshapes, transposes, slices, concatenations, numbers, and floats whose bits are taken as integers are
followed, so that a tree of them becomes one operation:

    concat(neg(slice(%x)), slice(%x))[d]    becomes    select(d < 64, -%x[d + 64], %x[d - 64])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor, vector

from mxcomp.mlir import build, graph
from mxcomp.mlir.inline import inline
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise, only_calculates, reads_init, reassociation

Place = Sequence[ir.Value]
Loops = Mapping[int, ir.Value]

_SUBSCRIPT, _BYTE = "linalg.index", 8


def is_calculation(op: ir.Operation) -> bool:
    """Returns whether an operation computes each element from one element of each operand, and from its subscripts."""
    if op.name == "linalg.fill" or not is_elementwise(op) or reads_init(op) or not only_calculates(op, _SUBSCRIPT):
        return False
    exprs = [expr for each in (indexing_maps(op) or []) for expr in each.results]
    return all(isinstance(expr, ir.AffineDimExpr | ir.AffineConstantExpr) for expr in exprs)


def _stored(value: ir.Value, place: Place) -> ir.Value:
    return tensor.ExtractOp(value, list(place)).result


class Elements:
    """Builds elements at the insertion point, each once; `stored` are those of tensors that are not followed."""

    def __init__(self, stored: Callable[[ir.Value, Place], ir.Value] = _stored) -> None:
        self._stored = stored
        self._known: dict[tuple[ir.Value, tuple[ir.Value, ...]], ir.Value] = {}

    def at(self, value: ir.Value, place: Place) -> ir.Value:
        """Returns the element of a tensor, of whose dimensions that are put together only the first may be dynamic."""
        key = value, tuple(place)
        if key not in self._known:
            self._known[key] = self._built(value, place)
        return self._known[key]

    def _built(self, value: ir.Value, place: Place) -> ir.Value:
        op = graph.producer(value)
        if op is None or not _is_followed(op):
            return self._stored(value, place)
        return _FOLLOWED.get(op.name, Elements._calculated)(self, op, place)

    def _calculated(self, op: ir.Operation, place: Place) -> ir.Value:
        *maps, result = indexing_maps(op) or []
        loops = {expr.position: each for expr, each in zip(result.results, place, strict=True)}
        operands = []
        for operand, affine_map in zip(op.operands, maps, strict=False):
            at = [subscript(expr, loops) for expr in affine_map.results]
            is_tensor = isinstance(operand.type, ir.RankedTensorType)
            elements = self._of(result.results[-1] in affine_map.results)
            operands.append(elements.at(operand, at) if is_tensor else operand)
        return self._inlined(op, operands, loops)

    def _of(self, is_neighbour: bool) -> Elements:
        """Returns what builds elements of an operand, whose subscripts may not depend on the last dimension."""
        return self

    def _inlined(self, op: ir.Operation, operands: Sequence[ir.Value], loops: Loops) -> ir.Value:
        return inline(op, operands, lambda inner, _: _subscript_of(inner, loops))

    def number(self, op: ir.Operation, place: Place) -> ir.Value:
        return self._whole(arith.ConstantOp(build.element(op.results[0]), graph.constant(op.results[0])).result)

    def _whole(self, value: ir.Value) -> ir.Value:
        """Returns an element, the same at all places, as those of others are."""
        return value

    def bits(self, op: ir.Operation, place: Place) -> ir.Value:
        found, kind = self.at(op.operands[0], place), build.element(op.results[0])
        is_vector = isinstance(found.type, ir.VectorType)
        return arith.BitcastOp(ir.VectorType.get(found.type.shape, kind) if is_vector else kind, found).result

    def expansion(self, op: ir.Operation, place: Place) -> ir.Value:
        places, groups = iter(place), _groups(op, op.results[0])
        return self.at(op.operands[0], [_joined([next(places) for _ in sizes], sizes) for sizes in groups])

    def collapse(self, op: ir.Operation, place: Place) -> ir.Value:
        pairs, sizes = zip(_groups(op, op.operands[0]), place, strict=True), build.static_sizes(op.operands[0])
        places = [each for group, at in pairs for each in split(at, group)]
        return self.at(op.operands[0], places or [build.constant_index(0) for _ in sizes])  # all 1: of a scalar

    def slice(self, op: ir.Operation, place: Place) -> ir.Value:
        offsets, _, strides = graph.slicing(op)
        where = zip(place, offsets, strides, strict=True)
        return self.at(op.operands[0], [_scaled(at, stride, offset) for at, offset, stride in where])

    def concat(self, op: ir.Operation, place: Place) -> ir.Value:
        dim = ir.IntegerAttr(op.attributes["dim"]).value
        sizes = [build.static_sizes(operand)[dim] or 0 for operand in op.operands]
        at = place[dim]
        if len(set(op.operands)) == 1:
            return self.at(op.operands[0], [*place[:dim], split(at, [len(sizes), sizes[0]])[1], *place[dim + 1 :]])
        found: ir.Value | None = None
        for operand, size, end in reversed(list(zip(op.operands, sizes, accumulate(sizes), strict=True))):
            inside = build.clamp(_from_zero(_scaled(at, 1, size - end)), size)
            element = self.at(operand, [*place[:dim], inside, *place[dim + 1 :]])
            is_before = arith.CmpIOp(arith.CmpIPredicate.slt, at, build.constant_index(end)).result
            found = element if found is None else arith.SelectOp(is_before, element, found).result
        assert found is not None
        return found


_FOLLOWED: dict[str, Callable[[Elements, ir.Operation, Place], ir.Value]] = {
    "tensor.expand_shape": Elements.expansion,
    "tensor.collapse_shape": Elements.collapse,
    "tensor.extract_slice": Elements.slice,
    "tensor.concat": Elements.concat,
    "arith.constant": Elements.number,
    "iree_tensor_ext.bitcast": Elements.bits,
}


class Pieces(Elements):
    """Builds vectors of `width` neighbours along the last dimension, from the place of the first one on."""

    def __init__(self, width: int, loaded: Callable[[ir.Value, Place, int], ir.Value]) -> None:
        """Takes what returns so many neighbours of a tensor that is not followed, as a vector."""
        super().__init__(lambda value, place: loaded(value, place, width))
        self._width = width
        self._single = Elements(lambda value, place: vector.ExtractOp(loaded(value, place, 1), [], [0]).result)

    def _of(self, is_neighbour: bool) -> Elements:
        return self if is_neighbour else self._single

    def _inlined(self, op: ir.Operation, operands: Sequence[ir.Value], loops: Loops) -> ir.Value:
        *_, result = indexing_maps(op) or []
        row = ir.AffineDimExpr(result.results[-1]).position

        def rewrite(inner: ir.Operation, given: list[ir.Value]) -> ir.Value | None:
            return _subscript_of(inner, {**loops, row: neighbours}) or self._on_vectors(inner, given)

        steps = vector.StepOp(ir.VectorType.get([self._width], ir.IndexType.get())).result
        neighbours = arith.AddIOp(self._vector(loops[row]), steps).result
        return self._vector(inline(op, operands, rewrite))

    def _whole(self, value: ir.Value) -> ir.Value:
        return self._vector(value)

    def _vector(self, value: ir.Value) -> ir.Value:
        if isinstance(value.type, ir.VectorType):
            return value
        return vector.BroadcastOp(ir.VectorType.get([self._width], value.type), value).result

    def _on_vectors(self, op: ir.Operation, operands: list[ir.Value]) -> ir.Value | None:
        if not any(isinstance(each.type, ir.VectorType) for each in operands):
            return None
        kind = ir.VectorType.get([self._width], op.results[0].type)
        attributes = {name: op.attributes[name] for name in op.attributes}
        return ir.Operation.create(op.name, [kind], [*map(self._vector, operands)], attributes).results[0]


def is_in_pieces(value: ir.Value, width: int) -> bool:
    """Returns whether `width` neighbours of a tensor, from a multiple of it on, are computed from such neighbours."""
    op, sizes = graph.producer(value), build.static_sizes(value)
    if not sizes or not sizes[-1] or sizes[-1] % width:
        return False
    if op is None or not _is_followed(op):
        return True
    operands = _inputs(op)
    if op.name not in _FOLLOWED:
        *maps, result = indexing_maps(op) or []
        last = result.results[-1]
        pairs = zip(operands, maps, strict=False)
        exprs = [(each, list(of.results)) for each, of in pairs if isinstance(each.type, ir.RankedTensorType)]
        return all(
            last not in of or (of.index(last) == len(of) - 1 and is_in_pieces(each, width)) for each, of in exprs
        )
    if op.name == "tensor.extract_slice":
        offsets, _, strides = graph.slicing(op)
        return strides[-1] == 1 and offsets[-1] % width == 0 and is_in_pieces(operands[0], width)
    return all(is_in_pieces(each, width) for each in operands)


def _is_followed(op: ir.Operation) -> bool:
    """Returns whether it is known from which places of operands elements at a place are computed."""
    if op.name == "tensor.extract_slice":
        offsets, _, strides = graph.slicing(op)
        return (
            build.DYNAMIC not in (*offsets, *strides) and len(offsets) == ir.RankedTensorType(op.results[0].type).rank
        )
    if op.name == "tensor.concat":
        dim = ir.IntegerAttr(op.attributes["dim"]).value
        return all(build.static_sizes(operand)[dim] for operand in op.operands)
    if op.name == "arith.constant":
        return build.is_tensor(op.results[0]) and graph.constant(op.results[0]) is not None
    if op.name == "iree_tensor_ext.bitcast":
        return _is_bits(*map(ir.RankedTensorType, (op.operands[0].type, op.results[0].type)))
    if op.name in graph.RESHAPES:
        groups = _groups(op, op.results[0] if op.name == "tensor.expand_shape" else op.operands[0])
        return not any(None in group[i:] for group in groups for i in range(1, len(group)) if group[i - 1] != 1)
    return is_calculation(op)


def _is_bits(floats: ir.RankedTensorType, integers: ir.RankedTensorType) -> bool:
    """Returns whether a bitcast takes each float as an integer."""
    kinds = floats.element_type, integers.element_type
    is_of_each = isinstance(kinds[0], ir.FloatType) and isinstance(kinds[1], ir.IntegerType)
    return is_of_each and kinds[0].width == kinds[1].width >= _BYTE and floats.shape == integers.shape


def _subscript_of(op: ir.Operation, loops: Loops) -> ir.Value | None:
    """Returns the subscript that an operation in a body is, if it is one of these loops."""
    return loops.get(ir.IntegerAttr(op.attributes["dim"]).value) if op.name == _SUBSCRIPT else None


def _groups(op: ir.Operation, value: ir.Value) -> list[list[int | None]]:
    """Returns the sizes of dimensions that a reshape puts together, or one that it splits."""
    sizes = build.static_sizes(value)
    return [[sizes[i] for i in group] for group in reassociation(op)]


def followed(value: ir.Value) -> list[ir.Operation]:
    """Returns the operations that elements of a tensor are followed through, users before producers."""
    return list(graph.producers([value], _is_followed, _inputs))


def leaves(values: Sequence[ir.Value]) -> list[ir.Value]:
    """Returns what elements of tensors are computed from that is not followed itself."""
    ops = [op for value in values for op in followed(value)]
    taken = [operand for op in ops for operand in _inputs(op)]
    return [each for each in dict.fromkeys([*values, *taken]) if (op := graph.producer(each)) is None or op not in ops]


def _inputs(op: ir.Operation) -> list[ir.Value]:
    """Returns the operands from which elements are computed, without a linalg operation's init tensor, and sizes."""
    is_linalg = op.name.startswith("linalg.")
    return list(op.operands)[:-1] if is_linalg else [each for each in op.operands if build.is_tensor(each)]


def split(at: ir.Value, sizes: Sequence[int | None]) -> list[ir.Value]:
    """Returns the subscripts of the element of this number, in order, of a tensor of these sizes.

    Only the first that is not 1 may be dynamic.
    """
    found = []
    for i, size in enumerate(sizes):
        inner = math.prod(each or 0 for each in sizes[i + 1 :])
        whole = ir.AffineExpr.get_floor_div(ir.AffineExpr.get_dim(0), inner)
        is_outermost = all(each == 1 for each in sizes[:i])
        expr = ir.AffineExpr.get_constant(0) if size == 1 else whole if is_outermost else whole % (size or 0)
        found.append(build.apply(expr, [at]))
    return found


def subscript(expr: ir.AffineExpr, loops: Loops) -> ir.Value:
    """Returns the subscript that an expression of an indexing map is."""
    if isinstance(expr, ir.AffineDimExpr):
        return loops[expr.position]
    return build.constant_index(expr.value)


def _joined(place: Place, sizes: Sequence[int | None]) -> ir.Value:
    expr = ir.AffineExpr.get_constant(0)
    for i, size in enumerate(sizes):
        expr = expr * (size or 0) + ir.AffineExpr.get_dim(i) if size != 1 else expr
    return build.apply(expr, place)


def _scaled(at: ir.Value, factor: int, more: int) -> ir.Value:
    return at if (factor, more) == (1, 0) else build.apply(ir.AffineExpr.get_dim(0) * factor + more, [at])


def _from_zero(at: ir.Value) -> ir.Value:
    return arith.MaxSIOp(at, build.constant_index(0)).result
