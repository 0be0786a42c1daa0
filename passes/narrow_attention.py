"""mxcomp-narrow-attention: limits the waves that share the keys of an attention to the number of keys.

Before (a function of an executable, as IREE has configured it for keys of a dynamic number):

    module attributes {mxcomp.longest_size = 64}
    func.func @f() attributes {translation_info = #iree_codegen.translation_info<… workgroup_size = [512, 1, 1] …>}
      iree_linalg_ext.online_attention <… decomposition_config = {
          pv_attrs = {lowering_config = #iree_gpu.lowering_config<{subgroup_basis = [[1, 1, 1, 1, 1, 8], …], …}>}, …
        {lowering_config = #iree_gpu.lowering_config<{partial_reduction = [0, 0, 0, 0, 0, 512], …}>}

After:

    func.func @f() attributes {translation_info = #iree_codegen.translation_info<… workgroup_size = [64, 1, 1] …>}
      iree_linalg_ext.online_attention <… subgroup_basis = [[1, 1, 1, 1, 1, 1], …] …
        {lowering_config = #iree_gpu.lowering_config<{partial_reduction = [0, 0, 0, 0, 0, 64], …}>}

IREE takes a size that it does not know for a large one: eight waves take 512 keys at a time, and combine in LDS what
they found. Assumptions about sizes (`util.assume.int`) would not change that, and some of IREE's dispatches do not
compile with them. The kernel goes round for as many keys as there are: a wrong size makes it slower, and nothing else.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import iree_codegen, iree_gpu

from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.mlir.attributes import LONGEST_SIZE, from_python, to_python
from mxcomp.options import Options

_ATTENTION = "iree_linalg_ext.online_attention"
_CONFIG, _DECOMPOSITION, _TRANSLATION = "lowering_config", "decomposition_config", "translation_info"
_BASIS, _PARTIAL = "subgroup_basis", "partial_reduction"
_KEY = 1


def run(module: ir.Operation, options: Options) -> None:
    """Reduces the waves of every attention below `module` that has more than its keys need."""
    if LONGEST_SIZE not in module.attributes:
        return
    longest = ir.IntegerAttr(module.attributes[LONGEST_SIZE]).value
    for function in [op for op in graph.walk(module) if op.name == "func.func"]:
        configured = [op for op in graph.walk(function) if _CONFIG in op.attributes]
        if len(configured) == 1 and configured[0].name == _ATTENTION:
            _narrow(function, configured[0], longest)


def _narrow(function: ir.Operation, attention: ir.Operation, longest: int) -> None:
    config, parts = _items(attention.attributes[_CONFIG]), dict(_named(attention.attributes[_DECOMPOSITION]))
    configs = {part: _items(ir.DictAttr(each)[_CONFIG]) for part, each in parts.items()}
    if _PARTIAL not in config or any(_BASIS not in each for each in configs.values()):
        return
    tiles = to_python(config[_PARTIAL])
    loops = [loop for loop, size in enumerate(tiles) if size]
    waves = {tuple(to_python(each[_BASIS])[0]) for each in configs.values()}
    if len(loops) != 1 or len(waves) != 1 or not _is_dynamic(attention, loops[0]):
        return
    (loop,), (basis,) = loops, waves
    had = basis[loop]
    each_takes = tiles[loop] // had
    needed = 1 << (-(-longest // each_takes) - 1).bit_length()
    if needed >= had or any(count != 1 for k, count in enumerate(basis) if k != loop):
        return
    tiles[loop] = each_takes * needed
    attention.attributes[_CONFIG] = _config(config | {_PARTIAL: from_python(tiles)})
    for part, each in configs.items():
        counts, order = to_python(each[_BASIS])
        counts[loop] = needed
        lowering = _config(each | {_BASIS: from_python([counts, order])})
        parts[part] = ir.DictAttr.get(dict(_named(parts[part])) | {_CONFIG: lowering})
    attention.attributes[_DECOMPOSITION] = ir.DictAttr.get(parts)
    _resize(function, had, needed)


def _is_dynamic(attention: ir.Operation, loop: int) -> bool:
    """Returns whether the number of keys, over which this loop iterates, is dynamic."""
    keys = ir.AffineMapAttr(ir.ArrayAttr(attention.attributes["indexing_maps"])[_KEY]).value
    dims = linalg_ops.loops(keys)
    return loop in dims and build.static_sizes(attention.operands[_KEY])[dims.index(loop)] is None


def _resize(function: ir.Operation, had: int, needed: int) -> None:
    """Shrinks workgroups to so many waves."""
    before = iree_codegen.TranslationInfoAttr(function.attributes[_TRANSLATION])
    first, *others = before.workgroup_size
    function.attributes[_TRANSLATION] = iree_codegen.TranslationInfoAttr.get(
        before.pass_pipeline, before.codegen_spec, [first * needed // had, *others], before.subgroup_size,
        before.configuration,
    )  # fmt: skip


def _named(attribute: ir.Attribute) -> list[tuple[str, ir.Attribute]]:
    return [(each.name, each.attr) for each in ir.DictAttr(attribute)]


def _items(config: ir.Attribute) -> dict[str, ir.Attribute]:
    return dict(_named(iree_gpu.LoweringConfigAttr(config).attributes))


def _config(items: dict[str, ir.Attribute]) -> ir.Attribute:
    return iree_gpu.LoweringConfigAttr.get(ir.DictAttr.get(items))
