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

import math
from dataclasses import replace
from typing import Any

from iree.compiler import ir

from mxcomp.formats import element_format
from mxcomp.layout import ACC, BLOCK_SIZE, LHS, RHS, DataTiledLayout
from mxcomp.matching.canonical import ATTRIBUTE, batch_of, is_recognised, problem
from mxcomp.matching.operands import warning_of
from mxcomp.matching.storage import is_gathered
from mxcomp.mlir import attributes, build, graph, notes
from mxcomp.mlir.linalg_ops import indexing_maps
from mxcomp.options import Options
from mxcomp.packing import requantised_result
from mxcomp.packing.packer import flipped
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


Tile = tuple[int, int, int]


def run(module: ir.Operation, options: Options) -> None:
    """Encodes the operands of every recognised scaled matmul below `module`. Raises UkernelError."""
    with module.context, module.location:
        registry = Registry(options.target.arch, options.ukernel_dirs)
        if options.ukernels not in ("auto", "none"):
            registry[options.ukernels]
        recognised = [op for op in graph.walk(module) if is_recognised(op)]
        together = _requantised(recognised, registry, options)
        for index, op in enumerate(recognised):
            entries = {"index": index} | (together.get(op) or _choose(op, registry, options))
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

    batch = math.prod(batch_of(op))
    if not options.data_tiling:
        ukernel, reason = select("row_major")
        if ukernel is not None and (batch_of(op) or any(map(is_gathered, list(op.operands)[:ACC]))):
            return _left(f"--data-tiling=off and {ukernel.name}: it takes row-major operands without a batch", types)
        if ukernel is None:
            return _left(f"--data-tiling=off and {reason}", types)
        chosen = {"operands": "row_major", "tile": list(ukernel.tile)} | _launch(ukernel)
        return _bounded(chosen, (1, 1, 1), batch, sizes, types, options.target.max_buffer_bytes)

    ukernel, reason = select("data_tiled")
    if ukernel is not None and ukernel.layout is not None:
        layout, launch = ukernel.layout, _launch(ukernel)
    elif any(element_format(kind).bits == 6 for kind in types[:2]):
        return _left(reason, types)
    else:
        layout = _codegen_layout(sizes["m"])
        launch = {"reason": reason, "workgroup_size": [layout.threads, 1, 1]}
    chosen = {"operands": "data_tiled", "layout": layout_entries(layout)} | launch
    return _bounded(chosen, layout.tile, batch, sizes, types, options.target.max_buffer_bytes)


def _requantised(recognised: list[ir.Operation], registry: Registry, options: Options) -> dict[ir.Operation, dict]:
    """The entries of matmuls that are computed transposed, so that results can be quantised where they are."""
    if not options.data_tiling or options.ukernels != "auto":
        return {}
    chosen: dict[ir.Operation, dict] = {}
    for chain in requantised_result.chains(recognised, watched=options.reference):
        if chain.objection:
            for op in chain.results:
                notes.note(op, recognised.index(op), f"not re-quantised in its tile: {chain.objection}")
            continue
        entries = {op: _transposed(op, registry, options) for op in chain.ops}
        if all("transposed" in each for each in entries.values()):
            chosen |= entries
    return chosen


def _transposed(op: ir.Operation, registry: Registry, options: Options) -> dict:
    """The entries with LHS in the place of RHS, on the tile for re-quantisation; others if it does not fit."""
    sizes, types = problem(op)
    sizes, types = sizes | {"m": sizes["n"], "n": sizes["m"]}, flipped(types)
    name = requantised_result.ukernel_name(types)
    ukernel, reason = registry.select("data_tiled", options.target.arch, types, sizes, name)
    if ukernel is None or ukernel.layout is None:
        return _left(reason, types)
    entries = {"layout": layout_entries(replace(ukernel.layout, lane_rows=True))} | _launch(ukernel)
    chosen = {"operands": "data_tiled", "transposed": True} | entries
    return _bounded(chosen, ukernel.layout.tile, 1, sizes, types, options.target.max_buffer_bytes)


def _left(reason: str, types: list[str]) -> dict:
    """The entries of a matmul that is left to IREE."""
    warning = warning_of(types[:2])
    return {"reason": f"left to IREE: {reason}"} | ({"warning": warning} if warning else {})


def _bounded(chosen: dict, tile: Tile, batch: int, sizes: Sizes, types: list[str], max_bytes: int) -> dict:
    """`chosen`, if padded operands and the result fit into `max_bytes`; dynamic sizes get limits.

    IREE must be able to prove that operands fit. Where a dynamic K meets a dynamic M or N, K is at most `_MAX_K`. The
    result of a dynamic M and N is checked at run time (`mxcomp.packing.runtime_sizes`).
    """
    steps = dict(zip("mnk", tile, strict=True))
    bits = dict(zip("mn", (element_format(kind).bits for kind in types[:2]), strict=True))
    least = {axis: sizes[axis] or 1 for axis in sizes}
    padded = {axis: -(-least[axis] // step) * step for axis, step in steps.items()}
    limits: dict[str, int] = {}
    if sizes["k"] is None:
        row = max(-(-batch * padded[axis] * bits[axis] // 8) for axis in "mn")
        limits["k"] = max_bytes // row // steps["k"] * steps["k"]
        if None in (sizes["m"], sizes["n"]):
            limits["k"] = padded["k"] = min(limits["k"], _MAX_K // steps["k"] * steps["k"])
    for axis, other in ("mn", "nm"):
        row = max(batch * padded["k"] * bits[axis] // 8, batch * 4 * least[other])
        limits[axis] = max_bytes // row // steps[axis] * steps[axis] if row else 0
    if any(limits[axis] < padded[axis] for axis in limits):
        return _left(f"an operand or the result exceeds {max_bytes} bytes", types)
    together = {"max_bytes": max_bytes} if sizes["m"] is sizes["n"] is None else {}
    return chosen | {f"max_{axis}": limits[axis] for axis in "mnk" if sizes[axis] is None} | together


_MAX_K = 65536


def _launch(ukernel: Ukernel) -> dict:
    attrs = {"llvm_func_attrs": ukernel.llvm_func_attrs} if ukernel.llvm_func_attrs else {}
    return {"ukernel": ukernel.name, "workgroup_size": list(ukernel.workgroup_size)} | attrs


def _codegen_layout(m: int | None) -> DataTiledLayout:
    return next(layout for limit, layout in CODEGEN_LAYOUTS.items() if limit is None or (m is not None and m <= limit))


def _encode(op: ir.Operation) -> None:
    sizes, types = problem(op)
    maps = indexing_maps(op) or []
    batch = batch_of(op)
    iteration = [*batch, sizes["m"], sizes["n"], sizes["k"] and sizes["k"] // BLOCK_SIZE, BLOCK_SIZE]
    with op.context, op.location, ir.InsertionPoint(op):
        dynamic = [axis for axis in "mnk" if sizes[axis] is None]
        places = {"m": (LHS, len(batch)), "n": (RHS, len(batch)), "k": (LHS, len(batch) + 1)}
        dims = [build.dim(op.operands[operand], at) for operand, at in (places[axis] for axis in dynamic)]
        result_dims = [dim for dim, axis in zip(dims, dynamic, strict=True) if axis != "k"]
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
        segments = ir.DenseI32ArrayAttr.get([1, len(result_dims), len(dims)])
        unset = ir.Operation.create(
            "iree_encoding.unset_encoding",
            results=[plain],
            operands=[result, *result_dims, *dims],
            attributes={"operandSegmentSizes": segments},
        )
        result.replace_all_uses_except(unset.result, unset)
