"""Builds tensors of MX blocks as bytes, and numbers of them: a cache keeps them, where no matmul reads them.

%e, %s = (quantisation of %x : tensor<8x64xbf16>)     %c = iree_tensor_ext.bitcast %e : … -> tensor<8x32xi8>
%k = linalg.generic … ins(%e, %s) { arith.scaling_extf } -> tensor<8x2x32xbf16>
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.formats import E8M0, MX_BLOCK, element_format
from mxcomp.ir import quantisation
from mxcomp.mlir import build
from mxcomp.mlir.loops import names, tabled


def quantised(x: ir.Value, element: str, mode: str) -> list[ir.Value]:
    """Returns the bytes of elements and of scales of [..., K], where K is static."""
    sizes, dynamic = build.static_sizes(x), build.dynamic_sizes(x)
    if len(sizes) > 2:
        x = build.collapse(x, [list(range(len(sizes) - 1)), [len(sizes) - 1]])
    i8 = ir.IntegerType.get_signless(8)
    made = []
    for value in quantisation.quantise(x, element, mode):
        rows, blocks, *inner = build.static_sizes(value)
        bits = (blocks or 0) * (inner[0] or 0) * element_format(element).bits if inner else 8 * (blocks or 0)
        data = build.bitcast(value, build.tensor_type([rows, bits // 8], i8))
        made.append(data if len(sizes) == 2 else build.split(data, 0, sizes[:-1], dynamic))
    return made


def dequantised(elements: ir.Value, scales: ir.Value, element: str, result: str) -> ir.Value:
    """Returns numbers [..., K] of bytes of elements and of scales, where K is static."""
    sizes, dynamic = build.static_sizes(scales), build.dynamic_sizes(scales)
    blocks = build.bitcast(elements, build.tensor_type([*sizes, MX_BLOCK], element_format(element).mlir_type), dynamic)
    powers = build.bitcast(scales, build.tensor_type(sizes, E8M0.mlir_type), dynamic)
    rank, kind = len(sizes), ir.Type.parse(result)
    loops = names(rank + 1)
    numbers = tabled(
        loops, [*sizes, MX_BLOCK], kind, [(loops, blocks), (loops[:-1], powers)],
        lambda code, scale, _: arith.ScalingExtFOp(kind, code, scale).result, dynamic,
    )  # fmt: skip
    return build.collapse(numbers, [*([i] for i in range(rank - 1)), [rank - 1, rank]])
