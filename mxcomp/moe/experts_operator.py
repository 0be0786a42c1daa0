"""Implements `mxcomp.torch.operators.gated_experts` as matmuls grouped by expert, on tensors of its operands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from iree.compiler import ir
from iree.compiler.dialects import arith

import mxcomp.ir as mx
from mxcomp import moe, routing
from mxcomp.errors import InputError
from mxcomp.formats import MX_BLOCK, element_format
from mxcomp.ir.quantisation import UNQUANTISED
from mxcomp.mlir import build
from mxcomp.mlir import scalars as s
from mxcomp.mlir.loops import tabled
from mxcomp.ukernels import weight_only


def build_layer(
    tensors: Sequence[ir.Value],
    weight_format: str,
    input_format: str,
    mode: str,
    alpha: float,
    limit: float,
    offset: float,
) -> ir.Value:
    """Returns [T, K] of the first tensor's type, from the operator's operands in their order. Raises InputError."""
    x, chosen, shares, gate_up, gate_up_scales, gate_up_bias, down, down_scales, down_bias = tensors
    _check(tensors, weight_format)
    (tokens, _), (_, top_k), (experts, *_) = (build.static_sizes(value) for value in (x, shares, gate_up))
    size = tokens or 0, experts or 0, top_k or 0
    is_quantised = input_format != UNQUANTISED
    block_m = routing.block_m(*size) if is_quantised else min(routing.block_m(*size), weight_only.MOST_ROWS)
    found = routing.given(_i32(chosen), _f32(shares), size[1], block_m)
    parts = ((gate_up, gate_up_scales, gate_up_bias), (down, down_scales, down_bias))
    up, out = (moe.Experts(mx.operand(e, scales, weight_format), _f32(bias)) for e, scales, bias in parts)
    activation = partial(moe.clamped_swiglu, alpha=alpha, limit=limit, offset=offset)
    kind = str(build.element(x))
    if not is_quantised:
        plain = mx.elementwise(lambda value: value, x, result=UNQUANTISED)
        return moe.gated_layer(plain, up, out, found, None, activation, kind)
    return moe.gated_layer(mx.quantise(x, input_format, mode), up, out, found, input_format, activation, kind, mode)


def _check(tensors: Sequence[ir.Value], weight_format: str) -> None:
    """Raises InputError for shapes that do not belong together."""
    shapes = [build.static_sizes(value) for value in tensors]
    x, chosen, shares, gate_up, *_ = shapes
    if len(x) == len(shares) == 2 and len(gate_up) == 3 and None not in (*x, *shares, *gate_up):
        (tokens, k), (experts, both, _) = ([size or 0 for size in shape] for shape in (x, gate_up))
        bits, inner = element_format(weight_format).bits, both // 2
        wanted = [
            [experts, both, k * bits // 8], [experts, both, k // MX_BLOCK], [experts, both],
            [experts, k, inner * bits // 8], [experts, k, inner // MX_BLOCK], [experts, k],
        ]  # fmt: skip
        if shapes[3:] == wanted and chosen == shares and shares[0] == tokens and both % (2 * MX_BLOCK) == 0:
            return
    raise InputError(
        f"experts of {', '.join(str(value.type) for value in tensors)}: expected static [T, K], twice [T, top_k], then "
        f"[E, 2 N, …] bytes, scales and biases of gate and up, and [E, K, …] of down, in {weight_format}"
    )


def _i32(value: ir.Value) -> ir.Value:
    """Converts integers of 64 bits to 32; values that do not fit are out of range of experts, too."""
    i32 = ir.IntegerType.get_signless(32)

    def narrow(number: ir.Value, _: ir.Value) -> ir.Value:
        return arith.TruncIOp(i32, s.clamped(number, 2**31 - 1, -1)).result

    return tabled("tj", build.static_sizes(value), "i32", [("tj", value)], narrow)


def _f32(value: ir.Value) -> ir.Value:
    if str(build.element(value)) == "f32":
        return value
    return tabled("tj", build.static_sizes(value), "f32", [("tj", value)], lambda number, _: s.widened(number))
