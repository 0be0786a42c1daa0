"""mxcomp-materialise: turns encodings into packed tensors, and encoded matmuls into dispatches.

Before:

    %ae = iree_encoding.set_encoding %a : tensor<1024x32x32xf4E2M1FN> -> tensor<1024x32x32xf4E2M1FN, #lhs>  (and others)
    %re = linalg.generic {…, mxcomp.scaled_matmul = {operands = "data_tiled", layout = {…}, ukernel = "mx_…"}} …
    %r = iree_encoding.unset_encoding %re

After, one dispatch per operand and one for matmul and unpacking:

    %w = iree_tensor_ext.bitcast %a : tensor<1024x32x32xf4E2M1FN> -> tensor<1024x32x4xi32>
    %p = flow.dispatch.region { linalg.generic … tensor.extract %w[…] } -> tensor<8x4x2x4x2x4x16x4xi32>
    %pb = iree_tensor_ext.bitcast %p : … -> tensor<8x4x1x2x4x2x4x16x16xi8>
    %r = flow.dispatch.region {
      %ap = iree_tensor_ext.bitcast %pb : … -> tensor<8x4x1x2x4x2x4x16x32xf4E2M1FN>
      iree_codegen.inner_tiled … {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_…", tensor>}
      linalg.transpose, tensor.collapse_shape, tensor.extract_slice
    }

Fused consumers (mxcomp-fuse-consumers) work on the packed tiles, between inner_tiled and the transpose.

A constant operand is packed outside a region, where IREE evaluates it at compile time. With packed parameters an
operand that is a parameter is read in its layout (`mxcomp.packing.parameter_operand`). A row-major ukernel keeps its
`linalg.generic`, in a region and with the ukernel's descriptor. Dynamic sizes are guarded by `cf.assert`. A batch is
one more dimension, the first, of all packed tensors.
"""

from __future__ import annotations

from functools import partial

from iree.compiler import ir
from iree.compiler.dialects import iree_codegen, linalg, tensor

from mxcomp.errors import CompileError
from mxcomp.layout import ACC, COLUMNS, LHS, LHS_SCALE, RHS, RHS_SCALE, ROWS, DataTiledLayout
from mxcomp.matching.canonical import ATTRIBUTE, batch_of, canonical_iterators, canonical_maps, problem
from mxcomp.mlir import attributes, build, graph, notes
from mxcomp.mlir.inline import inline
from mxcomp.mlir.linalg_ops import indexing_maps
from mxcomp.options import Options
from mxcomp.packing import reference_tiles, requantised_result, stored_operand
from mxcomp.packing.packer import Packer, flipped, part_location
from mxcomp.packing.runtime_sizes import Extents, Tiles, assume, guarded
from mxcomp.passes import fuse_consumers
from mxcomp.passes.link_ukernels import BATCHED
from mxcomp.ukernels import Sizes, layout_from


def run(module: ir.Operation, options: Options) -> None:
    """Materialises every encoded or row-major scaled matmul below `module`."""
    packer, sources = Packer(options), []
    for op in [op for op in graph.walk(module) if ATTRIBUTE in op.attributes]:
        entries = attributes.to_python(op.attributes[ATTRIBUTE])
        del op.attributes[ATTRIBUTE]
        match entries.get("operands"):
            case "data_tiled":
                sources += _data_tiled(op, entries, packer, options)
            case "row_major":
                _row_major(op, entries, options)
    graph.erase_unused(sources)  # not before: the packer knows operands by them
    _check_gone(module)


def _data_tiled(op: ir.Operation, entries: dict, packer: Packer, options: Options) -> list[ir.Value]:
    """Materialises one matmul; returns what its operands were packed from."""
    layout = layout_from(entries["layout"])
    sizes, types = problem(op)
    epilogue, unset = None, _user(op)
    if fuse_consumers.ATTRIBUTE in unset.attributes:
        epilogue, unset = unset, _user(unset)
    encoded = [operand.owner.operation for operand in op.operands]
    sources = [encoding.operands[0] for encoding in encoded]
    if "transposed" in entries:
        sizes, types, sources = sizes | {"m": sizes["n"], "n": sizes["m"]}, flipped(types), flipped(sources)
    with op.context, op.location, ir.InsertionPoint(op):
        extents = Extents(batch_of(op), sizes, guarded(sources, sizes, entries))
        packed = packer.operands(op, sources, layout, extents, entries)
    final = str(ir.RankedTensorType(unset.results[0].type).element_type)
    quantised: tuple[ir.Value, ...] = ()
    with op.context, part_location(entries, "matmul", op), ir.InsertionPoint(unset):
        plan = _plan(unset, layout, entries["index"], options)
        results = _matmul(packed, layout, extents, types, final, epilogue, plan, entries, options)
        if plan is not None:
            if plan.layout is None:
                plan.replace_sources(*results)
                quantised = plan.sources
            else:
                operands, ready = (RHS, RHS_SCALE), plan.packed(*results)
                packer.provide(plan.consumer, operands, flipped(plan.sources), plan.layout, ready)
            results = [build.empty(ir.RankedTensorType(unset.results[0].type))]  # for ops that are dead with the plan
            results[0].owner.attributes[_GONE] = ir.UnitAttr.get()
    unset.results[0].replace_all_uses_with(results[0])
    graph.erase_unused(quantised)
    for dead in (unset, *([epilogue] if epilogue else []), op, *encoded):
        graph.erase_dead(dead)
    return sources


_GONE = "mxcomp.gone"
"""On what stands for a re-quantised result until all that was computed from it is gone."""


def _check_gone(module: ir.Operation) -> None:
    """Raises CompileError if anything is still computed from a result that is re-quantised in its tile."""
    for op in [op for op in graph.walk(module) if _GONE in op.attributes]:
        if users := [use.owner.operation for use in op.results[0].uses]:
            where = f"{users[0].name} at {graph.location_text(users[0].location)}"
            raise CompileError(f"{where} reads a result that is re-quantised in its tile: this is a bug in mxcomp")
        op.erase()


def _plan(unset: ir.Operation, layout: DataTiledLayout, index: int, options: Options) -> requantised_result.Plan | None:
    """How to re-quantise a result in its tile, if that can be done; if it was hoped for, why not is noted."""
    if options.reference:
        return None
    plan = requantised_result.plan(unset.results[0], layout)
    if isinstance(plan, requantised_result.Plan):
        return plan
    if plan:
        notes.note(unset, index, f"not re-quantised in its tile: {plan}")
    return None


def _user(op: ir.Operation) -> ir.Operation:
    """The only one."""
    return next(iter(op.results[0].uses)).owner.operation


def _matmul(
    packed: list[ir.Value],
    layout: DataTiledLayout,
    extents: Extents,
    types: list[str],
    final: str,
    epilogue: ir.Operation | None,
    plan: requantised_result.Plan | None,
    entries: dict,
    options: Options,
) -> list[ir.Value]:
    """The dispatch of inner tiles, epilogue and unpacking: [(batch,) M, N], of type `final`; or what is planned."""
    dims = (COLUMNS, ROWS) if "transposed" in entries else (ROWS, COLUMNS)
    sizes, outer = (
        (extents.m, extents.n),
        [build.tiles(*pair) for pair in zip((extents.m, extents.n), layout.tile, strict=False)],
    )
    limits = extents.limits if options.reference else _limits(extents, single=outer[1] == 1)
    shape = [sizes[dim] if limits[dim] is None else None for dim in dims]
    result = build.tensor_type([*extents.batch, *shape], final)
    with build.dispatch_region(
        [result] if plan is None else plan.types,
        [limit for limit in limits if limit is not None],
        enabled=not options.reference,
    ) as region:
        tiles = Tiles(extents, layout)
        if not options.reference:
            packed = [stored_operand.elements(value, types[i], tiles.of(i)) for i, value in enumerate(packed)]
        accumulators = build.tensor_type((*extents.batch, *layout.packed_shape(ACC, outer)), types[ACC])
        acc = build.zero_filled(accumulators, tiles.of(ACC))
        if options.reference:
            tiled = reference_tiles.inner_tiles(packed, acc, layout, types, tiles)
        else:
            attrs = (_UNROLL if epilogue is not None else {}) | (_ALONE if plan is not None else {})
            tiled = _inner_tiled(packed, acc, layout, types, entries, attrs).results[0]
        if epilogue is not None:
            tiled = _epilogue(tiled, epilogue, layout, extents, dims, final, tiles.of(ACC))
        unpack = partial(_unpack, tiled, layout, result, outer, tiles.of(ACC), dims, limits)
        region.returned = [unpack()] if plan is None else plan.compute(tiled)
    plain = build.tensor_type((*extents.batch, *(sizes[dim] for dim in dims)), final)
    if plan is not None or result == plain:
        return region.results
    return [tensor.CastOp(plain, region.results[0]).result]


def _limits(extents: Extents, single: bool) -> list[ir.Value | None]:
    """M and N of the result where they are values: dynamic ones, and any 1 if there is a `single` tile along N.

    From such a result IREE drops the dimensions of size 1, and then fails to fuse the slice that takes it from the
    tile; so the size is kept from IREE.
    """

    def hidden() -> ir.Value:
        return assume(build.barrier(build.constant_index(1)), 2)  # 1 would be folded

    m, n = extents.limits
    return [
        m if m is not None or extents.m != 1 or not single else hidden(),
        n if n is not None or extents.n != 1 else hidden(),
    ]


_UNROLL = {"amdgpu-unroll-threshold": "20000"}
"""IREE runs an epilogue of more than 64 elements a lane in a loop; not unrolled, it keeps them in scratch memory."""


_ALONE = _UNROLL | {"amdgpu-waves-per-eu": "1"}
"""With amax and scales of all its elements, a lane needs more than the registers of half a SIMD."""


def _inner_tiled(
    packed: list[ir.Value],
    acc: ir.Value,
    layout: DataTiledLayout,
    types: list[str],
    entries: dict,
    llvm_func_attrs: dict[str, str],
) -> ir.Operation:
    batch = ir.RankedTensorType(acc.type).rank - len(layout.packed_shape(ACC, (None, None)))
    maps, iterators = canonical_maps(bool(batch)), canonical_iterators(bool(batch))
    op = iree_codegen.InnerTiledOp(
        packed,
        [acc],
        ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in iterators]),
        attributes.mma_layout(layout, types),
        attributes.mma_semantics(opaque=not layout.expressible_in_iree),
    ).operation
    attrs = entries.get("llvm_func_attrs", {}) | llvm_func_attrs
    reorder = not batch and 1 not in build.static_sizes(acc)[:2]
    name = {"ukernel": entries["ukernel"] + BATCHED * bool(batch)} if "ukernel" in entries else {}
    _annotate(op, [1] * (2 + batch) + [0, 0], reorder, entries | name | {"llvm_func_attrs": attrs})
    return op


def _annotate(op: ir.Operation, workgroup: list[int], reorder: bool, entries: dict) -> None:
    """Says how IREE is to compile a matmul's dispatch, and with which ukernel."""
    op.attributes["compilation_info"] = attributes.compilation_info(
        workgroup,
        entries["workgroup_size"],
        entries.get("llvm_func_attrs", {}),
        reorder=reorder,
        ukernel="ukernel" in entries,
    )
    if "ukernel" in entries:
        op.attributes["iree_codegen.ukernel"] = attributes.ukernel_descriptor(entries["ukernel"])


def _epilogue(
    tiled: ir.Value,
    epilogue: ir.Operation,
    layout: DataTiledLayout,
    extents: Extents,
    dims: tuple[int, int],
    final: str,
    tiles: list[ir.Value],
) -> ir.Value:
    """The fused consumers on packed accumulator tiles. What else they read is read where the element comes from.

    On the result after unpacking they would make code generation spill the accumulator. In the padding, which
    unpacking drops, the last element is read again.
    """
    swizzle, shape = layout.packing(ACC), build.static_sizes(tiled)
    result = build.tensor_type(shape, final)
    batch = len(extents.batch)
    coordinates = [ir.AffineExpr.get_dim(2 + i) for i in range(len(swizzle.packed_shape))]
    outer, maps = list(epilogue.operands)[1:-1], (indexing_maps(epilogue) or [])[1:-1]

    def position(source_dim: int, loops: list[ir.Value]) -> ir.Value:
        tile, extent = swizzle.tile_shape[source_dim], (extents.m, extents.n)[source_dim]
        steps = zip(coordinates, swizzle.strides(source_dim), strict=True)
        expr = sum((c * stride for c, stride in steps if stride), ir.AffineExpr.get_dim(source_dim) * tile)
        index = build.apply(expr, loops)
        if extent is None:
            limit = extents.limits[source_dim]
            assert limit is not None
            return build.clamp(index, limit)
        return build.clamp(index, extent) if extent % tile else index

    def body(element: ir.Value, _: ir.Value) -> ir.Value:
        loops = [linalg.IndexOp(i).result for i in range(len(shape))]
        places = [*loops[:batch], *(position(source_dim, loops[batch:]) for source_dim in dims)]
        given = [_read(value, affine_map, places) for value, affine_map in zip(outer, maps, strict=True)]
        return inline(epilogue, [element, *given])

    identity = ir.AffineMap.get_identity(len(shape))
    iterators = ["parallel"] * len(shape)
    return build.generic(result, [tiled], build.empty(result, tiles), [identity, identity], iterators, body).results[0]


def _read(value: ir.Value, affine_map: ir.AffineMap, places: list[ir.Value]) -> ir.Value:
    """The element at [m, n] of an operand with this indexing map; a scalar is itself."""
    if not isinstance(value.type, ir.RankedTensorType):
        return value
    position = [
        places[ir.AffineDimExpr(expr).position] if isinstance(expr, ir.AffineDimExpr) else build.apply(expr, places)
        for expr in affine_map.results
    ]
    return tensor.ExtractOp(value, position).result


def _unpack(
    tiled: ir.Value,
    layout: DataTiledLayout,
    result: ir.RankedTensorType,
    outer: list[int | None],
    tiles: list[ir.Value],
    dims: tuple[int, int],
    limits: list[ir.Value | None],
) -> ir.Value:
    """Row-major [(batch,) M, N], the dimensions `dims` of accumulator tiles: transpose, collapse, drop the padding."""
    swizzle = layout.packing(ACC)
    batch = result.rank - 2
    # Positions in the packed tensor of [batch, outer M, M factors …, outer N, N factors …].
    factors = [batch + 2 + swizzle.permutation.index(i) for i in range(len(swizzle.dims))]
    split = len(swizzle.expand_shape[ROWS])
    positions = {ROWS: [batch + ROWS, *factors[:split]], COLUMNS: [batch + COLUMNS, *factors[split:]]}
    order = [*range(batch), *positions[dims[0]], *positions[dims[1]]]
    shape = ir.RankedTensorType(tiled.type).shape
    sizes = [None if shape[i] == build.DYNAMIC else shape[i] for i in order]
    transposed = build.tensor_type(sizes, result.element_type)
    value = build.transpose(tiled, build.empty(transposed, tiles), order)
    padded = [count and count * swizzle.tile_shape[dim] for dim, count in ((dim, outer[dim]) for dim in dims)]
    columns = batch + len(positions[dims[0]])
    groups = [*([i] for i in range(batch)), list(range(batch, columns)), list(range(columns, len(order)))]
    whole = build.tensor_type([*build.static_sizes(tiled)[:batch], *padded], result.element_type)
    collapsed = tensor.CollapseShapeOp(whole, value, groups).result
    if all(limit is None for limit in limits) and collapsed.type == result:
        return collapsed
    return build.leading_slice(collapsed, result, limits)


def _can_reorder(sizes: Sizes, tile_m: int, tile_n: int) -> bool:
    """Whether IREE may reorder the workgroups of row-major tiles: it forgets the smaller tiles at the border."""
    m, n = sizes["m"] or 0, sizes["n"] or 0
    return m > tile_m and n > tile_n and m % tile_m == n % tile_n == 0


def _row_major(op: ir.Operation, entries: dict, options: Options) -> None:
    """Puts the matmul into a dispatch of its own, for a ukernel on row-major operands."""
    if options.reference:
        return
    sizes, types = problem(op)
    with op.context, part_location(entries, "matmul", op), ir.InsertionPoint(op):
        result = build.tensor_type((sizes["m"], sizes["n"]), types[ACC])
        rows = list(guarded(list(op.operands), sizes, entries).values())
        for index in (LHS, LHS_SCALE) if rows else ():
            op.operands[index] = build.tie_shape(op.operands[index], rows)
        tile_m, tile_n, _ = entries["tile"]
        _annotate(op, [tile_m, tile_n, 0, 0], _can_reorder(sizes, tile_m, tile_n), entries)
        with build.dispatch_region([result], rows) as region:
            acc = build.zero_filled(result, rows)
            inner = op.clone()
            inner.operands[ACC] = acc
            region.returned = [inner.results[0]]
    op.results[0].replace_all_uses_with(region.results[0])
    op.erase()
