"""Converts computations over all experts and tokens to computations over blocks of rows, each of one expert.

Dimensions [E, T] of values become [B, BM]: operations are copied with those sizes, up to what has one of the two alone.
That is gathered: by the expert of each block, or by the token of each row. A dimension may also be both, E · T.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp import moe
from mxcomp.formats import MX_BLOCK
from mxcomp.mlir import build, graph
from mxcomp.mlir.build import static_sizes
from mxcomp.mlir.inline import constant, inlined
from mxcomp.mlir.linalg_ops import indexing_maps, iterators, reassociation
from mxcomp.mlir.loops import names, tabled
from mxcomp.routing import Extent, Routing

_BYTE = 8


class NotGroupedError(Exception):
    """A value depends on experts or tokens in a way that blocks do not allow."""


class Blocks:
    """Values for the blocks of a routing.

    Attributes:
        has_mx: Whether one of them is made of MX elements.
    """

    def __init__(self, routing: Routing, extent: Extent) -> None:
        self.routing, self.extent = routing, extent
        self.has_mx = False
        self._known: dict[tuple[ir.Value, int | None, int | None], ir.Value] = {}

    def value(self, value: ir.Value, expert: int | None, token: int | None) -> ir.Value:
        """Returns the value for blocks and rows of a tensor whose dimensions `expert` and `token` are E and T. Raises
        NotGroupedError.

        Where they are one dimension, it is E · T.
        """
        key = value, expert, token
        if key not in self._known:
            self._check(value, expert, token)
            self._known[key] = self._rows(value, token) if expert is None else self._made(value, expert, token)
        return self._known[key]

    def _check(self, value: ir.Value, expert: int | None, token: int | None) -> None:
        sizes, experts, tokens = static_sizes(value), self.extent.experts, self.extent.tokens
        wanted = {expert: experts, token: tokens} if expert != token else {expert: experts * tokens}
        if None in sizes or any(sizes[dim] != size for dim, size in wanted.items() if dim is not None):
            raise NotGroupedError(f"{value.type}: expected static sizes, {experts} experts and {tokens} tokens")

    def _rows(self, value: ir.Value, token: int | None) -> ir.Value:
        """Gathers by the token of each row: [B, BM, …]."""
        return self._gathered(value, token, self.routing.slots, self.extent.top_k)

    def _gathered(self, value: ir.Value, dim: int | None, ids: ir.Value, divisor: int) -> ir.Value:
        if dim != 0:
            raise NotGroupedError("experts or tokens are not the first dimension")
        kind, (_, *inner) = build.element(value), static_sizes(value)
        if not build.is_narrow(kind) or isinstance(kind, ir.IntegerType):
            return moe.gather(value, ids, divisor)
        self.has_mx = True
        *outer, last = (size or 0 for size in inner)
        width = last * ir.FloatType(kind).width
        if width % _BYTE or (ir.FloatType(kind).width == 6 and last % MX_BLOCK):
            raise NotGroupedError("rows are no whole bytes")
        stored = build.tensor_type([static_sizes(value)[0], *outer, width // _BYTE], "i8")
        found = moe.gather(build.bitcast(value, stored), ids, divisor)
        return build.bitcast(found, build.tensor_type([*static_sizes(ids), *inner], kind))

    def _made(self, value: ir.Value, expert: int, token: int | None) -> ir.Value:
        op = graph.producer(value)
        if op is not None and op.name in _MADE:
            return _MADE[op.name](self, op, expert, token)
        if op is not None and indexing_maps(op) is not None:
            return self._copied(op, ir.OpResult(value).result_number, expert, token)
        if token is not None:
            raise NotGroupedError(f"{'an argument' if op is None else op.name} has experts and tokens")
        return self._gathered(value, expert, self.routing.experts, 1)

    def _empty(self, op: ir.Operation, expert: int, token: int | None) -> ir.Value:
        return build.empty(self._type(op.results[0], expert, token))

    def _filled(self, op: ir.Operation, expert: int, token: int | None) -> ir.Value:
        return build.filled(constant(op.operands[0]), self._type(op.results[0], expert, token))

    def _barrier(self, op: ir.Operation, expert: int, token: int | None) -> ir.Value:
        return build.barrier(self.value(op.operands[0], expert, token))

    def _shape(self, value: ir.Value, expert: int, token: int | None) -> list[int]:
        shape = [size or 0 for size in static_sizes(value)]
        shape[expert] = self.extent.blocks
        if token is not None:
            shape[token] = self.extent.block_m * (self.extent.blocks if token == expert else 1)
        return shape

    def _type(self, value: ir.Value, expert: int, token: int | None) -> ir.RankedTensorType:
        return build.tensor_type(self._shape(value, expert, token), build.element(value))

    def _reshaped(self, op: ir.Operation, expert: int, token: int | None) -> ir.Value:
        result, groups = op.results[0], reassociation(op)
        expands = op.name == "tensor.expand_shape"
        sizes = static_sizes(result if expands else op.operands[0])
        wanted = list(dict.fromkeys(dim for dim in (expert, token) if dim is not None))
        parts = [next(each for each in groups if dim in each) if expands else groups[dim] for dim in wanted]
        large = [[i for i in part if sizes[i] != 1] for part in parts]
        if expands:
            if any(each not in ([dim], wanted) for each, dim in zip(large, wanted, strict=True)):
                raise NotGroupedError("experts or tokens are part of another dimension")
            before = [groups.index(part) for part in parts]
        else:
            before = [i for each in large for i in each]
            if len(before) != (1 if token is None else 2):
                raise NotGroupedError("experts or tokens are part of another dimension")
        source = self.value(op.operands[0], before[0], None if token is None else before[-1])
        kind = self._type(result, expert, token)
        if expands:
            return tensor.ExpandShapeOp(kind, source, groups, [], list(kind.shape)).result
        return tensor.CollapseShapeOp(kind, source, groups).result

    def _sliced(self, op: ir.Operation, expert: int, token: int | None) -> ir.Value:
        whole, (offsets, sizes, steps) = static_sizes(op.operands[0]), graph.slicing(op)
        is_static = len(op.operands) == 1 and len(sizes) == len(static_sizes(op.results[0]))
        kept = all((offsets[d], sizes[d], steps[d]) == (0, whole[d], 1) for d in (expert, token) if d is not None)
        if not is_static or not kept:
            raise NotGroupedError("a slice of experts or tokens")
        kind = self._type(op.results[0], expert, token)
        source = self.value(op.operands[0], expert, token)
        return tensor.ExtractSliceOp(kind, source, [], [], [], offsets, list(kind.shape), steps).result

    def _bitcast(self, op: ir.Operation, expert: int, token: int | None) -> ir.Value:
        source, result = op.operands[0], op.results[0]
        leading = max(dim for dim in (expert, token) if dim is not None) + 1
        if static_sizes(source)[:leading] != static_sizes(result)[:leading] or len(op.operands) != 1:
            raise NotGroupedError("a bitcast of experts or tokens")
        self.has_mx |= build.is_narrow(build.element(result))
        return build.bitcast(self.value(source, expert, token), self._type(result, expert, token))

    def _copied(self, op: ir.Operation, number: int, expert: int, token: int | None) -> ir.Value:
        """Copies a linalg operation with other sizes, and remembers all its results."""
        maps = indexing_maps(op) or []
        outs = maps[len(maps) - len(op.results) :]
        loop = _loop(outs[number].results[expert])
        row = None if token is None else _loop(outs[number].results[token])
        dims = [(_dim(each, loop), None if row is None else _dim(each, row)) for each in outs]
        _check_body(op, [loop, *([] if row is None else [row])])
        if any(first is None or (row is not None and second is None) for first, second in dims):
            raise NotGroupedError("a sum over experts or tokens")
        operands, new_maps = [], []
        for operand, subscripts in zip(op.operands, maps, strict=True):
            given, changed = self._operand(operand, subscripts, loop, row)
            operands.append(given)
            new_maps.append(changed)
        kinds = [self._type(result, *_known(pair)) for result, pair in zip(op.results, dims, strict=True)]
        count = len(operands) - len(kinds)
        made = build.generics(
            kinds, operands[:count], operands[count:], new_maps, iterators(op), lambda *given: inlined(op, given)
        )
        results = list(made.results)
        if row is not None and "reduction" in iterators(op) and len(results) == 1:
            results = [self._hidden(results[0])] if dims[0] == (0, 1) else results
        for old, new, pair in zip(op.results, results, dims, strict=True):
            self._known[old, pair[0], pair[1]] = new
        return results[number]

    def _operand(
        self, operand: ir.Value, subscripts: ir.AffineMap, loop: int, row: int | None
    ) -> tuple[ir.Value, ir.AffineMap]:
        if not isinstance(operand.type, ir.RankedTensorType):
            return operand, subscripts
        self.has_mx |= build.is_narrow(build.element(operand)) and isinstance(build.element(operand), ir.FloatType)
        expert, token = _dim(subscripts, loop), None if row is None else _dim(subscripts, row)
        if expert is None and token is None:
            return operand, subscripts
        given = self.value(operand, expert, token)
        if expert is not None:
            return given, subscripts
        dims = [ir.AffineExpr.get_dim(loop), *subscripts.results]
        return given, ir.AffineMap.get(subscripts.n_dims, 0, dims)

    def _hidden(self, product: ir.Value) -> ir.Value:
        """Marks a product as unread where a block has no expert: kernels need not compute it there."""
        shape, kind = static_sizes(product), build.element(product)
        if not isinstance(kind, ir.FloatType):
            return product
        loops = names(len(shape))

        def body(element: ir.Value, expert: ir.Value, _: ir.Value) -> ir.Value:
            return moe.where_expert([element], expert)[0]

        return tabled(loops, shape, kind, [(loops, product), (loops[0], self.routing.experts)], body)


_MADE: Mapping[str, Callable[[Blocks, ir.Operation, int, int | None], ir.Value]] = {
    "tensor.empty": Blocks._empty,
    "linalg.fill": Blocks._filled,
    "util.optimization_barrier": Blocks._barrier,
    **dict.fromkeys(graph.RESHAPES, Blocks._reshaped),
    "tensor.extract_slice": Blocks._sliced,
    "iree_tensor_ext.bitcast": Blocks._bitcast,
}


def _known(pair: tuple[int | None, int | None]) -> tuple[int, int | None]:
    expert, token = pair
    assert expert is not None
    return expert, token


def _loop(expr: ir.AffineExpr) -> int:
    if not isinstance(expr, ir.AffineDimExpr):
        raise NotGroupedError("subscripts that are no loops")
    return ir.AffineDimExpr(expr).position


def _dim(subscripts: ir.AffineMap, loop: int) -> int | None:
    """Returns the dimension that a loop indexes alone, if any. Raises NotGroupedError where other loops contribute to
    it."""
    found = [i for i, expr in enumerate(subscripts.results) if not isinstance(expr, ir.AffineConstantExpr)]
    dims = [i for i in found if _loop(subscripts.results[i]) == loop]
    if len(dims) > 1:
        raise NotGroupedError("a diagonal")
    return dims[0] if dims else None


def _check_body(op: ir.Operation, loops: Sequence[int]) -> None:
    """Raises NotGroupedError for a body that uses the index of an expert or token, or outside values."""
    for inner in graph.walk(op):
        if inner.name == "linalg.index" and ir.IntegerAttr(inner.attributes["dim"]).value in loops:
            raise NotGroupedError("the number of an expert or token is part of what is computed")
    for user, i in graph.inputs(op):
        source = graph.producer(user.operands[i])
        if user != op and (source is None or source.name != "arith.constant"):
            raise NotGroupedError("a value from outside is read")
