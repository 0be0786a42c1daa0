"""mxcomp-encode: chooses layout and ukernel of every recognised scaled matmul, and encodes its operands.

Before:

    %r = linalg.generic {…, mxcomp.scaled_matmul = {}} ins(%a, %b, %as, %bs) outs(%zero) …

After:

    %ae = iree_encoding.set_encoding %a : tensor<64x8x32xf4E2M1FN> -> tensor<64x8x32xf4E2M1FN, #lhs>   (likewise others)
    %re = linalg.generic {…, mxcomp.scaled_matmul = {operands = "data_tiled", layout = {intrinsics_m = 4, …},
                                                     ukernel = "mx_…", workgroup_size = [256, 1, 1]}}
          ins(%ae, %be, %ase, %bse) outs(%ze) …
    %r = iree_encoding.unset_encoding %re : tensor<64x128xf32, #acc> -> tensor<64x128xf32>

Without data tiling nothing is encoded: a matching ukernel on row-major operands is noted (operands = "row_major"), or
the matmul is left to IREE with the reason.
"""

from __future__ import annotations

from typing import Any

from iree.compiler import ir

from mxcomp import attributes, build
from mxcomp.formats import element_format
from mxcomp.layout import ACC, BLOCK_SIZE, DataTiledLayout
from mxcomp.options import Options
from mxcomp.passes.canonical import ATTRIBUTE, is_recognised, problem
from mxcomp.passes.operands import warning_of
from mxcomp.passes.trace import indexing_maps
from mxcomp.ukernels import Registry, Sizes, Ukernel, layout_entries

_SCALES_INTERLEAVED: dict[str, Any] = {
    "operands_interleaving_intrinsics_m": (2,),
    "operands_interleaving_intrinsics_n": (3,),
    "operands_interleaving_intrinsics_k": (2, 3),
}
CODEGEN_LAYOUTS = {
    64: DataTiledLayout(
        intrinsics_m=2, intrinsics_n=4, intrinsics_k=4, subgroups_m=2, subgroups_n=2, **_SCALES_INTERLEAVED
    ),
    None: DataTiledLayout(
        intrinsics_m=4, intrinsics_n=8, intrinsics_k=2, subgroups_m=2, subgroups_n=2, **_SCALES_INTERLEAVED
    ),
}
"""Layouts for matmuls without a ukernel, by the largest M they are meant for.

IREE's code generation spills registers with other splits of the same tiles into subgroups: 1591 of them with the
1 × 4 subgroups of the m128_n256_k256 ukernel.
"""


def run(module: ir.Operation, options: Options) -> None:
    """Encodes the operands of every recognised scaled matmul below `module`. Raises UkernelError."""
    with module.context, module.location:
        registry = Registry(options.target.arch, options.ukernel_dirs)
        if options.ukernels not in ("auto", "none"):
            registry[options.ukernels]
        recognised = [op for op in build.walk(module) if is_recognised(op)]
        for index, op in enumerate(recognised):
            entries = {"index": index} | _choose(op, registry, options)
            op.attributes[ATTRIBUTE] = attributes.from_python(entries)
            if entries.get("operands") == "data_tiled":
                _encode(op)


def _choose(op: ir.Operation, registry: Registry, options: Options) -> dict:
    """The entries of `mxcomp.scaled_matmul`: what is to become of one matmul, and why."""
    sizes, types = problem(op)
    named = options.ukernels if options.ukernels not in ("auto", "none") else None

    def select(operands: str) -> tuple[Ukernel | None, str]:
        if options.ukernels == "none":
            return None, "--ukernels=none"
        return registry.select(operands, options.target.arch, types, sizes, named)

    if not options.data_tiling:
        ukernel, reason = select("row_major")
        if ukernel is None:
            return _left(f"--data-tiling=off and {reason}", types)
        chosen = {"operands": "row_major", "tile": list(ukernel.tile)} | _launch(ukernel)
        return _bounded(chosen, (1, 1, 1), sizes, types, options.target.max_buffer_bytes)

    ukernel, reason = select("data_tiled")
    if ukernel is not None and ukernel.layout is not None:
        layout, launch = ukernel.layout, _launch(ukernel)
    elif any(element_format(kind).bits == 6 for kind in types[:2]):
        return _left(reason, types)
    else:
        layout = _codegen_layout(sizes["m"])
        launch = {"reason": reason, "workgroup_size": [layout.threads, 1, 1]}
    chosen = {"operands": "data_tiled", "layout": layout_entries(layout)} | launch
    return _bounded(chosen, layout.tile, sizes, types, options.target.max_buffer_bytes)


def _left(reason: str, types: list[str]) -> dict:
    """The entries of a matmul that is left to IREE."""
    warning = warning_of(types[:2], taken_apart=True)
    return {"reason": f"left to IREE: {reason}"} | ({"warning": warning} if warning else {})


def _bounded(chosen: dict, tile: tuple[int, int, int], sizes: Sizes, types: list[str], max_bytes: int) -> dict:
    """`chosen`, if padded operands and the result fit into `max_bytes`; a dynamic M gets a limit."""
    tile_m, tile_n, tile_k = tile
    n, k = sizes["n"] or 0, sizes["k"] or 0
    lhs_row, rhs_row = (-(-k // tile_k) * tile_k * element_format(kind).bits // 8 for kind in types[:2])
    rhs_bytes = -(-n // tile_n) * tile_n * rhs_row
    limit = max_bytes // max(lhs_row, 4 * n) // tile_m * tile_m if rhs_bytes <= max_bytes else 0
    if limit < (sizes["m"] or 1):
        return _left(f"an operand or the result exceeds {max_bytes} bytes", types)
    return chosen | ({"max_m": limit} if sizes["m"] is None else {})


def _launch(ukernel: Ukernel) -> dict:
    attrs = {"llvm_func_attrs": ukernel.llvm_func_attrs} if ukernel.llvm_func_attrs else {}
    return {"ukernel": ukernel.name, "workgroup_size": list(ukernel.workgroup_size)} | attrs


def _codegen_layout(m: int | None) -> DataTiledLayout:
    return next(layout for limit, layout in CODEGEN_LAYOUTS.items() if limit is None or (m is not None and m <= limit))


def _encode(op: ir.Operation) -> None:
    sizes, types = problem(op)
    maps = indexing_maps(op) or []
    iteration = [sizes["m"], sizes["n"], (sizes["k"] or 0) // BLOCK_SIZE, BLOCK_SIZE]
    with op.context, op.location, ir.InsertionPoint(op):
        dims = [build.dim(op.operands[0], 0)] if sizes["m"] is None else []
        for index, operand in enumerate(list(op.operands)):
            plain = ir.RankedTensorType(operand.type)
            encoding = attributes.encoding(index, types, maps, iteration)
            encoded = ir.RankedTensorType.get(plain.shape, plain.element_type, encoding=encoding)
            op.operands[index] = ir.Operation.create(
                "iree_encoding.set_encoding", results=[encoded], operands=[operand, *dims]
            ).result
        result = op.results[0]
        plain = result.type
        result.set_type(op.operands[ACC].type)
    with op.context, op.location, ir.InsertionPoint.after(op):
        segments = ir.DenseI32ArrayAttr.get([1, len(dims), len(dims)])
        unset = ir.Operation.create(
            "iree_encoding.unset_encoding",
            results=[plain],
            operands=[result, *dims, *dims],
            attributes={"operandSegmentSizes": segments},
        )
        result.replace_all_uses_except(unset.result, unset)
