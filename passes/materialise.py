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
operand that is a parameter is read in its layout (`passes/parameters.py`). A row-major ukernel keeps its
`linalg.generic`, in a region and with the ukernel's descriptor. A dynamic M is guarded by `cf.assert`.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith, cf, iree_codegen, linalg, tensor

from mxcomp import attributes, build
from mxcomp.layout import ACC, COLUMNS, LHS, LHS_SCALE, ROWS, DataTiledLayout
from mxcomp.options import Options
from mxcomp.passes import fuse_consumers, pack, reference
from mxcomp.passes.canonical import ATTRIBUTE, problem
from mxcomp.passes.inline import inline
from mxcomp.passes.packing import Packer, part_location
from mxcomp.passes.trace import indexing_maps
from mxcomp.ukernels import Sizes, layout_from


def run(module: ir.Operation, options: Options) -> None:
    """Materialises every encoded or row-major scaled matmul below `module`."""
    packer = Packer(options)
    for op in [op for op in build.walk(module) if ATTRIBUTE in op.attributes]:
        entries = attributes.to_python(op.attributes[ATTRIBUTE])
        del op.attributes[ATTRIBUTE]
        match entries.get("operands"):
            case "data_tiled":
                _data_tiled(op, entries, packer, options)
            case "row_major":
                _row_major(op, entries, options)


def _data_tiled(op: ir.Operation, entries: dict, packer: Packer, options: Options) -> None:
    layout = layout_from(entries["layout"])
    sizes, types = problem(op)
    epilogue, unset = None, _user(op)
    if fuse_consumers.ATTRIBUTE in unset.attributes:
        epilogue, unset = unset, _user(unset)
    encoded = [operand.owner.operation for operand in op.operands]
    with op.context, op.location, ir.InsertionPoint(op):
        sources = [encoding.operands[0] for encoding in encoded]
        rows = _guarded_rows(sources, entries) if sizes["m"] is None else None
        packed = packer.operands(op, sources, layout, rows, entries)
    final = str(ir.RankedTensorType(unset.results[0].type).element_type)
    with op.context, part_location(entries, "matmul", op), ir.InsertionPoint(unset):
        result = _matmul(packed, layout, sizes, types, final, epilogue, rows, entries, options)
    unset.results[0].replace_all_uses_with(result)
    for dead in (unset, *([epilogue] if epilogue else []), op, *encoded):
        build.erase_dead(dead)


def _user(op: ir.Operation) -> ir.Operation:
    """The only one."""
    return next(iter(op.results[0].uses)).owner.operation


def _guarded_rows(operands: list[ir.Value], entries: dict) -> ir.Value:
    """M at run time: the same for LHS and its scales, and between 1 and the limit that buffer offsets set.

    Code generation relies on both, so they are asserted.
    """
    m, limit = build.dim(operands[LHS], 0), entries["max_m"]
    low = arith.CmpIOp(arith.CmpIPredicate.sge, m, build.constant_index(1)).result
    high = arith.CmpIOp(arith.CmpIPredicate.sle, m, build.constant_index(limit)).result
    cf.AssertOp(arith.AndIOp(low, high).result, f"mxcomp: M must be between 1 and {limit}")
    same = arith.CmpIOp(arith.CmpIPredicate.eq, m, build.dim(operands[LHS_SCALE], 0)).result
    cf.AssertOp(same, "mxcomp: LHS and LHS scales must have the same M")
    return _assume(m, limit)


def _assume(value: ir.Value, limit: int) -> ir.Value:
    """`value`, known to be between 1 and `limit`."""
    assumption = ir.Attribute.parse(f"[[#util.int.assumption<umin = 1, umax = {limit}>]]")
    return ir.Operation.create(
        "util.assume.int", results=[value.type], operands=[value], attributes={"assumptions": assumption}
    ).result


def _matmul(
    packed: list[ir.Value],
    layout: DataTiledLayout,
    sizes: Sizes,
    types: list[str],
    final: str,
    epilogue: ir.Operation | None,
    rows: ir.Value | None,
    entries: dict,
    options: Options,
) -> ir.Value:
    """The dispatch of inner tiles, epilogue and unpacking; shape [M, N], of type `final`."""
    m, n = sizes["m"], sizes["n"] or 0
    outer = [build.tiles(size, tile) for size, tile in zip((m, n), layout.tile, strict=False)]
    extents = [rows, None] if options.reference else _extents(m, n, rows, single=outer[1] == 1)
    result = build.tensor_type(
        [size if extent is None else None for size, extent in zip((m, n), extents, strict=True)], final
    )
    with build.dispatch_region(
        [result], [extent for extent in extents if extent is not None], enabled=not options.reference
    ) as region:
        tiles = [build.ceildiv(rows, layout.tile[0])] if rows else []
        if not options.reference:
            packed = [
                pack.elements(value, types[operand], tiles if operand % 2 == LHS else [])
                for operand, value in enumerate(packed)
            ]
        acc = build.zero_filled(build.tensor_type(layout.packed_shape(ACC, outer), types[ACC]), tiles)
        if options.reference:
            tiled = reference.inner_tiles(packed, acc, layout, types, tiles)
        else:
            tiled = _inner_tiled(packed, acc, layout, types, entries, epilogue is not None).results[0]
        if epilogue is not None:
            tiled = _epilogue(tiled, epilogue, layout, (m, n), rows, final, tiles)
        region.returned = [_unpack(tiled, layout, result, outer, tiles, extents)]
    plain = build.tensor_type((m, n), final)
    return region.results[0] if result == plain else tensor.CastOp(plain, region.results[0]).result


def _extents(m: int | None, n: int, rows: ir.Value | None, single: bool) -> list[ir.Value | None]:
    """M and N of the result where they are values: a dynamic M, and any 1 if there is a `single` tile along N.

    From such a result IREE drops the dimensions of size 1, and then fails to fuse the slice that takes it from the
    tile; so the size is kept from IREE.
    """

    def hidden() -> ir.Value:
        one = build.constant_index(1)
        opaque = ir.Operation.create("util.optimization_barrier", results=[one.type], operands=[one]).result
        return _assume(opaque, 2)  # 1 would be folded

    return [rows if m is None else hidden() if single and m == 1 else None, hidden() if n == 1 else None]


_UNROLL = {"amdgpu-unroll-threshold": "20000"}
"""IREE runs an epilogue of more than 64 elements a lane in a loop; not unrolled, it keeps them in scratch memory."""


def _inner_tiled(
    packed: list[ir.Value], acc: ir.Value, layout: DataTiledLayout, types: list[str], entries: dict, has_epilogue: bool
) -> ir.Operation:
    m, n, k, kb = (ir.AffineExpr.get_dim(i) for i in range(4))
    maps = [ir.AffineMap.get(4, 0, list(dims)) for dims in ((m, k, kb), (n, k, kb), (m, k), (n, k), (m, n))]
    iterators = ("parallel", "parallel", "reduction", "reduction")
    op = iree_codegen.InnerTiledOp(
        packed,
        [acc],
        ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in iterators]),
        attributes.mma_layout(layout, types),
        attributes.mma_semantics(opaque=not layout.expressible_in_iree),
    ).operation
    attrs = entries.get("llvm_func_attrs", {}) | (_UNROLL if has_epilogue else {})
    _annotate(op, [1, 1, 0, 0], 1 not in build.static_sizes(acc)[:2], entries | {"llvm_func_attrs": attrs})
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
    size: tuple[int | None, int],
    rows: ir.Value | None,
    final: str,
    tiles: list[ir.Value],
) -> ir.Value:
    """The fused consumers on packed accumulator tiles. What else they read is read where the element comes from.

    On the result after unpacking they would make code generation spill the accumulator. In the padding, which
    unpacking drops, the last element is read again.
    """
    swizzle, shape = layout.swizzle(ACC), build.static_sizes(tiled)
    result = build.tensor_type(shape, final)
    coordinates = [ir.AffineExpr.get_dim(2 + i) for i in range(len(swizzle.packed_shape))]
    outer, maps = list(epilogue.operands)[1:-1], (indexing_maps(epilogue) or [])[1:-1]

    def position(source_dim: int, loops: list[ir.Value]) -> ir.Value:
        tile, extent = swizzle.tile_shape[source_dim], size[source_dim]
        index = pack.source_index(swizzle, source_dim, coordinates, loops)
        if extent is None:
            assert rows is not None
            return build.clamp(index, rows)
        return build.clamp(index, extent) if extent % tile else index

    def body(element: ir.Value, _: ir.Value) -> ir.Value:
        loops = [linalg.IndexOp(i).result for i in range(len(shape))]
        places = [position(source_dim, loops) for source_dim in (ROWS, COLUMNS)]
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
        places[ir.AffineDimExpr(expr).position]
        if isinstance(expr, ir.AffineDimExpr)
        else build.constant_index(ir.AffineConstantExpr(expr).value)
        for expr in affine_map.results
    ]
    return tensor.ExtractOp(value, position).result


def _unpack(
    tiled: ir.Value,
    layout: DataTiledLayout,
    result: ir.RankedTensorType,
    outer: list[int | None],
    tiles: list[ir.Value],
    extents: list[ir.Value | None],
) -> ir.Value:
    """Row-major [M, N] from packed accumulator tiles: transpose, collapse, drop the padding."""
    swizzle = layout.swizzle(ACC)
    # Positions in the packed tensor of [outer M, M factors …, outer N, N factors …].
    factors = [2 + swizzle.permutation.index(i) for i in range(len(swizzle.dims))]
    split = len(swizzle.expand_shape[ROWS])
    order = [ROWS, *factors[:split], COLUMNS, *factors[split:]]
    shape = ir.RankedTensorType(tiled.type).shape
    sizes = [None if shape[i] == build.DYNAMIC else shape[i] for i in order]
    transposed = build.tensor_type(sizes, result.element_type)
    value = build.transpose(tiled, build.empty(transposed, tiles), order)
    padded = [o and o * t for o, t in zip(outer, swizzle.tile_shape, strict=True)]
    groups = [list(range(split + 1)), list(range(split + 1, len(order)))]
    collapsed = tensor.CollapseShapeOp(build.tensor_type(padded, result.element_type), value, groups).result
    if all(extent is None for extent in extents) and collapsed.type == result:
        return collapsed
    return build.leading_slice(collapsed, result, extents)


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
        rows = [_guarded_rows(list(op.operands), entries)] if sizes["m"] is None else []
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
