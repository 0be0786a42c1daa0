"""A model's layers, which are alike: what they share when they are compiled."""

from __future__ import annotations

from iree.compiler import ir

import mxcomp
import mxcomp.ir as mx
from mxcomp.mlir import graph

SIZE = 128


def layers(count: int) -> ir.Module:
    """x · wᵀ, quantised for the next layer, so many times; every layer has a weight of its own."""

    def main(x: ir.Value, *weights: ir.Value) -> ir.Value:
        for elements, scales in zip(weights[::2], weights[1::2], strict=True):
            x = mx.scaled_matmul(mx.quantise(x, "E2M1"), mx.operand(elements, scales, "E2M1"))
        return x

    weight = (f"{SIZE}x{SIZE // 2}xi8", f"{SIZE}x{SIZE // 32}xi8")
    return mx.module(main, f"{SIZE}x{SIZE}xf32", *weight * count)


def executables(count: int) -> int:
    """How many a model with so many layers has when our passes hand it to IREE."""
    text = mxcomp.compile(layers(count), compile_to="input").vmfb.decode()
    with ir.Context() as context:
        context.load_all_available_dialects()
        module = ir.Module.parse(text)
        return sum(op.name == "flow.executable" for op in graph.walk(module.operation))


def test_layers_share_executables_from_the_start() -> None:
    assert 0 < executables(8) == executables(5)
