"""Where an operand's elements and scales are stored, and operands that read them from there.

Most are stored as they are needed: [rows, K] in row-major order, whatever the ranks. Others lie elsewhere, an RHS given
as [K, N] for example. For those recognition makes a gather, which gives every element its place:

    %b = linalg.generic {mxcomp.gather = affine_map<(n, k) -> (k, n)>, …} outs(%empty) {
      … tensor.extract %rhs[%k, %n] : tensor<256x128xf4E2M1FN>
    } -> tensor<128x8x32xf4E2M1FN>

No gather is ever computed as such: packing reads bytes at these places (`mxcomp.packing.stored_operand`), and so does
mxcomp-fall-back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp.matching.elements import Index, Leaf
from mxcomp.matching.operands import SCALE_TYPE, NotOursError
from mxcomp.mlir import build, graph
from mxcomp.mlir.build import static_sizes

GATHER = "mxcomp.gather"
"""On a gather: the place of an element as an affine map of (batch,) row and K, of a scale of (batch,) row and block."""


@dataclass(frozen=True)
class Place:
    """A tensor and the subscripts of one element in it; `runs` are the subscripts of (batch,) rows and K to expect."""

    value: ir.Value
    indices: tuple[Index, ...]
    runs: tuple[Index, ...]
    row_major: bool


def place(leaf: Leaf, batch: Sequence[Index], rows: Sequence[Index], k: Sequence[Index], block: int) -> Place:
    """The tensor furthest back that holds an operand, in row-major order if there is one. Raises NotOursError.

    `batch`, `rows` and `k` are the subscripts of (batch,) rows and K, in elements; of scales, which elements share
    in blocks of `block`, K counts in those.
    """
    if block > 1:
        k = [Index(run.axis, block, run.extent and run.extent // block) for run in k]
    runs = (*batch, *rows, *(run for run in k if run.extent != 1))
    places = [
        (value, indices)
        for value, indices in reversed(leaf.places)
        if all(_agree(index.extent, size) for index, size in zip(indices, static_sizes(value), strict=True))
    ]
    for value, indices in places:
        found = Index.join_runs(indices)
        if len(found) == len(runs) and all(map(_same, found, runs)):
            return Place(value, indices, runs, row_major=True)
    names = [run.axis for run in runs]
    for value, indices in places:
        used = {index.axis for index in indices if index.extent != 1}
        dynamic = {run.axis for run in runs if run.extent is None}
        whole = all(index.axis != "k" or index.stride % block == 0 for index in indices)
        if used <= set(names) and dynamic <= used and len(set(names)) == len(names) and whole:
            primes = [name for name in names if name.endswith("'")]
            if not primes:
                return Place(value, indices, runs, row_major=False)
    raise NotOursError("an operand is stored in no known order: expected K and rows to index elements and scales")


def _agree(one: int | None, other: int | None) -> bool:
    return one == other or None in (one, other)


def _same(one: Index, other: Index) -> bool:
    return (one.axis, one.stride) == (other.axis, other.stride) and _agree(one.extent, other.extent)


def size_of(where: Place, axis: str, unit: int = 1) -> ir.Value | None:
    """The size of an axis and its outer parts at run time, in units, as the tensor tells it; None if it does not."""
    runs = [run for run in where.runs if run.axis.rstrip("'") == axis]
    sizes = [_size_of(where, run, unit) for run in runs]
    known = [size for size in sizes if size is not None]
    return build.product(known) if known and len(known) == len(sizes) else None


def _size_of(where: Place, run: Index, unit: int) -> ir.Value | None:
    parts = [(index, i) for i, index in enumerate(where.indices) if index.axis == run.axis and index.extent != 1]
    covered = run.stride
    for index, i in sorted(parts, key=lambda part: part[0].stride):
        if index.stride != covered:
            return None
        if index.extent is None:
            size = build.dim(where.value, i)
            expr = ir.AffineExpr.get_floor_div(ir.AffineExpr.get_dim(0) * index.stride, unit)
            return size if index.stride == unit else build.apply(expr, [size])
        covered = index.stride * index.extent
    return build.constant_index(covered // unit) if parts else None


def operand(where: Place, element: str, shape: Sequence[int | None], sizes: Sequence[ir.Value]) -> ir.Value:
    """The operand of the canonical form, of this shape; `sizes` are its dynamic sizes."""
    value = _with_static_sizes(where)
    wanted = build.tensor_type(shape, element)
    if where.row_major and not is_packed_slice(value):
        value = sliced_in_bytes(value)
        return build.bitcast(value, wanted, build.dynamic_sizes(value), sizes)
    source, places = _unsliced(value, _map(where))
    source = sliced_in_bytes(source)
    own = build.tensor_type(static_sizes(source), element)
    return _gather(build.bitcast(source, own), places, wanted, sizes)


def is_slice(value: ir.Value) -> bool:
    op = graph.producer(value)
    return op is not None and op.name == "tensor.extract_slice"


def is_packed_slice(value: ir.Value) -> bool:
    """Whether a tensor is a static slice of elements of less than a byte, which IREE cannot copy byte by byte."""
    op, element = graph.producer(value), ir.RankedTensorType(value.type).element_type
    if op is None or not is_slice(value):
        return False
    if not isinstance(element, ir.FloatType) or element.width >= 8:
        return False
    attributes = [ir.DenseI64ArrayAttr(op.attributes[f"static_{name}"]) for name in ("offsets", "strides")]
    return build.DYNAMIC not in [number for attribute in attributes for number in attribute]


def sliced_in_bytes(value: ir.Value) -> ir.Value:
    """`value`, if it is a slice of whole rows of elements of less than a byte, as one of bytes: IREE can copy those."""
    op = graph.producer(value)
    if op is None or not is_slice(value):
        return value
    view, source, result = op.opview, ir.RankedTensorType(op.operands[0].type), ir.RankedTensorType(value.type)
    width = ir.FloatType(source.element_type).width if isinstance(source.element_type, ir.FloatType) else 8
    *sizes, last = list(view.static_sizes)
    starts, steps = list(view.static_offsets), list(view.static_strides)
    whole_rows = (starts[-1], last, steps[-1]) == (0, source.shape[-1], 1) and result.shape[-1] == last
    if width >= 8 or not whole_rows or last * width % 8:
        return value
    size = last * width // 8
    store = build.bitcast(view.source, build.tensor_type([*static_sizes(view.source)[:-1], size], "i8"))
    sliced = tensor.ExtractSliceOp(
        build.tensor_type([*static_sizes(value)[:-1], size], "i8"),
        store,
        list(view.offsets),
        list(view.sizes),
        list(view.strides),
        starts,
        [*sizes, size],
        steps,
    ).result
    return build.bitcast(sliced, result)


def whole(value: ir.Value) -> ir.Value:
    """The tensor that is read where `value` is a slice of elements of less than a byte; else `value` itself."""
    while is_packed_slice(value):
        op = graph.producer(value)
        assert op is not None
        value = op.operands[0]
    return value


def _unsliced(value: ir.Value, places: ir.AffineMap) -> tuple[ir.Value, ir.AffineMap]:
    """The tensor that `value` is a slice of, and the places in it."""
    while is_packed_slice(value):
        op = graph.producer(value)
        assert op is not None
        offsets, sizes, strides = (
            list(ir.DenseI64ArrayAttr(op.attributes[f"static_{name}"])) for name in ("offsets", "sizes", "strides")
        )
        kept = _kept(sizes, [size or build.DYNAMIC for size in static_sizes(value)])
        exprs = dict(zip(kept, places.results, strict=True))
        zero = ir.AffineExpr.get_constant(0)
        results = [exprs.get(i, zero) * strides[i] + offsets[i] for i in range(len(sizes))]
        places, value = ir.AffineMap.get(places.n_dims, 0, results), op.operands[0]
    return value, places


def settled(value: ir.Value) -> ir.Value:
    """A tensor to extract elements from: IREE 3.13 miscompiles that where a slice is taken in the same dispatch."""
    return build.barrier(value) if is_slice(storage(value)) else value


def _kept(sizes: Sequence[int], result: Sequence[int]) -> list[int]:
    """The dimensions of a slice that its result has; of the others the size is 1."""
    kept: list[int] = []
    for i, size in enumerate(sizes):
        if len(kept) < len(result) and size == result[len(kept)]:
            kept.append(i)
    return kept


def _with_static_sizes(where: Place) -> ir.Value:
    """The tensor, with sizes that only its users know."""
    have = ir.RankedTensorType(where.value.type)
    shape = [size or index.extent for size, index in zip(static_sizes(where.value), where.indices, strict=True)]
    known = build.tensor_type(shape, have.element_type)
    return where.value if known == have else tensor.CastOp(known, where.value).result


def _map(where: Place) -> ir.AffineMap:
    """The place of an element by (batch,) row and K."""
    axes = [run.axis for run in where.runs]
    has_batch = "b" in axes
    domain = {"b": 0, "m": int(has_batch), "n": int(has_batch), "k": has_batch + 1}
    unit = next((run.stride for run in where.runs if run.axis == "k"), 1)
    results = []
    for index in where.indices:
        if index.extent == 1 or not index.axis:
            results.append(ir.AffineExpr.get_constant(0))
            continue
        whole = next(run.extent for run in where.runs if run.axis == index.axis)
        stride = index.stride // (unit if index.axis == "k" else 1)
        expr = ir.AffineExpr.get_dim(domain[index.axis])
        expr = ir.AffineExpr.get_floor_div(expr, stride) if stride > 1 else expr
        if index.extent is not None and (whole is None or stride * index.extent < whole):
            expr = ir.AffineExpr.get_mod(expr, index.extent)
        results.append(expr)
    return ir.AffineMap.get(2 + has_batch, 0, results)


def _gather(source: ir.Value, places: ir.AffineMap, result: ir.RankedTensorType, sizes: Sequence[ir.Value]) -> ir.Value:
    def body(loops: list[ir.Value]) -> ir.Value:
        if result.rank - places.n_dims == 1:
            block, inner = (ir.AffineExpr.get_dim(i) for i in range(2))
            loops[-2:] = [build.apply(block * result.shape[-1] + inner, loops[-2:])]
        return tensor.ExtractOp(source, [build.apply(expr, loops) for expr in places.results]).result

    gathered = build.generate(result, body, sizes)
    gathered.owner.attributes[GATHER] = ir.AffineMapAttr.get(places)
    return gathered


def is_gathered(value: ir.Value) -> bool:
    op = graph.producer(value)
    return op is not None and GATHER in op.attributes


def erase_gather(value: ir.Value) -> None:
    """Erases a gather that nothing reads any more, as it can be read by no one else."""
    if is_gathered(value):
        op = graph.producer(value)
        assert op is not None
        graph.erase_dead(op)


def viewed(operand_: ir.Value) -> tuple[ir.Value, ir.AffineMap]:
    """The tensor that an operand in canonical form is read from, and the place of an element or scale in it."""
    op = graph.producer(operand_)
    if op is None or not is_gathered(operand_):
        return operand_, _identity(operand_)
    return _source(op), ir.AffineMapAttr(op.attributes[GATHER]).value


def _source(gather: ir.Operation) -> ir.Value:
    return next(inner for inner in graph.walk(gather) if inner.name == "tensor.extract").operands[0]


def _identity(operand_: ir.Value) -> ir.AffineMap:
    """The place of an element by (batch,) row and K, or of a scale by (batch,) row and block, in canonical order."""
    kind = ir.RankedTensorType(operand_.type)
    if str(kind.element_type) == SCALE_TYPE:
        return ir.AffineMap.get_identity(kind.rank)
    *rows, k = (ir.AffineExpr.get_dim(i) for i in range(kind.rank - 1))
    block = kind.shape[-1]
    inner = [ir.AffineExpr.get_floor_div(k, block), ir.AffineExpr.get_mod(k, block)]
    return ir.AffineMap.get(kind.rank - 1, 0, [*rows, *inner])


BITCASTS = ("iree_tensor_ext.bitcast", "flow.tensor.bitcast")


def storage(value: ir.Value) -> ir.Value:
    """The tensor whose bytes `value` shows, before any bitcast: one rank-changing bitcast is all IREE folds well."""
    while (op := graph.producer(value)) is not None:
        if op.name in BITCASTS:
            value = op.operands[0]
        elif GATHER in op.attributes:
            value = _source(op)
        else:
            break
    return value
