"""Small helpers over the MLIR bindings, so that passes read as the IR they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import affine, arith, flow, iree_tensor_ext, tensor

from mxcomp.mlir import graph, linalg

DYNAMIC = ir.ShapedType.get_dynamic_size()


def tensor_type(
    shape: Iterable[int | None], element: ir.Type | str, encoding: ir.Attribute | None = None
) -> ir.RankedTensorType:
    """Returns a ranked tensor type; None is a dynamic size."""
    element = ir.Type.parse(element) if isinstance(element, str) else element
    sizes = [DYNAMIC if size is None else size for size in shape]
    return ir.RankedTensorType.get(sizes, element, encoding=encoding)


def is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def static_sizes(value: ir.Value) -> list[int | None]:
    """Returns the sizes of a ranked tensor, None where dynamic. None for a scalar, which linalg operations may take
    too."""
    if not isinstance(value.type, ir.RankedTensorType):
        return []
    tensor_ = ir.RankedTensorType(value.type)
    return [None if tensor_.is_dynamic_dim(i) else tensor_.get_dim_size(i) for i in range(tensor_.rank)]


def element(value: ir.Value) -> ir.Type:
    """Returns the element type of a ranked tensor; of a scalar its own type."""
    return ir.RankedTensorType(value.type).element_type if isinstance(value.type, ir.RankedTensorType) else value.type


def is_narrow(kind: ir.Type) -> bool:
    """Returns whether a type is one that elements or scales are stored in: 8 bits or less."""
    return isinstance(kind, ir.FloatType | ir.IntegerType) and kind.width <= 8


def is_sub_byte(kind: ir.Type) -> bool:
    """Returns whether a type takes less than a byte in memory. Booleans and integers of odd widths take whole bytes."""
    if isinstance(kind, ir.IntegerType):
        return kind.width in (2, 4)
    return isinstance(kind, ir.FloatType) and kind.width < 8


def i64_array(values: Iterable[int]) -> ir.ArrayAttr:
    i64 = ir.IntegerType.get_signless(64)
    return ir.ArrayAttr.get([ir.IntegerAttr.get(i64, value) for value in values])


def constant_index(value: int) -> ir.Value:
    return arith.ConstantOp(ir.IndexType.get(), value).result


def as_index(value: ir.Value) -> ir.Value:
    """Returns a size that is an index or an integer, as an index."""
    index = ir.IndexType.get()
    return value if value.type == index else arith.IndexCastOp(index, value).result


def dim(value: ir.Value, index: int) -> ir.Value:
    """Returns the size of a dimension: `tensor.dim`, or what the tensor is known to have."""
    op = graph.producer(value, "flow.tensor.tie_shape")
    if op is not None and (sizes := static_sizes(value))[index] is None:
        return op.operands[1 + sizes[:index].count(None)]
    return tensor.DimOp(value, constant_index(index)).result


def dynamic_sizes(value: ir.Value) -> list[ir.Value]:
    """Returns `tensor.dim` of each dynamic dimension."""
    shape = ir.RankedTensorType(value.type)
    return [dim(value, i) for i in range(shape.rank) if shape.is_dynamic_dim(i)]


def bitcast(
    value: ir.Value,
    result: ir.Type,
    sizes: Sequence[ir.Value] | None = None,
    result_sizes: Sequence[ir.Value] | None = None,
) -> ir.Value:
    """Returns `iree_tensor_ext.bitcast`, also across ranks. `sizes` are the dynamic sizes of the source, and of the
    result."""
    if value.type == result:
        return value
    if sizes is None:
        sizes = dynamic_sizes(value)
    return iree_tensor_ext.BitCastOp(result, value, sizes, sizes if result_sizes is None else result_sizes).result


def set_encoding(value: ir.Value, encoding: ir.Attribute, dims: Sequence[ir.Value]) -> ir.Value:
    """Returns `iree_encoding.set_encoding`; `dims` are the dynamic sizes that the encoding refers to."""
    plain = ir.RankedTensorType(value.type)
    encoded = ir.RankedTensorType.get(plain.shape, plain.element_type, encoding=encoding)
    return ir.Operation.create("iree_encoding.set_encoding", results=[encoded], operands=[value, *dims]).result


def unset_encoding(
    value: ir.Value, plain: ir.RankedTensorType, sizes: Sequence[ir.Value], dims: Sequence[ir.Value]
) -> ir.Value:
    """Returns `iree_encoding.unset_encoding`. `sizes` are the dynamic sizes of the result, `dims` those of the
    encoding."""
    return ir.Operation.create(
        "iree_encoding.unset_encoding",
        results=[plain],
        operands=[value, *sizes, *dims],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(sizes), len(dims)])},
    ).result


def product(values: Sequence[ir.Value]) -> ir.Value:
    """Returns the product of sizes."""
    result = values[0]
    for value in values[1:]:
        result = arith.MulIOp(result, value).result
    return result


def barrier(value: ir.Value) -> ir.Value:
    """Returns the value behind an optimisation barrier that keeps its sizes known."""
    hidden = ir.Operation.create("util.optimization_barrier", results=[value.type], operands=[value]).result
    sizes = dynamic_sizes(value) if isinstance(value.type, ir.RankedTensorType) else []
    return tie_shape(hidden, sizes) if sizes else hidden


def hide(value: ir.Value, uses: Iterable[ir.OpOperand]) -> None:
    """Makes these uses of an operation's result read it behind an optimisation barrier."""
    op, uses = value.owner.operation, list(uses)
    with op.location, ir.InsertionPoint.after(op):
        hidden = barrier(value)
    for use in uses:
        use.owner.operation.operands[use.operand_number] = hidden


def tie_shape(value: ir.Value, sizes: Sequence[ir.Value]) -> ir.Value:
    """Returns the same tensor, known to have these dynamic sizes."""
    return flow.TensorTieShapeOp(value, sizes).result


def empty(result: ir.RankedTensorType, sizes: Sequence[ir.Value] = ()) -> ir.Value:
    return ir.Operation.create("tensor.empty", results=[result], operands=list(sizes)).result


def filled(scalar: ir.Value, result: ir.RankedTensorType, sizes: Sequence[ir.Value] = ()) -> ir.Value:
    op = linalg.FillOp([result], [scalar], [empty(result, sizes)])
    linalg.fill_builtin_region(op.operation)
    return op.results[0]


def zero_filled(result: ir.RankedTensorType, sizes: Sequence[ir.Value] = ()) -> ir.Value:
    zero = 0.0 if isinstance(result.element_type, ir.FloatType) else 0
    return filled(arith.ConstantOp(result.element_type, zero).result, result, sizes)


def generic(
    result: ir.RankedTensorType,
    inputs: Sequence[ir.Value],
    init: ir.Value,
    maps: Sequence[ir.AffineMap],
    iterators: Sequence[str],
    body: Callable[..., ir.Value],
) -> ir.Operation:
    """Returns a `linalg.generic` with one result; `body` takes the block arguments and returns the value to yield."""
    return generics([result], inputs, [init], maps, iterators, lambda *arguments: [body(*arguments)])


def generics(
    results: Sequence[ir.RankedTensorType],
    inputs: Sequence[ir.Value],
    inits: Sequence[ir.Value],
    maps: Sequence[ir.AffineMap],
    iterators: Sequence[str],
    body: Callable[..., Sequence[ir.Value]],
) -> ir.Operation:
    """Returns a `linalg.generic` with any results; `body` takes the block arguments and returns the values to yield."""
    types = ir.ArrayAttr.get([iterator_type(kind) for kind in iterators])
    op = linalg.GenericOp(results, inputs, inits, ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]), types)
    elements = [element(value) for value in (*inputs, *inits)]
    block = op.regions[0].blocks.append(*elements)
    with ir.InsertionPoint(block):
        linalg.YieldOp(body(*block.arguments))
    return op.operation


def iterator_type(kind: str) -> ir.Attribute:
    """Returns a `#linalg.iterator_type`: "parallel" or "reduction". The bindings have no builder for it."""
    return ir.Attribute.parse(f"#linalg.iterator_type<{kind}>")


def elementwise(
    result: ir.RankedTensorType,
    inputs: Sequence[ir.Value],
    body: Callable[..., ir.Value],
    sizes: Sequence[ir.Value] | None = None,
) -> ir.Value:
    """Returns a tensor of which `body` computes each element from the elements of `inputs` at the same indices.

    `sizes` are the dynamic sizes, by default those of the first input.
    """
    sizes = dynamic_sizes(inputs[0]) if sizes is None else sizes
    identity = ir.AffineMap.get_identity(result.rank)
    maps, iterators = [identity] * (len(inputs) + 1), ["parallel"] * result.rank
    return generic(result, inputs, empty(result, sizes), maps, iterators, lambda *given: body(*given[:-1])).results[0]


def cast(value: ir.Value, kind: ir.Type, sizes: Sequence[ir.Value] | None = None) -> ir.Value:
    """Returns a float as one of another type, rounded to nearest even where that is narrower; of a tensor each.

    `sizes` are the dynamic ones, by default its own.
    """
    if element(value) == kind:
        return value
    if isinstance(value.type, ir.RankedTensorType):
        result = tensor_type(static_sizes(value), kind)
        return elementwise(result, [value], lambda each: cast(each, kind), sizes)
    is_wider = ir.FloatType(kind).width > ir.FloatType(value.type).width
    return (arith.ExtFOp if is_wider else arith.TruncFOp)(kind, value).result


def generate(
    result: ir.RankedTensorType, body: Callable[[list[ir.Value]], ir.Value], sizes: Sequence[ir.Value] = ()
) -> ir.Value:
    """Returns a tensor of which `body` computes each element from its indices; `sizes` are the dynamic sizes."""
    return elementwise(result, [], lambda: body([linalg.IndexOp(i).result for i in range(result.rank)]), sizes)


def apply(expression: ir.AffineExpr, dims: Sequence[ir.Value]) -> ir.Value:
    """Returns `affine.apply` of an expression over `dims`; one of them as it is."""
    if isinstance(expression, ir.AffineDimExpr):
        return dims[expression.position]
    return affine.AffineApplyOp(ir.AffineMap.get(len(dims), 0, [expression]), dims).result


def for_at_most(cases: Sequence[tuple[int | None, ir.Value]], number: ir.Value, mark: str = "") -> ir.Value:
    """Returns the value for an index, of several by the largest that each is for, ascending; the last is for all more.

    Selections get the attribute `mark`.
    """
    *before, (_, result) = cases
    for most, value in reversed(before):
        is_for = arith.CmpIOp(arith.CmpIPredicate.ule, number, constant_index(most or 0)).result
        choice = arith.SelectOp(is_for, value, result)
        if mark:
            choice.operation.attributes[mark] = ir.UnitAttr.get()
        result = choice.result
    return result


def clamp(index: ir.Value, size: int | ir.Value) -> ir.Value:
    """Returns `index`, limited to the last of `size` positions."""
    position, dynamic = ir.AffineExpr.get_dim(0), isinstance(size, ir.Value)
    last = ir.AffineExpr.get_dim(1) - 1 if dynamic else ir.AffineExpr.get_constant(size - 1)
    bound = ir.AffineMap.get(1 + dynamic, 0, [position, last])
    return affine.AffineMinOp(bound, [index, size] if dynamic else [index]).result


def collapse(value: ir.Value, groups: Sequence[Sequence[int]]) -> ir.Value:
    """Returns `tensor.collapse_shape` of dimensions in these groups."""
    sizes = static_sizes(value)
    known = [[sizes[i] for i in group] for group in groups]
    shape = [None if None in group else math.prod(size or 1 for size in group) for group in known]
    kind = tensor_type(shape, ir.RankedTensorType(value.type).element_type)
    return tensor.CollapseShapeOp(kind, value, groups).result


def merged(value: ir.Value, groups: Sequence[Sequence[int]], sizes: Sequence[ir.Value] = ()) -> ir.Value:
    """Returns a tensor with a dimension for each group of dimensions, in any order; `sizes` are the dynamic ones."""
    ends = accumulate(map(len, groups))
    moved = transpose(value, [dim for group in groups for dim in group], sizes)
    return collapse(moved, [list(range(end - len(group), end)) for group, end in zip(groups, ends, strict=True)])


def expand(
    value: ir.Value,
    shape: Sequence[int | None],
    groups: Sequence[Sequence[int]] | None = None,
    sizes: Sequence[ir.Value] = (),
) -> ir.Value:
    """Returns `tensor.expand_shape` to dimensions in these groups, without them of a single dimension to all of them.

    `sizes` are the dynamic ones.
    """
    kind = tensor_type(shape, element(value))
    whole = [list(range(kind.rank))] if groups is None else groups
    return tensor.ExpandShapeOp(kind, value, whole, sizes, list(kind.shape)).result


def split(value: ir.Value, dim: int, parts: Sequence[int | None], sizes: Sequence[ir.Value] = ()) -> ir.Value:
    """Returns a tensor of which one dimension is these; `sizes` are the dynamic ones of all."""
    before, after = static_sizes(value)[:dim], static_sizes(value)[dim + 1 :]
    behind = dim + len(parts)
    groups = [*([i] for i in range(dim)), list(range(dim, behind)), *([behind + i] for i in range(len(after)))]
    return expand(value, [*before, *parts, *after], groups, sizes)


def flat(value: ir.Value) -> ir.Value:
    """Returns the elements of a tensor in a single dimension."""
    rank = ir.RankedTensorType(value.type).rank
    if rank == 0:
        return expand(value, [1], [])
    return value if rank == 1 else collapse(value, [list(range(rank))])


def reshaped(value: ir.Value, shape: Sequence[int | None]) -> ir.Value:
    """Returns the elements of a tensor, in order, as one of these sizes, of which none is dynamic."""
    return flat(value) if len(shape) == 1 else expand(flat(value), shape)


def ones_apart(shape: Sequence[int | None]) -> list[list[int]]:
    """Returns groups of dimensions, in each of which at most one is not of size 1."""
    groups: list[list[int]] = [[]]
    for i, size in enumerate(shape):
        if size != 1 and any(shape[k] != 1 for k in groups[-1]):
            groups.append([])
        groups[-1].append(i)
    return groups


def with_ones(value: ir.Value, shape: Sequence[int | None], sizes: Sequence[ir.Value] = ()) -> ir.Value:
    """Returns a tensor with dimensions of size 1, which it lacks, in the places that `shape` has them in."""
    return value if len(static_sizes(value)) == len(shape) else expand(value, shape, ones_apart(shape), sizes)


def tiles(size: int | None, tile: int) -> int | None:
    """Returns the number of tiles that cover `size`, or None if dynamic."""
    return None if size is None else -(-size // tile)


def ceildiv(value: ir.Value, divisor: int) -> ir.Value:
    return apply(ir.AffineExpr.get_ceil_div(ir.AffineExpr.get_dim(0), divisor), [value])


def floordiv(value: ir.Value, divisor: int) -> ir.Value:
    return value if divisor == 1 else apply(ir.AffineExpr.get_floor_div(ir.AffineExpr.get_dim(0), divisor), [value])


def times(value: ir.Value, factor: int) -> ir.Value:
    return value if factor == 1 else apply(ir.AffineExpr.get_dim(0) * factor, [value])


def transpose(value: ir.Value, permutation: Sequence[int], sizes: Sequence[ir.Value] = ()) -> ir.Value:
    """Returns `linalg.transpose`, with the dimensions of these numbers in order; `sizes` are its dynamic ones."""
    known = static_sizes(value)
    init = empty(tensor_type([known[i] for i in permutation], element(value)), sizes)
    op = linalg.TransposeOp([init.type], value, init, list(permutation))
    linalg.fill_builtin_region(op.operation)
    return op.results[0]


def leading_slice(value: ir.Value, result: ir.RankedTensorType, extents: Sequence[ir.Value | None]) -> ir.Value:
    """Returns the top left [M, N] of matrices; `extents` are M and N where dynamic."""
    given = iter(extent for extent in extents if extent is not None)
    return sliced(value, [0] * result.rank, [next(given) if size == DYNAMIC else size for size in result.shape])


def part(value: ir.Value, first: Sequence[int], shape: Sequence[int]) -> ir.Value:
    """Returns the elements of a tensor from `first` on, of these sizes; the tensor itself if those are all."""
    return value if value.type == tensor_type(shape, element(value)) else sliced(value, first, shape)


Number: TypeAlias = int | ir.Value
"""An offset or a size: a value where only the running program knows it."""


def sliced(
    value: ir.Value, offsets: Sequence[Number], sizes: Sequence[Number], result: ir.RankedTensorType | None = None
) -> ir.Value:
    """Returns `tensor.extract_slice` in steps of 1; `result` is its type where that lacks dimensions of size 1."""
    kind = result or tensor_type([size if isinstance(size, int) else None for size in sizes], element(value))
    (first, known_first), (taken, known) = parted(offsets), parted(sizes)
    return tensor.ExtractSliceOp(kind, value, first, taken, [], known_first, known, [1] * len(known)).result


def inserted(source: ir.Value, target: ir.Value, offsets: Sequence[Number], sizes: Sequence[Number]) -> ir.Value:
    """Returns `tensor.insert_slice` in steps of 1."""
    (first, known_first), (taken, known) = parted(offsets), parted(sizes)
    return tensor.InsertSliceOp(source, target, first, taken, [], known_first, known, [1] * len(known)).result


def mixed(static: Iterable[int], given: Iterable[ir.Value]) -> list[Number]:
    """Returns the numbers of an operation, of which the dynamic ones are given as values."""
    values = iter(given)
    return [next(values) if number == DYNAMIC else number for number in static]


def parted(numbers: Sequence[Number]) -> tuple[list[ir.Value], list[int]]:
    """Returns those that are values, and all of them with a marker in the place of each value."""
    values = [each for each in numbers if not isinstance(each, int)]
    return values, [each if isinstance(each, int) else DYNAMIC for each in numbers]


@contextmanager
def dispatch_region(
    results: Sequence[ir.RankedTensorType], sizes: Sequence[ir.Value], enabled: bool = True
) -> Iterator[_Region]:
    """Builds a `flow.dispatch.region`, or, not enabled, its body in place. `sizes` are all dynamic sizes of the
    results.

    The body sets `region.returned`; afterwards `region.results` are the values to use.
    """
    region = _Region()
    if not enabled:
        yield region
        region.results = region.returned
        return
    op = flow.DispatchRegionOp(list(results), list(sizes), [])
    block = op.regions[0].blocks.append()
    with ir.InsertionPoint(block):
        yield region
        flow.ReturnOp(region.returned)
    region.results = list(op.results)


class _Region:
    returned: list[ir.Value]
    results: list[ir.Value]
