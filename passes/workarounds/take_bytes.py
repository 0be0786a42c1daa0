"""mxcomp-take-bytes: makes arguments and results of 4- and 6-bit floats bytes, as IREE's runtime lacks these types.

Before:

    util.func public @main(%x: tensor<4x2x32xf4E2M1FN>) -> …

After:

    util.func public @main(%x8: tensor<4x2x16xi8>) -> … {
      %x = iree_tensor_ext.bitcast %x8 : tensor<4x2x16xi8> -> tensor<4x2x32xf4E2M1FN>

Rows that are no whole number of bytes stay as they are, and IREE refuses them.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import build, graph


def run(module: ir.Operation) -> None:
    """Changes the public functions below `module`."""
    for op in list(graph.walk(module, bodies=False)):
        if op.name == "util.func" and len(op.regions[0].blocks) and graph.is_public(op):
            _take_bytes(op)


def _take_bytes(function: ir.Operation) -> None:
    """Gives a public function bytes for arguments and results of 4- and 6-bit floats."""
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    with function.location:
        inputs, results = list(map(_in_bytes, kind.inputs)), list(map(_in_bytes, kind.results))
    if inputs == list(kind.inputs) and results == list(kind.results):
        return
    entry = function.regions[0].blocks[0]
    for argument, stored, narrow in zip(entry.arguments, inputs, kind.inputs, strict=True):
        if stored != narrow:
            argument.set_type(stored)
            with function.location, ir.InsertionPoint.at_block_begin(entry):
                sizes = build.dynamic_sizes(argument)
                value = build.bitcast(argument, narrow, sizes)
            argument.replace_all_uses_except(value, [each.owner.operation for each in (value, *sizes)])
    for end in [op for op in graph.walk(function) if op.name == "util.return"]:
        with end.location, ir.InsertionPoint(end):
            for i, stored in enumerate(results):
                end.operands[i] = build.bitcast(end.operands[i], stored)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))


def _in_bytes(kind: ir.Type) -> ir.Type:
    """Returns the type of a tensor's bytes, if its elements are smaller and fill whole bytes; others unchanged."""
    element = ir.RankedTensorType(kind).element_type if isinstance(kind, ir.RankedTensorType) else kind
    if not isinstance(kind, ir.RankedTensorType) or not isinstance(element, ir.FloatType) or element.width >= 8:
        return kind
    *rows, last = kind.shape
    if last == build.DYNAMIC or last * element.width % 8:
        return kind
    return ir.RankedTensorType.get([*rows, last * element.width // 8], ir.IntegerType.get_signless(8))
