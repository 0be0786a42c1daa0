"""Bytes in place of computed 6-bit tensors, which IREE cannot store.

Before:

    %q = linalg.generic … ins(%x, %amax) { … arith.scaling_truncf … to f6E2M3FN } -> tensor<64x8x32xf6E2M3FN>

After:

    %c = linalg.generic … ins(%x, %amax) { … } -> tensor<64x8x32xi8>                                 (codes)
    %w = linalg.generic … ins(%c) { … arith.ori } -> tensor<64x8x3xi64>                              (without gaps)
    %q = iree_tensor_ext.bitcast %w : tensor<64x8x3xi64> -> tensor<64x8x32xf6E2M3FN>

What becomes part of packing, as most quantised operands do, is not stored and stays as it is.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp import build
from mxcomp.layout import BLOCK_SIZE
from mxcomp.passes import encode_six_bit
from mxcomp.passes.inline import inline
from mxcomp.passes.trace import indexing_maps, is_elementwise, yielded

_NOT_STORED = ("iree_encoding.set_encoding", "tensor.dim")


def replace(module: ir.Operation) -> None:
    """Replaces what is computed in 6 bits below `module`, if anything but encodings uses it."""
    for op in [op for op in build.walk(module) if _computes_six_bits(op)]:
        users = {use.owner.operation.name for use in op.results[0].uses}
        if not users <= set(_NOT_STORED):
            with op.context, op.location, ir.InsertionPoint(op):
                value = _stored(op)
            op.results[0].replace_all_uses_with(value)
            build.erase_dead(op)


def _computes_six_bits(op: ir.Operation) -> bool:
    if not is_elementwise(op) or str(ir.RankedTensorType(op.results[0].type).element_type) not in encode_six_bit.TYPES:
        return False
    sizes, value = build.static_sizes(op.results[0]), yielded(op)
    truncates = isinstance(value.owner, ir.OpView) and value.owner.operation.name in encode_six_bit.TRUNCATIONS
    return truncates and bool(sizes) and sizes[-1] is not None and sizes[-1] % BLOCK_SIZE == 0


def _stored(op: ir.Operation) -> ir.Value:
    """The result of `op`, from words."""
    result = ir.RankedTensorType(op.results[0].type)
    shape, init = build.static_sizes(op.results[0]), op.operands[len(op.operands) - 1]
    sizes = build.dynamic_sizes(init)
    codes = build.tensor_type(shape, encode_six_bit.code_type(result.element_type))
    inputs, maps = list(op.operands)[:-1], indexing_maps(op) or []

    def body(*arguments: ir.Value) -> ir.Value:
        return inline(op, arguments, encode_six_bit.rewrite)

    iterators = ["parallel"] * result.rank
    value = build.generic(codes, inputs, build.empty(codes, sizes), maps, iterators, body).results[0]
    *rows, last = shape
    if last != BLOCK_SIZE:
        blocked = build.tensor_type((*rows, (last or 0) // BLOCK_SIZE, BLOCK_SIZE), codes.element_type)
        groups = [*([i] for i in range(len(rows))), [len(rows), len(rows) + 1]]
        value = tensor.ExpandShapeOp(blocked, value, groups, sizes, list(blocked.shape)).result
    return build.bitcast(encode_six_bit.packed(value, 1, sizes), result, sizes)
