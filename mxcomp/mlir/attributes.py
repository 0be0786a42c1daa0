"""Builds attributes of IREE's dialects that lack builders in the bindings, and converts dictionaries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from iree.compiler import ir
from iree.compiler.dialects import iree_codegen, iree_gpu

from mxcomp.layout import DataTiledLayout
from mxcomp.mlir import build


def to_python(attribute: ir.Attribute) -> Any:
    """Converts dictionaries, arrays, strings, integers, booleans and types to plain Python; types become text."""
    match attribute:
        case ir.DictAttr():
            return {named.name: to_python(named.attr) for named in attribute}
        case ir.ArrayAttr():
            return [to_python(item) for item in attribute]
        case ir.StringAttr() | ir.IntegerAttr() | ir.BoolAttr() | ir.FloatAttr():
            return attribute.value
        case ir.UnitAttr():
            return True
        case ir.TypeAttr():
            return str(attribute.value)
    raise TypeError(f"unexpected attribute {attribute}")


def from_python(value: Any) -> ir.Attribute:
    """Inverts `to_python` for everything but types; attributes stay as they are, and entries that are None go."""
    match value:
        case ir.Attribute():
            return value
        case dict():
            return ir.DictAttr.get({key: from_python(item) for key, item in value.items() if item is not None})
        case list() | tuple():
            return ir.ArrayAttr.get([from_python(item) for item in value])
        case bool():
            return ir.BoolAttr.get(value)
        case int():
            return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
        case str():
            return ir.StringAttr.get(value)
        case float():
            return ir.FloatAttr.get(ir.F64Type.get(), value)
    raise TypeError(f"cannot make an attribute of {value!r}")


def encoding(operand: int, types: Sequence[str], maps: list[ir.AffineMap], sizes: list[int | None]) -> ir.Attribute:
    """Returns the `#iree_encoding.encoding` of one operand of a scaled matmul."""
    return ir.Attribute.parse(
        f"#iree_encoding.encoding<operand_index = {operand} : index, op_type = scaled_matmul, "
        f"element_types = [{', '.join(types)}], "
        f"user_indexing_maps = [{', '.join(str(ir.AffineMapAttr.get(m)) for m in maps)}], "
        f"iteration_sizes = [{', '.join('?' if size is None else str(size) for size in sizes)}]>"
    )


_NAMED_PARAMETER = re.compile(r'#flow\.parameter\.named<(?:"(?P<scope>.*)"::)?"(?P<key>.*?)"(?:, \{.*\})?> : .*', re.S)


def named_parameter(scope: str, key: str, type_: ir.Type) -> ir.Attribute:
    """Returns a `#flow.parameter.named`; an empty scope means none."""
    name = "::".join(str(ir.StringAttr.get(part)) for part in ([scope, key] if scope else [key]))
    return ir.Attribute.parse(f"#flow.parameter.named<{name}> : {type_}")


def parameter_name(attribute: ir.Attribute) -> tuple[str, str] | None:
    """Returns the scope ("" for none) and key of a `#flow.parameter.named`; None for any other attribute."""
    if type(attribute) is not ir.Attribute:  # the bindings know it, as constants, whose text may be long
        return None
    found = _NAMED_PARAMETER.fullmatch(str(attribute))
    return None if found is None else (found["scope"] or "", found["key"])


def mma_layout(layout: DataTiledLayout, types: Sequence[str]) -> ir.Attribute:
    """Returns `#iree_gpu.data_tiled_scaled_mma_layout` with the fields of `layout`."""
    fields = {
        "intrinsic": layout.intrinsic,
        "lhs_elem_type": types[0],
        "rhs_elem_type": types[1],
        "acc_elem_type": types[4],
        "intrinsics_m": layout.intrinsics_m,
        "subgroups_m": layout.subgroups_m,
        "intrinsics_n": layout.intrinsics_n,
        "subgroups_n": layout.subgroups_n,
        "intrinsics_k": layout.intrinsics_k,
        "operands_interleaving_intrinsics_m": list(layout.operands_interleaving_intrinsics_m),
        "operands_interleaving_intrinsics_n": list(layout.operands_interleaving_intrinsics_n),
        "operands_interleaving_intrinsics_k": list(layout.operands_interleaving_intrinsics_k),
    }
    text = ", ".join(f"{key} = {value}" for key, value in fields.items() if value not in (1, []))
    return ir.Attribute.parse(f"#iree_gpu.data_tiled_scaled_mma_layout<{text}>")


def mma_semantics(opaque: bool) -> ir.Attribute:
    return ir.Attribute.parse(f"#iree_gpu.mma_semantics<distributed = false, opaque = {str(opaque).lower()}>")


UKERNEL = "iree_codegen.ukernel"
"""The attribute of an operation with the descriptor of the ukernel that computes it."""

INSIDE = "mxcomp.inside"
"""Marks a scatter whose positions are valid by construction, so that nothing checks them when the program runs."""

RANKS = "mxcomp.ranks"
"""Marks an operation that counts, for each element of a sort, those before it."""

PLACES = "mxcomp.places"
"""Marks an operation that finds the first floats of rows by these counts, and says whether large ones come first."""

KERNEL = "mxcomp.kernel"
"""The attribute of an operation with the text of a module that has its kernel, which is not in the registry."""

UNSIGNED_RESULTS = "mxcomp.unsigned_results"
"""The attribute of a module with the numbers of results that are unsigned integers, by function."""

PLACEHOLDER = "mxcomp.placeholder"
"""The attribute of operations in the body of a placeholder. IREE keeps it where it drops those of the placeholder."""

PACKS = "mxcomp.packs"
"""The attribute of a placeholder with a kernel that also quantises and packs its result (`mxcomp.matching.offers`)."""

DECODE = "mxcomp.decode"
"""The attribute of a placeholder with the fields of its kernel (`ukernels/attention_decode.py`), and functions that it
calls, until rotations are joined."""

ROWS = "mxcomp.rows"
"""The attribute of a placeholder with the fields of its kernel (`ukernels/rows.py`), until rotations are joined."""

AHEAD = "mxcomp.ahead"
"""The attribute of a placeholder that may compute routing in front, with `threads`, `along` and `llvm_func_attrs` of
its dispatch, until routing is joined."""

EQUAL_SIZES = "mxcomp.equal_sizes"
"""The attribute of a module with groups of dimensions of arguments, by function, whose sizes are equal as exported."""


def ukernel_descriptor(name: str) -> ir.Attribute:
    return ir.Attribute.parse(f'#iree_codegen.ukernel_descriptor<"{name}", tensor>')


def compilation_info(
    workgroup: Sequence[int],
    workgroup_size: Sequence[int],
    llvm_func_attrs: Mapping[str, str],
    lanes: int,
    reorder: bool,
    ukernel: bool,
) -> ir.Attribute:
    """Returns `#iree_codegen.compilation_info` for the TileAndFuse pipeline with these workgroup tile sizes.

    `lanes` are those of a wave. `reorder` walks tiles in an order that keeps one operand in cache (IREE's choice for
    its data-tiled ukernel); it needs more than one tile in both dimensions. Without a ukernel, which would do both
    itself, K is walked one tile at a time and elements go through shared memory, as IREE chooses for its own data-tiled
    matmuls.
    """
    config: dict[str, ir.Attribute] = {"workgroup": build.i64_array(workgroup)}
    if not ukernel:
        config["reduction"] = build.i64_array([0, 0, 1, 1])
        config["promote_operands"] = build.i64_array([0, 1])
    if reorder:  # no builder in the bindings
        config["workgroup_reordering_strategy"] = ir.Attribute.parse("#iree_gpu.conditional_transpose<8, 32>")
    # The ukernels place data in shared memory themselves.
    options = iree_gpu.PipelineOptionsAttr.get(no_reduce_shared_memory_bank_conflicts=True)
    spec = {"gpu_pipeline_options": options}
    if llvm_func_attrs:
        spec["llvm_func_attrs"] = from_python(dict(llvm_func_attrs))
    return _compilation_info(config, workgroup_size, lanes, spec)


def tiled(
    workgroup: Sequence[int], thread: Sequence[int], reduction: Sequence[int], threads: int, lanes: int
) -> ir.Attribute:
    """Returns `#iree_codegen.compilation_info` for the TileAndFuse pipeline with these tile sizes of each loop.

    `lanes` are those of a wave.
    """
    tiles = {"workgroup": workgroup, "thread": thread, "reduction": reduction}
    config = {level: build.i64_array(sizes) for level, sizes in tiles.items() if any(sizes)}
    return _compilation_info(config, (threads, 1, 1), lanes, None)


def _compilation_info(
    config: Mapping[str, ir.Attribute],
    workgroup_size: Sequence[int],
    lanes: int,
    spec: Mapping[str, ir.Attribute] | None,
) -> ir.Attribute:
    pipeline = iree_gpu.PipelineAttr.get(iree_gpu.LoweringPipeline.TileAndFuse)
    configuration = None if spec is None else ir.DictAttr.get(dict(spec))
    translation = iree_codegen.TranslationInfoAttr.get(pipeline, None, list(workgroup_size), lanes, configuration)
    return iree_codegen.CompilationInfoAttr.get(
        iree_gpu.LoweringConfigAttr.get(ir.DictAttr.get(dict(config))), translation
    )
