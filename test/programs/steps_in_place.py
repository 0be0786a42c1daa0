"""Operations that IREE does in place, on tensors that several of them share, or that are two operands of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from drawing import Drawing
from elementwise import BINARY, apply
from iree.compiler import ir
from iree.compiler.dialects import arith, linalg, scf, tensor
from nodes import FLOATS, Node, float_node, summed
from steps_matmul import floats

from mxcomp.mlir import build

EXT = "iree_linalg_ext"
LARGEST = 400_000
"""Steps of the sorts of all rows, which IREE does by exchanging neighbours."""


def _i64(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _operation(
    name: str,
    operands: Sequence[ir.Value],
    written: Sequence[ir.Value],
    scalars: Sequence[ir.Type],
    body: Callable[..., Sequence[ir.Value]],
    **attributes: ir.Attribute,
) -> list[ir.Value]:
    """An operation of linalg_ext that writes over `written`; `scalars` are arguments of its body."""
    kinds, values = [value.type for value in written], [*operands, *written]
    op = ir.Operation.create(f"{EXT}.{name}", kinds, values, attributes, regions=1 if scalars else 0)
    if scalars:
        block = op.regions[0].blocks.append(*scalars, arg_locs=[op.location] * len(scalars))
        with ir.InsertionPoint(block):
            ir.Operation.create(f"{EXT}.yield", [], list(body(*block.arguments)))
    return list(op.results)


def element(node: Node) -> ir.Type:
    return ir.RankedTensorType(node.ir.type).element_type


def made(like: Node, kind: str, body: Callable[[ir.Value], ir.Value], data: np.ndarray) -> Node:
    """A tensor of another's shape that is made of the places of its elements along the last axis."""
    rank = len(like.shape)
    result = build.tensor_type(build.static_sizes(like.ir), kind)
    init = build.empty(result, build.dynamic_sizes(like.ir))
    i32 = ir.IntegerType.get_signless(32)
    scalar = lambda _: body(arith.IndexCastOp(i32, linalg.IndexOp(rank - 1).result).result)  # noqa: E731
    maps = [ir.AffineMap.get_identity(rank)]
    value = build.generic(result, [], init, maps, ["parallel"] * rank, scalar).results[0]
    return Node(value, np.broadcast_to(data, like.shape).astype(np.float64), kind)


def places(like: Node, kind: str = "i32") -> Node:
    """0, 1, … along the last axis."""
    body = (lambda i: i) if kind == "i32" else lambda i: arith.SIToFPOp(ir.F32Type.get(), i).result
    return made(like, kind, body, np.arange(like.shape[-1]))


def zeros(like: Node) -> Node:
    result = ir.RankedTensorType(like.ir.type)
    return Node(build.zero_filled(result, build.dynamic_sizes(like.ir)), np.zeros(like.shape), like.kind)


def as_floats(node: Node) -> Node:
    """Integers as f32."""
    if node.kind in FLOATS:
        return node
    rank = len(node.shape)
    result = build.tensor_type(build.static_sizes(node.ir), "f32")
    init, maps = build.empty(result, build.dynamic_sizes(node.ir)), [ir.AffineMap.get_identity(rank)] * 2
    body = lambda x, _: arith.SIToFPOp(ir.F32Type.get(), x).result  # noqa: E731
    return Node(build.generic(result, [node.ir], init, maps, ["parallel"] * rank, body).results[0], node.data, "f32")


def sort(key: Node, *others: Node, descending: bool = False) -> list[Node]:
    """Rows sorted by `key`; what is equal by the first of the others, which are places, where there are others."""

    def before(a: ir.Value, b: ir.Value, *rest: ir.Value) -> list[ir.Value]:
        kind = arith.CmpFPredicate.OGT if descending else arith.CmpFPredicate.OLT
        less = arith.CmpFOp(kind, a, b).result
        if not rest:
            return [less]
        same = arith.CmpFOp(arith.CmpFPredicate.OEQ, a, b).result
        earlier = arith.CmpIOp(arith.CmpIPredicate.slt, rest[0], rest[1]).result
        return [arith.OrIOp(less, arith.AndIOp(same, earlier).result).result]

    axis, values = len(key.shape) - 1, [key.ir, *(other.ir for other in others)]
    segments = ir.DenseI32ArrayAttr.get([0, len(values)])
    scalars = [element(node) for node in (key, *others) for _ in range(2)]
    results = _operation("sort", [], values, scalars, before, dimension=_i64(axis), operandSegmentSizes=segments)
    keys = (-key.data if descending else key.data, *(node.data for node in others[:1]))
    order = np.lexsort(keys[::-1], axis=-1)
    return [
        node.at(value, lambda array: np.take_along_axis(array, order, -1))
        for node, value in zip((key, *others), results, strict=True)
    ]


def scatter(rows: Node, target: Node, ids: Node, add: bool = False) -> Node:
    """Rows put into, or added to, the rows of `target` that a permutation says."""

    def body(new: ir.Value, old: ir.Value) -> list[ir.Value]:
        return [arith.AddFOp(new, old).result if add else new]

    attributes = {"dimension_map": ir.DenseI64ArrayAttr.get([0]), "unique_indices": ir.BoolAttr.get(True)}
    scalars = [element(rows), element(target)]
    (value,) = _operation("scatter", [rows.ir, ids.ir], [target.ir], scalars, body, **attributes)
    found = np.empty_like(rows.data)
    found[ids.data[:, 0].astype(int)] = rows.data
    return float_node(value, found + target.data if add else found, "f32")


def insert(source: Node, target: Node, start: int, offset: int, width: int) -> Node:
    """Columns of one tensor in place of columns of another."""
    rank = len(source.shape)
    dynamic = ir.ShapedType.get_dynamic_size()
    sizes = [size or dynamic for size in build.static_sizes(source.ir)[:-1]] + [width]
    given = [build.dim(source.ir, i) for i in range(rank - 1) if sizes[i] == dynamic]
    known = [None if size == dynamic else size for size in sizes]
    taken = build.tensor_type(known, source.kind)
    first, at = [0] * (rank - 1) + [start], [0] * (rank - 1) + [offset]
    part = tensor.ExtractSliceOp(taken, source.ir, [], given, [], first, sizes, [1] * rank).result
    value = tensor.InsertSliceOp(part, target.ir, [], given, [], at, sizes, [1] * rank).result
    data = target.data.copy()
    data[..., offset : offset + width] = source.data[..., start : start + width]
    return Node(value, data, source.kind)


def scan(source: Node, target: Node, inclusive: bool = True) -> Node:
    """Running sums along the last axis, written over another tensor, with or without the element itself."""
    kind = ir.RankedTensorType(source.ir.type)
    outer = build.tensor_type(build.static_sizes(source.ir)[:-1], source.kind)
    start = build.zero_filled(outer, build.dynamic_sizes(source.ir))
    attributes = {"dimension": _i64(kind.rank - 1), "inclusive": ir.BoolAttr.get(inclusive)}
    scalars = [kind.element_type] * 2
    sums = lambda a, b: [arith.AddFOp(a, b).result]  # noqa: E731
    value, _ = _operation("scan", [source.ir], [target.ir, start], scalars, sums, **attributes)
    width = source.shape[-1]
    magnitude = np.abs(source.data).cumsum(-1)
    data = source.data.cumsum(-1) - (0 if inclusive else source.data)
    return summed(value, data, magnitude, np.full(source.shape, 0.5), width, source.kind)


def store(source: Node, target: Node) -> Node:
    """The last two columns, the other way round, in place of the first two."""
    width = source.shape[-1]
    index = ir.IndexType.get()

    def body(row: ir.Value, column: ir.Value) -> list[ir.Value]:
        place = arith.SubIOp(build.constant_index(width - 1), column).result
        return [row, place, arith.CmpIOp(arith.CmpIPredicate.slt, place, build.constant_index(2)).result]

    (value,) = _operation("map_store", [source.ir], [target.ir], [index] * 2, body)
    data = target.data.copy()
    data[:, :2] = source.data[:, : -3 if width > 2 else None : -1]
    return Node(value, data, source.kind)


def fft(real: Node, imaginary: Node, has_coefficients: bool = True) -> list[Node]:
    """The first step of a Fourier transform: sums and differences of neighbours."""
    coefficients = [_vector(1.0), _vector(0.0)] if has_coefficients else []
    segments = ir.DenseI32ArrayAttr.get([1, *[int(has_coefficients)] * 2, 1, 1])
    inputs, written = [build.constant_index(1), *coefficients], [real.ir, imaginary.ir]
    results = _operation("fft", inputs, written, [], lambda: [], operandSegmentSizes=segments)

    def change(data: np.ndarray) -> np.ndarray:
        even, odd = data[:, 0::2], data[:, 1::2]
        return np.stack([even + odd, even - odd], -1).reshape(data.shape)

    return [float_node(value, change(node.data), "f32") for node, value in zip((real, imaginary), results, strict=True)]


def topk(source: Node, count: int, version: str = "topk") -> list[Node]:
    """The largest of each row, and their places; where equal, those in front."""
    kinds = [build.tensor_type([*build.static_sizes(source.ir)[:-1], count], kind) for kind in ("f32", "i32")]
    outer = build.dynamic_sizes(source.ir)
    least = [arith.ConstantOp(kinds[0].element_type, -np.inf).result, arith.ConstantOp(kinds[1].element_type, 0).result]
    tables = [build.filled(value, kind, outer) for value, kind in zip(least, kinds, strict=True)]
    attributes: dict[str, ir.Attribute] = {"dimension": _i64(1)}
    if version == "topk_v2":
        attributes |= {"is_sorted": ir.UnitAttr.get(), "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 1, 1])}
    larger = lambda a, b: [arith.CmpFOp(arith.CmpFPredicate.OGT, a, b).result]  # noqa: E731
    values, ids = _operation(version, [source.ir], tables, [element(source)] * 2, larger, **attributes)
    order = np.argsort(-source.data, axis=-1, kind="stable")[..., :count]
    return [source.at(values, lambda array: np.take_along_axis(array, order, -1)), Node(ids, order * 1.0, "i32")]


def largest(source: Node) -> list[Node]:
    """The largest of each row and its place, the first of equal ones, as one operation with two results."""
    rows, outer = build.static_sizes(source.ir)[:-1], build.dynamic_sizes(source.ir)
    rank, i32 = len(rows), ir.IntegerType.get_signless(32)
    least = [arith.ConstantOp(element(source), -np.inf).result, arith.ConstantOp(i32, 0).result]
    starts = [build.filled(value, build.tensor_type(rows, value.type), outer) for value in least]
    whole = ir.AffineMap.get_identity(rank + 1)
    maps = [ir.AffineMapAttr.get(each) for each in (whole, *[whole.get_major_submap(rank)] * 2)]
    iterators = [build.iterator_type(each) for each in (*["parallel"] * rank, "reduction")]
    kinds, lists = [start.type for start in starts], (ir.ArrayAttr.get(maps), ir.ArrayAttr.get(iterators))
    op = linalg.GenericOp(kinds, [source.ir], starts, *lists)
    block = op.regions[0].blocks.append(element(source), *(value.type for value in least))
    with ir.InsertionPoint(block):
        x, most, place = block.arguments
        at = arith.IndexCastOp(i32, linalg.IndexOp(rank).result).result
        above = arith.CmpFOp(arith.CmpFPredicate.OGT, x, most).result
        linalg.YieldOp([arith.SelectOp(above, x, most).result, arith.SelectOp(above, at, place).result])
    values, ids = op.results
    return [source.at(values, lambda array: array.max(-1)), Node(ids, source.data.argmax(-1) * 1.0, "i32")]


def _vector(value: float) -> ir.Value:
    kind = build.tensor_type([1], "f32")
    return arith.ConstantOp(kind, ir.DenseElementsAttr.get(np.array([value], np.float32))).result


def permutation(drawing: Drawing, like: Node) -> Node:
    """Ids of the rows of a matrix, each once."""
    height = like.shape[0]
    ids = drawing.dice.numbers.permutation(height).astype(np.int32)[:, None]
    dynamic = () if build.static_sizes(like.ir)[0] is not None else (0,)
    return Node(drawing.value(ids, "i32", dynamic, "argument"), ids.astype(np.float64), "i32")


KINDS = {"sort": 4, "argsort": 4, "scatter": 2, "insert": 2, "scan": 2, "store": 1, "fft": 1}


def in_place(drawing: Drawing, node: Node) -> Node:
    """The sum of what two to four operations make of tensors that they share, and of these tensors."""
    dice = drawing.dice
    if len(node.shape) != 2 or node.kind != "f32" or not (node.exact and node.finite) or np.abs(node.data).max() > 512:
        return node
    height, width = node.shape
    sizes = build.static_sizes(node.ir)
    if width < 2 or sizes[1] is None:
        return node
    kinds = {kind: weight for kind, weight in KINDS.items() if _fits(kind, height, width)}
    dynamic = tuple(i for i, size in enumerate(sizes) if size is None)
    other = floats(drawing, node.shape, "f32", "", dynamic)
    shared = [node, other, places(node, "f32"), zeros(node), apply(BINARY["add"], node, other)]
    if not all(each.exact for each in shared):
        return node
    order, ids = places(node), permutation(drawing, node)
    steps = dice.pick({1: 3, 2: 1}) if node.static else 1  # loops over dynamic tensors are none of IREE's
    results = list(shared)
    for _ in range(dice.pick({2: 2, 3: 2, 4: 1})):
        kind = dice.noted("in place", kinds)
        a, b = (dice.pick(shared) for _ in range(2))
        if dice.chance(0.25, "one tensor as two operands"):
            b = a
        draw = lambda kind=kind, a=a, b=b: _drawn(dice, kind, a, b, order, ids)  # noqa: E731
        found = _repeated(draw, steps, node) if steps > 1 else draw()
        results += found
        if dice.chance(0.3, "written over again"):
            shared += [each for each in found if each.kind == "f32" and each.exact][:1]
    total = as_floats(results[0])
    for each in results[1:]:
        total = apply(BINARY["add"], total, as_floats(each))
    return total


def _fits(kind: str, height: int, width: int) -> bool:
    is_small = height * width**2 <= LARGEST
    return {"sort": is_small, "argsort": is_small, "fft": width.bit_count() == 1}.get(kind, True)


def _drawn(dice: object, kind: str, a: Node, b: Node, order: Node, ids: Node) -> list[Node]:
    chance = dice.chance  # type: ignore[attr-defined]
    match kind:
        case "sort":
            return sort(a, descending=chance(0.5))
        case "argsort":
            found = sort(a, order, *([order] if chance(0.3, "sorted twice") else []), descending=chance(0.5))
            return found[1:] if chance(0.5) else found
        case "scatter":
            return [scatter(a, b, ids, chance(0.5))]
        case "insert":
            width = max(1, a.shape[1] // 2)
            return [insert(a, b, 0, a.shape[1] - width, width)]
        case "scan":
            return [scan(a, b, chance(0.7))]
        case "store":
            return [store(a, b)]
    return fft(a, b, chance(0.5))


def _repeated(draw: Callable[[], list[Node]], steps: int, like: Node) -> list[Node]:
    """What a loop adds up whose steps all do the same with tensors from outside of it."""
    start = zeros(like)
    bounds = [build.constant_index(number) for number in (0, steps, 1)]
    op = scf.ForOp(*bounds, iter_args=[start.ir])
    with ir.InsertionPoint(op.body):
        step = Node(op.inner_iter_args[0], start.data, "f32")
        for node in draw():
            step = apply(BINARY["add"], step, as_floats(node))
        scf.YieldOp([step.ir])
    if not step.exact:
        return [replace(step, ir=op.results[0], error=np.full(like.shape, np.nan))]
    return [float_node(op.results[0], steps * step.data, "f32")]
