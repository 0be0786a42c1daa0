"""Finds where an operand's elements and scales are stored, and builds operands that read them from there.

Most operands are stored as needed: [rows, K] in row-major order, whatever the ranks. For others, such as an RHS given
as [K, N], recognition builds a gather with the position of every element:

    %b = linalg.generic {mxcomp.gather = affine_map<(n, k) -> (k, n)>, …} outs(%empty) {
      … tensor.extract %rhs[%k, %n] : tensor<256x128xf4E2M1FN>
    } -> tensor<128x8x32xf4E2M1FN>

These gathers are never computed: packing (`mxcomp.packing.stored_operand`) and mxcomp-fall-back read bytes at these
positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp.matching.elements import Index
from mxcomp.matching.expressions import Leaf
from mxcomp.matching.operands import SCALE_TYPE, NotOursError
from mxcomp.mlir import build, graph
from mxcomp.mlir.build import static_sizes

_SLICE = "tensor.extract_slice"
GATHER = "mxcomp.gather"
"""The attribute of a gather with the affine map of a stored element from (batch,) row and K, or of a scale from
(batch,) row and block."""


@dataclass(frozen=True)
class Access:
    """A tensor and the subscripts of one element in it; `runs` are the expected subscripts of (batch,) rows and K."""

    value: ir.Value
    indices: tuple[Index, ...]
    runs: tuple[Index, ...]
    row_major: bool


def locate(leaf: Leaf, batch: Sequence[Index], rows: Sequence[Index], k: Sequence[Index], block: int) -> Access:
    """Returns the access to the first tensor that contains an operand, row-major if there is one. Raises NotOursError.

    `batch`, `rows` and `k` are the subscripts of (batch,) rows and K, in elements; of scales, which elements share
    in blocks of `block`, K counts in those.
    """
    if block > 1:
        k = [Index(run.axis, block, run.extent and run.extent // block) for run in k]
    runs = (*batch, *rows, *(run for run in k if run.extent != 1))
    candidates = [
        each
        for each in reversed(leaf.accesses)
        if all(_agree(index.extent, size) for index, size in zip(each.indices, static_sizes(each.value), strict=True))
    ]
    for each in candidates:
        found = Index.join_runs(each.indices)
        if len(found) == len(runs) and all(map(_same, found, runs)):
            return Access(each.value, each.indices, runs, row_major=True)
    names = [run.axis for run in runs]
    are_plain = len(set(names)) == len(names) and not any(name.endswith("'") for name in names)
    for each in candidates:
        used = {index.axis for index in each.indices if index.extent != 1}
        dynamic = {run.axis for run in runs if run.extent is None}
        whole = all(index.axis != "k" or index.stride % block == 0 for index in each.indices)
        if used <= set(names) and dynamic <= used and are_plain and whole:
            return Access(each.value, each.indices, runs, row_major=False)
    raise NotOursError("an operand is stored in no known order: expected K and rows to index elements and scales")


def _agree(one: int | None, other: int | None) -> bool:
    return one == other or None in (one, other)


def _same(one: Index, other: Index) -> bool:
    return (one.axis, one.stride) == (other.axis, other.stride) and _agree(one.extent, other.extent)


def size_of(where: Access, axis: str, unit: int = 1) -> ir.Value | None:
    """Returns the size of an axis and its outer parts at run time, in units, as the tensor has it. None if it does
    not."""
    runs = [run for run in where.runs if run.axis.rstrip("'") == axis]
    sizes = [_size_of(where, run, unit) for run in runs]
    known = [size for size in sizes if size is not None]
    return build.product(known) if known and len(known) == len(sizes) else None


def _size_of(where: Access, run: Index, unit: int) -> ir.Value | None:
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


def operand(where: Access, element: str, shape: Sequence[int | None], sizes: Sequence[ir.Value]) -> ir.Value:
    """Returns the operand of the canonical form, of this shape; `sizes` are its dynamic sizes."""
    value = _with_static_sizes(where)
    wanted = build.tensor_type(shape, element)
    if where.row_major and _packed_slice(value) is None:
        value = sliced_in_bytes(value)
        return build.bitcast(value, wanted, build.dynamic_sizes(value), sizes)
    source, access_map = _unsliced(value, _map(where))
    source = sliced_in_bytes(source)
    own = build.tensor_type(static_sizes(source), element)
    return _gather(build.bitcast(source, own), access_map, wanted, sizes)


def is_slice(value: ir.Value) -> bool:
    return graph.producer(value, _SLICE) is not None


def _packed_slice(value: ir.Value) -> ir.Operation | None:
    """Returns the static slice of elements of less than a byte that a tensor is, which IREE cannot copy; else None."""
    op, element = graph.producer(value, _SLICE), build.element(value)
    if op is None or not isinstance(element, ir.FloatType) or element.width >= 8:
        return None
    offsets, _, steps = graph.slicing(op)
    return op if build.DYNAMIC not in (*offsets, *steps) else None


def sliced_in_bytes(value: ir.Value) -> ir.Value:
    """Returns `value`. A slice of whole rows of elements of less than a byte becomes one of bytes, which IREE can
    copy."""
    if (op := graph.producer(value, _SLICE)) is None:
        return value
    view, source, result = op.opview, ir.RankedTensorType(op.operands[0].type), ir.RankedTensorType(value.type)
    width = ir.FloatType(source.element_type).width if isinstance(source.element_type, ir.FloatType) else 8
    starts, (*sizes, last), steps = graph.slicing(op)
    whole_rows = (starts[-1], last, steps[-1]) == (0, source.shape[-1], 1) and result.shape[-1] == last
    if width >= 8 or not whole_rows or last * width % 8:
        return value
    size = last * width // 8
    store = build.bitcast(view.source, build.tensor_type([*static_sizes(view.source)[:-1], size], "i8"))
    kind = build.tensor_type([*static_sizes(value)[:-1], size], "i8")
    given = (list(each) for each in (view.offsets, view.sizes, view.strides))
    return build.bitcast(tensor.ExtractSliceOp(kind, store, *given, starts, [*sizes, size], steps).result, result)


def whole(value: ir.Value) -> ir.Value:
    """Returns the source of `value` if that is a slice of elements of less than a byte; else `value` itself."""
    return graph.look_through(value, lambda op: _packed_slice(op.results[0]) is not None)


def _unsliced(value: ir.Value, access_map: ir.AffineMap) -> tuple[ir.Value, ir.AffineMap]:
    """Returns the tensor that `value` is a slice of, and the access map for it."""
    while (op := _packed_slice(value)) is not None:
        offsets, sizes, strides = graph.slicing(op)
        kept = kept_dims(op)
        exprs = dict(zip(kept, access_map.results, strict=True))
        zero = ir.AffineExpr.get_constant(0)
        results = [exprs.get(i, zero) * strides[i] + offsets[i] for i in range(len(sizes))]
        access_map, value = ir.AffineMap.get(access_map.n_dims, 0, results), op.operands[0]
    return value, access_map


def kept_dims(op: ir.Operation) -> list[int]:
    """Returns the dimensions of a slice that its result has; the others have size 1."""
    result, kept = list(ir.RankedTensorType(op.results[0].type).shape), list[int]()
    for i, size in enumerate(op.opview.static_sizes):
        if len(kept) < len(result) and size == result[len(kept)]:
            kept.append(i)
    return kept


def _with_static_sizes(where: Access) -> ir.Value:
    """Returns the tensor, with sizes that only its users know."""
    have = ir.RankedTensorType(where.value.type)
    shape = [size or index.extent for size, index in zip(static_sizes(where.value), where.indices, strict=True)]
    known = build.tensor_type(shape, have.element_type)
    return where.value if known == have else tensor.CastOp(known, where.value).result


def _map(where: Access) -> ir.AffineMap:
    """Returns the map of an element from (batch,) row and K."""
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


def _gather(
    source: ir.Value, access_map: ir.AffineMap, result: ir.RankedTensorType, sizes: Sequence[ir.Value]
) -> ir.Value:
    def body(loops: list[ir.Value]) -> ir.Value:
        if result.rank - access_map.n_dims == 1:
            block, inner = (ir.AffineExpr.get_dim(i) for i in range(2))
            loops[-2:] = [build.apply(block * result.shape[-1] + inner, loops[-2:])]
        return tensor.ExtractOp(source, [build.apply(expr, loops) for expr in access_map.results]).result

    gathered = build.generate(result, body, sizes)
    gathered.owner.attributes[GATHER] = ir.AffineMapAttr.get(access_map)
    return gathered


def is_gathered(value: ir.Value) -> bool:
    op = graph.producer(value)
    return op is not None and GATHER in op.attributes


def erase_gather(value: ir.Value) -> None:
    """Erases a gather without readers."""
    if is_gathered(value):
        graph.erase_dead(value.owner.operation)


def source_and_map(operand_: ir.Value) -> tuple[ir.Value, ir.AffineMap]:
    """Returns the tensor that an operand in canonical form is read from, and the map of an element or scale in it."""
    op = graph.producer(operand_)
    if op is None or not is_gathered(operand_):
        return operand_, _identity(operand_)
    return _source(op), ir.AffineMapAttr(op.attributes[GATHER]).value


def _source(gather: ir.Operation) -> ir.Value:
    return next(inner for inner in graph.walk(gather) if inner.name == "tensor.extract").operands[0]


def _identity(operand_: ir.Value) -> ir.AffineMap:
    """Returns the map of an element from (batch,) row and K, or of a scale from (batch,) row and block."""
    kind = ir.RankedTensorType(operand_.type)
    if str(kind.element_type) == SCALE_TYPE:
        return ir.AffineMap.get_identity(kind.rank)
    *rows, k = (ir.AffineExpr.get_dim(i) for i in range(kind.rank - 1))
    block = kind.shape[-1]
    inner = [ir.AffineExpr.get_floor_div(k, block), ir.AffineExpr.get_mod(k, block)]
    return ir.AffineMap.get(kind.rank - 1, 0, [*rows, *inner])


BITCASTS = ("iree_tensor_ext.bitcast", "flow.tensor.bitcast")


def storage(value: ir.Value) -> ir.Value:
    """Returns the tensor whose bytes `value` shows, before any bitcast: IREE folds a single rank-changing bitcast
    well."""
    while (op := graph.producer(value)) is not None:
        if op.name in BITCASTS:
            value = op.operands[0]
        elif GATHER in op.attributes:
            value = _source(op)
        else:
            break
    return value
