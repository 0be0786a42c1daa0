"""A model's layers, which are alike: what they share when they are compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import tensor

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats
from mxcomp.mlir import build, graph

ROWS, SIZE = 20, 128


def layers(count: int) -> ir.Module:
    """x · wᵀ, quantised for the next layer, so many times; every layer has a weight of its own."""

    def main(x: ir.Value, *weights: ir.Value) -> ir.Value:
        for elements, scales in zip(weights[::2], weights[1::2], strict=True):
            x = mx.scaled_matmul(mx.quantise(x, "E2M1"), mx.operand(elements, scales, "E2M1"))
        return x

    weight = (f"{SIZE}x{SIZE // 2}xi8", f"{SIZE}x{SIZE // 32}xi8")
    return mx.module(main, f"{SIZE}x{SIZE}xf32", *weight * count)


def stacked(order: Sequence[int], count: int) -> ir.Module:
    """x · w[i]ᵀ for layer after layer in an order, all of one stack of weights [count, SIZE, SIZE]."""

    def part(stack: ir.Value, layer: int) -> ir.Value:
        _, *sizes = shape = ir.RankedTensorType(stack.type).shape
        result, offsets = build.tensor_type(sizes, build.element(stack)), [layer] + [0] * len(sizes)
        return tensor.ExtractSliceOp(result, stack, [], [], [], offsets, [1, *sizes], [1] * len(shape)).result

    def main(x: ir.Value, elements: ir.Value, scales: ir.Value) -> ir.Value:
        for layer in order:
            weight = mx.operand(part(elements, layer), part(scales, layer), "E2M1")
            x = mx.scaled_matmul(mx.quantise(x, "E2M1"), weight)
        return x

    return mx.module(main, f"{ROWS}x{SIZE}xf32", f"{count}x{SIZE}x{SIZE // 2}xi8", f"{count}x{SIZE}x{SIZE // 32}xi8")


def executables(model: ir.Module, phase: str) -> int:
    """How many a model has at the end of a phase of IREE's."""
    text = mxcomp.compile(model, compile_to=phase).vmfb.decode()
    with ir.Context() as context:
        context.load_all_available_dialects()
        module = ir.Module.parse(text)
        return sum(op.name == "flow.executable" for op in graph.walk(module.operation))


def test_layers_share_executables_from_the_start() -> None:
    assert 0 < executables(layers(8), "input") == executables(layers(5), "input")


def test_layers_of_one_stack_share_executables() -> None:
    assert 0 < executables(stacked(range(5), 5), "flow") == executables(stacked(range(3), 3), "flow")


def test_layers_of_one_stack_read_their_own_slices() -> None:
    rng, count, order = np.random.default_rng(7), 4, (2, 0, 3)
    codes = rng.integers(0, 16, (count, SIZE, SIZE), dtype=np.uint8)
    scales = rng.integers(126, 129, (count, SIZE, SIZE // 32), dtype=np.uint8)
    x = rng.integers(-8, 9, (ROWS, SIZE)).astype(np.float32)
    weights = (formats.pack_bits(codes, "E2M1").view(np.int8), scales.view(np.int8))
    (found,) = mxcomp.compile(stacked(order, count), strict=True).run(x, *weights)
    expected = x
    for layer in order:  # sums of few digits, which f32 has exactly
        sides = (*formats.quantise(expected, "E2M1"), "E2M1", codes[layer], scales[layer], "E2M1")
        exact = formats.matmul(*sides)
        expected = exact.astype(np.float32)
        np.testing.assert_array_equal(expected, exact)
    np.testing.assert_array_equal(found, expected)
