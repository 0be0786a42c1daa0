"""Result tiles: accumulated by MFMA, passed through the epilogue, and unpacked to row-major."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType

from iree.compiler import ir
from iree.compiler.dialects import arith, iree_codegen, tensor

from mxcomp.layout import ACC, DataTiledLayout
from mxcomp.layout.inner_tiles import LANES
from mxcomp.layout.order import PLAIN_ORDER, Order
from mxcomp.layout.problem import Problem
from mxcomp.layout.swizzle import COLUMNS, ROWS
from mxcomp.matching import gathers
from mxcomp.matching.canonical import inner_tiled_loops
from mxcomp.mlir import attributes, build, linalg
from mxcomp.mlir.assumptions import hidden_one
from mxcomp.mlir.inline import inline
from mxcomp.mlir.linalg_ops import indexing_maps
from mxcomp.packing.rounding import approximated
from mxcomp.packing.runtime_sizes import RuntimeSizes

EPILOGUE = "mxcomp.epilogue"
"""The attribute of the generic with the consumers that mxcomp-fuse-consumers fused into a matmul."""

BATCHED = "_batched"
"""The suffix of a ukernel's name whose tiles have a leading batch dimension."""

SHARED = "_shared"
"""The suffix of a ukernel's name whose RHS and result have a leading batch dimension, for a LHS that all share."""

TILED = "_tiled"
"""The suffix of a ukernel's name whose LHS and result have a leading dimension of tiles along M."""

WORKGROUP_ORDER = "mxcomp.workgroup_order"
"""The attribute with the entries of the `Order` that mxcomp-order-workgroups gives a matmul's workgroups."""

SKIPS = "mxcomp.skips_negative"
"""The attribute of a matmul that mxcomp-fold-gathers makes skip matrices with a negative expert id."""

LHS_ROW_MAJOR = "mxcomp.lhs_row_major"
"""The attribute of a matmul that mxcomp-fold-rows gives its LHS as it is stored."""

IN_PARTS = "mxcomp.in_parts"
"""The attribute of a matmul whose matrices are parts of K, which mxcomp-fold-gathers finds in one operand."""

UNROLL = {"amdgpu-unroll-threshold": "20000"}
"""LLVM attributes that unroll an epilogue of more than 64 elements a lane, which in a loop IREE would keep in scratch
memory."""

_PIECE = 4
"""The largest number of consecutive elements that fused consumers load along a dimension: 16 bytes."""

ONE_WAVE_PER_EU = UNROLL | {"amdgpu-waves-per-eu": "1"}
"""LLVM attributes for lanes that need more than the registers of half a SIMD, with amax and scales of all elements."""


@dataclass(frozen=True)
class Launch:
    """The launch parameters of a matmul's kernel, and how it is compiled.

    Attributes:
        ukernel: The name of the code that computes a tile; None: IREE generates it.
        order: In which workgroups take tiles.
        workgroup_size: Threads in x, y and z.
        llvm_func_attrs: What LLVM is told of its function.
    """

    ukernel: str | None = None
    order: Order = PLAIN_ORDER
    workgroup_size: tuple[int, ...] = ()
    llvm_func_attrs: Mapping[str, str] = field(default_factory=dict)

    @property
    def marks(self) -> tuple[str, ...]:
        """The attributes by which later passes transform its dispatch."""
        return ()


@dataclass(frozen=True)
class ResultTiles:
    """The shape of a data-tiled result: M × N of `problem`, as it is multiplied, in tiles of `layout`.

    `transposed`: the result wanted is N × M. `columns` are tiles along N where there are more than hold it,
    `rows` those along M of a kernel that has so many whatever M is.
    """

    problem: Problem
    layout: DataTiledLayout
    transposed: bool
    columns: int | None = None
    rows: int | None = None

    @property
    def dims(self) -> tuple[int, int]:
        """The tile dimensions of rows and columns of the result."""
        return (COLUMNS, ROWS) if self.transposed else (ROWS, COLUMNS)

    @property
    def sizes(self) -> tuple[int | None, int | None]:
        """M and N."""
        return self.problem.m, self.problem.n

    @property
    def counts(self) -> list[int | None]:
        """The numbers of tiles along M and along N, None where dynamic."""
        swizzle = self.layout.packing(ACC)
        rows, columns = (swizzle.tiles(dim, size) for dim, size in enumerate(self.sizes))
        return [self.rows or rows, self.columns or columns]

    def is_whole(self, dim: int) -> bool:
        """Returns whether a size is known, and tiles have no padding along it."""
        size, tile = self.sizes[dim], self.layout.packing(ACC).tile_shape[dim]
        return size is not None and size % tile == 0 and self.counts[dim] == size // tile

    def type(self, element: str, limits: list[ir.Value | None] | None = None) -> ir.RankedTensorType:
        """Returns the type of the row-major result, with a dynamic size wherever a limit is a value."""
        known = limits or [None, None]
        shape = [self.sizes[dim] if known[dim] is None else None for dim in self.dims]
        return build.tensor_type([*self.problem.batch, *shape], element)

    def zeros(self, counts: list[ir.Value]) -> ir.Value:
        """Returns zero accumulators; `counts` are those of tiles where dynamic."""
        return build.zero_filled(self.accumulators, counts)

    @property
    def accumulators(self) -> ir.RankedTensorType:
        """The type of packed tiles as they are multiplied."""
        shape = (*self.problem.batch, *self.layout.packed_shape(ACC, self.counts))
        return build.tensor_type(shape, self.problem.types[ACC])


def hidden_limits(tiles: ResultTiles, sizes: RuntimeSizes, plain_loops: bool) -> list[ir.Value | None]:
    """Returns M and N of the result where they are values: dynamic ones, and any 1 if there is a single tile along N.

    Or if there are `plain_loops` in front of it, which IREE drops as well.

    From such a result IREE drops the dimensions of size 1, and then fails to fuse the slice that takes it from the
    tile; so the size is kept from IREE.
    """
    m, n = sizes.rows_and_columns
    single = tiles.counts[COLUMNS] == 1
    return [
        m if m is not None or tiles.problem.m != 1 or not (single or plain_loops) else hidden_one(),
        n if n is not None or tiles.problem.n != 1 else hidden_one(),
    ]


def accumulate(
    packed: list[ir.Value],
    acc: ir.Value,
    problem: Problem,
    layout: DataTiledLayout,
    launch: Launch,
    llvm_func_attrs: dict[str, str],
) -> ir.Value:
    """Returns `iree_codegen.inner_tiled` on packed operands."""
    batch = bool(problem.batch)
    maps, iterators = inner_tiled_loops(batch, layout.inner_tiles is not None)
    op = iree_codegen.InnerTiledOp(
        packed,
        [acc],
        ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        ir.ArrayAttr.get([build.iterator_type(kind) for kind in iterators]),
        attributes.mma_layout(layout, problem.types),
        attributes.mma_semantics(opaque=not layout.expressible_in_iree),
    ).operation
    workgroup = [1] * (2 + batch) + [0] * (len(iterators) - 2 - batch)
    annotate(op, launch, workgroup, False, llvm_func_attrs, suffix=BATCHED * batch)
    return op.results[0]


def annotate(
    op: ir.Operation,
    launch: Launch,
    workgroup: list[int],
    reorder: bool,
    llvm_func_attrs: dict[str, str] | None = None,
    suffix: str = "",
) -> None:
    """Sets how IREE compiles a matmul's dispatch, and with which ukernel.

    `workgroup` are tile sizes of the loops; `reorder` lets IREE change the order of workgroups.
    """
    op.attributes["compilation_info"] = attributes.compilation_info(
        workgroup,
        launch.workgroup_size,
        {**launch.llvm_func_attrs, **(llvm_func_attrs or {})},
        LANES,
        reorder=reorder,
        ukernel=launch.ukernel is not None,
    )
    if launch.ukernel is not None:
        op.attributes[attributes.UKERNEL] = attributes.ukernel_descriptor(launch.ukernel + suffix)
    for name in launch.marks:
        op.attributes[name] = ir.UnitAttr.get()
    if launch.order != PLAIN_ORDER:
        op.attributes[WORKGROUP_ORDER] = attributes.from_python(asdict(launch.order))


def with_epilogue(
    tiled: ir.Value,
    epilogue: ir.Operation,
    tiles: ResultTiles,
    sizes: RuntimeSizes,
    counts: list[ir.Value],
    packed: Mapping[ir.Value, ir.Value] = MappingProxyType({}),
) -> ir.Value:
    """Returns the fused consumers on packed accumulator tiles. Their other operands are read at the element's
    coordinates.

    Of some of that, which they read at the same place, there are `packed` tiles instead; and what has no padding, where
    lanes have neighbours in rows, is read in tiles, of which IREE makes loads as wide as stores.

    On the result after unpacking they would make code generation spill the accumulator. In the padding, which
    unpacking drops, the last element is read again.
    """
    swizzle, shape = tiles.layout.packing(ACC), build.static_sizes(tiled)
    result = build.tensor_type(shape, build.element(epilogue.results[0]))
    batch = len(tiles.problem.batch)
    coordinates = [ir.AffineExpr.get_dim(2 + i) for i in range(len(swizzle.packed_shape))]
    outer, maps = list(epilogue.operands)[1:-1], (indexing_maps(epilogue) or [])[1:-1]
    in_tiles = {number: (packed[value], None) for number, value in enumerate(outer) if value in packed}
    for number, (value, affine_map) in enumerate(zip(outer, maps, strict=True)):
        if number not in in_tiles and (found := _in_tiles(value, affine_map, tiles, len(shape))) is not None:
            in_tiles[number] = found

    def position(source_dim: int, loops: list[ir.Value]) -> ir.Value:
        tile, size = swizzle.tile_shape[source_dim], tiles.sizes[source_dim]
        strides = swizzle.strides(source_dim)

        def index(wanted: Iterable[bool], start: ir.AffineExpr | int) -> ir.Value:
            terms = (c * stride for c, stride, is_in in zip(coordinates, strides, wanted, strict=True) if is_in)
            return build.apply(sum(terms, ir.AffineExpr.get_constant(0) + start), loops)

        first = ir.AffineExpr.get_dim(source_dim) * tile
        if size is None:
            limit = sizes.rows_and_columns[source_dim]
            assert limit is not None
            return build.clamp(index(map(bool, strides), first), limit)
        if tiles.is_whole(source_dim):
            return index(map(bool, strides), first)
        # The first element of a piece decides whether all of it is padding, so that a lane can load it at once.
        # A piece of gate and up has half of each, which IREE would read again for each part that it stores.
        piece = 1 if tiles.layout.gated else _piece(strides, swizzle.packed_shape, size)
        start = build.clamp(index((stride >= piece for stride in strides), first), size - piece + 1)
        return arith.AddIOp(start, index((0 < stride < piece for stride in strides), 0)).result

    def body(element: ir.Value, *others: ir.Value) -> ir.Value:
        loops = [linalg.IndexOp(i).result for i in range(len(shape))]
        coordinates = [*loops[:batch], *(position(source_dim, loops[batch:]) for source_dim in tiles.dims)]
        tiles_at = iter(others)
        given = [
            next(tiles_at) if number in in_tiles else _read(value, affine_map, coordinates)
            for number, (value, affine_map) in enumerate(zip(outer, maps, strict=True))
        ]
        return inline(epilogue, [element, *given], approximated)

    ordered = [in_tiles[number] for number in sorted(in_tiles)]
    inputs, identity = [tiled, *(value for value, _ in ordered)], ir.AffineMap.get_identity(len(shape))
    of_inputs = [identity, *(each or identity for _, each in ordered), identity]
    init, kinds = build.empty(result, counts), ["parallel"] * len(shape)
    return build.generic(result, inputs, init, of_inputs, kinds, lambda *given: body(*given[:-1])).results[0]


def _in_tiles(
    value: ir.Value, affine_map: ir.AffineMap, tiles: ResultTiles, rank: int
) -> tuple[ir.Value, ir.AffineMap] | None:
    """Returns an operand of consumers in tiles, with its indexing map.

    None where lanes have no neighbours of it, or it has padding.
    """
    if tiles.problem.batch or tiles.transposed or not tiles.layout.lane_columns:
        return None
    swizzle, sources = tiles.layout.packing(ACC), list[int]()
    for each in affine_map.results:
        source = tiles.dims[ir.AffineDimExpr(each).position] if isinstance(each, ir.AffineDimExpr) else None
        if source is None or source in sources or not tiles.is_whole(source):
            return None
        sources.append(source)
    if not sources or gathers.find(value) is not None:
        return None
    sizes, groups, dims = list[int](), list[list[int]](), list[int]()
    for source in sources:
        inner = swizzle.factors[source]
        groups.append(list(range(len(sizes), len(sizes) + 1 + len(inner))))
        sizes += [tiles.counts[source] or 0, *(swizzle.packed_shape[i] for i in inner)]
        dims += [source, *(2 + i for i in inner)]
    kind = build.tensor_type(sizes, build.element(value))
    expanded = tensor.ExpandShapeOp(kind, value, groups, [], sizes).result
    return expanded, ir.AffineMap.get(rank, 0, [ir.AffineExpr.get_dim(i) for i in dims])


def _piece(strides: Sequence[int], sizes: Sequence[int], extent: int) -> int:
    """Returns how many consecutive elements along a dimension packed dimensions never split."""
    steps = [(stride, stride * size) for stride, size in zip(strides, sizes, strict=True) if stride]
    fitting = (1 << i for i in reversed(range(_PIECE.bit_length())) if extent % (1 << i) == 0)
    return next(piece for piece in fitting if all(step >= piece or whole <= piece for step, whole in steps))


def _read(value: ir.Value, affine_map: ir.AffineMap, loops: list[ir.Value]) -> ir.Value:
    """Returns the element at [m, n] of an operand with this indexing map, through ids where they select it. A scalar is
    returned itself."""
    if not isinstance(value.type, ir.RankedTensorType):
        return value
    position = [
        loops[ir.AffineDimExpr(expr).position] if isinstance(expr, ir.AffineDimExpr) else build.apply(expr, loops)
        for expr in affine_map.results
    ]
    if (gather := gathers.find(value)) is not None and gather.is_plain(value):
        id_ = tensor.ExtractOp(gather.ids, position[: gather.leading]).result
        value, position = gather.source, [gather.part(id_), *position[gather.leading :]]
    return tensor.ExtractOp(value, position).result


def unpack(tiled: ir.Value, tiles: ResultTiles, counts: list[ir.Value], limits: list[ir.Value | None]) -> ir.Value:
    """Returns the row-major result of accumulator tiles: transpose, collapse, drop the padding. `limits` are hidden
    sizes."""
    swizzle, result = tiles.layout.packing(ACC), tiles.type(str(build.element(tiled)), limits)
    batch = result.rank - 2
    dims = ([batch + dim, *(batch + 2 + i for i in swizzle.factors[dim])] for dim in tiles.dims)
    padded = build.merged(tiled, [*([i] for i in range(batch)), *dims], counts)
    if all(limit is None for limit in limits) and padded.type == result:
        return padded
    return build.leading_slice(padded, result, limits)
