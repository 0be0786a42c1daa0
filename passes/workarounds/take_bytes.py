"""mxcomp-take-bytes: makes arguments and results of 4- and 6-bit floats bytes, as IREE's runtime lacks these types.

Before:

    util.func public @main(%x: tensor<4x2x32xf4E2M1FN>) -> …

After:

    util.func public @main(%x8: tensor<4x2x16xi8>) -> … {
      %x = iree_tensor_ext.bitcast %x8 : tensor<4x2x16xi8> -> tensor<4x2x32xf4E2M1FN>

Calls from inside of the module give and take bytes as well. Rows that are no whole number of bytes stay as they are,
and IREE refuses them.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import graph, narrow


def run(module: ir.Operation) -> None:
    """Changes the public functions below `module`, and what calls them."""
    ops = list(graph.walk(module, bodies=False))
    taken = {op for op in ops if op.name == "util.func" and len(op.regions[0].blocks) and graph.is_public(op)}
    names = {graph.symbol_name(op) for op in taken}
    for op in taken:
        narrow.take_function(op, in_bytes)
    for op in ops:
        if op.name == "util.call" and graph.callee(op) in names:
            narrow.pass_operands(op, in_bytes)
            narrow.take_results(op, in_bytes)


def in_bytes(kind: ir.Type) -> ir.Type:
    """Returns the type of a tensor's bytes, if its elements are floats that are smaller; others unchanged."""
    is_float = isinstance(kind, ir.RankedTensorType) and isinstance(kind.element_type, ir.FloatType)
    return narrow.byte_type(kind) if is_float else kind
