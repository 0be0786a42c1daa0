"""Prints a layer of experts whose gate and up are one product: 2 experts, 2 blocks of 16 rows, or of as many as
an argument says, 64 wide. Of a block of one row it is a single token in bf16, to which a residual is added, or, of
"shared", the product of an expert that all tokens have."""

from __future__ import annotations

import sys

from iree.compiler import ir

import mxcomp.ir as mx
from mxcomp import moe
from mxcomp.routing import Routing


def layer(x: ir.Value, slots: ir.Value, ids: ir.Value, positions: ir.Value, shares: ir.Value, *w: ir.Value) -> ir.Value:
    gate_up, down = (moe.Experts(mx.operand(w[i], w[i + 1], "E2M1")) for i in (0, 2))
    routing = Routing(slots, ids, positions, shares)
    return moe.gated_layer(mx.quantise(x, "E2M1"), gate_up, down, routing, "E2M1", "swiglu", "f32")


def token(x: ir.Value, *given: ir.Value) -> ir.Value:
    return mx.elementwise(mx.add, layer(x, *given), x, result="bf16")


def shared(x: ir.Value, *given: ir.Value) -> ir.Value:
    *of_layer, elements, scales = given
    product = mx.scaled_matmul(mx.quantise(x, "E2M1"), mx.operand(elements, scales, "E2M1"))
    experts = mx.elementwise(lambda each: each, layer(x, *of_layer), result="bf16")
    return mx.elementwise(mx.add, experts, product, result="bf16")


ROWS = sys.argv[1] if len(sys.argv) > 1 else "16"
TABLES = (f"2x{ROWS}xi32", "2xi32", "4x1xi32", "4x1xf32")
WEIGHTS = ("2x128x32xi8", "2x128x2xi8", "2x64x32xi8", "2x64x2xi8")
if "shared" in sys.argv:
    of_token = "1x64xbf16", "2x1xi32", "2xi32", "1x2xi32", "1x2xf32"
    print(mx.module(shared, *of_token, *WEIGHTS, "64x32xi8", "64x2xi8"))
elif ROWS == "1":
    print(mx.module(token, "1x64xbf16", "2x1xi32", "2xi32", "1x2xi32", "1x2xf32", *WEIGHTS))
else:
    print(mx.module(layer, "4x64xf32", *TABLES, *WEIGHTS))
