"""mxcomp-legalise-initializers: stores what is computed from constants as bytes, where it is elements of 8-bit floats.

IREE keeps what depends on nothing but constants in globals. It evaluates none of 8-bit floats, and then fails over one
that another is computed from by way of them.

Before:

    %x = arith.constant dense<…> : tensor<64x256xf32>
    %q = linalg.generic … ins(%x) { … arith.truncf … to f8E4M3FN } -> tensor<64x256xf8E4M3FN>

After:

    %c = linalg.generic … ins(%x) { … arith.truncf … to f8E4M3FN   arith.bitcast … to i8 } -> tensor<64x256xi8>
    %q = iree_tensor_ext.bitcast %c : tensor<64x256xi8> -> tensor<64x256xf8E4M3FN>
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.codes import packed
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.mlir.build import is_narrow, is_sub_byte
from mxcomp.mlir.inline import inline
from mxcomp.passes.defer_constants import are_constant
from mxcomp.passes.workarounds.unpack_elements import is_calculation


def run(module: ir.Operation) -> None:
    """Makes operations below `module` that read only constants return bytes in place of 8-bit floats."""
    for op in [op for op in graph.walk(module, bodies=False, outside=True) if _returns_floats(op)]:
        if are_constant([op]):
            with op.location, ir.InsertionPoint(op):
                generic = op if is_calculation(op) else packed.as_generic(op)
            if generic != op:
                graph.replace(op, generic.results[0])
            _return_bytes(generic)


def _returns_floats(op: ir.Operation) -> bool:
    """Returns whether it computes a tensor of 8-bit floats, of sizes that are known."""
    if not is_calculation(op) and not (op.name.startswith(("arith.", "math.")) and op.name != "arith.constant"):
        return False
    if not op.results or not isinstance(op.results[0].type, ir.RankedTensorType):
        return False
    element = ir.RankedTensorType(op.results[0].type).element_type
    is_float = isinstance(element, ir.FloatType) and is_narrow(element) and not is_sub_byte(element)
    if not is_float or not all(build.static_sizes(op.results[0])):
        return False
    return not (op.regions and linalg_ops.reads_init(op))


def _return_bytes(op: ir.Operation) -> None:
    """Replaces a linalg op by one that computes bytes, and a bitcast of these."""
    with op.location, ir.InsertionPoint(op):
        *inputs, init = op.operands
        result = packed.code_tensor(init.type)

        def body(*arguments: ir.Value) -> ir.Value:
            unread = arith.BitcastOp(build.element(init), arguments[-1]).result
            return arith.BitcastOp(result.element_type, inline(op, [*arguments[:-1], unread])).result

        maps, loops = linalg_ops.indexing_maps(op) or [], linalg_ops.iterators(op)
        computed = build.generic(result, inputs, build.empty(result), maps, loops, body)
        value = build.bitcast(computed.results[0], init.type)
    graph.replace(op, value)
