# RUN: %python %s --scale=32 --tokens=70
"""A gated MLP in MXFP4 from bf16 activations: y = (silu(x·gateᵀ) · (x·upᵀ)) · downᵀ, each product of MX operands.

Weights are constants, packed at compile time. Activations are quantised in the program, before the first products and
again before the last one. Sizes are those of Llama 3 8B, divided by --scale for the simulated GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import arith, func, math
from ml_dtypes import bfloat16

import mxcomp
from mxcomp import formats, quantisation
from mxcomp.matching.canonical import scaled_matmul
from mxcomp.mlir import build

HIDDEN, INTERMEDIATE = 4096, 14336
ELEMENT, MODE = formats.E2M1, "even"


class Weights:
    """A random [n, k] matrix in MX: `elements` and `scales` as bytes, and the float64 `values` that they mean."""

    def __init__(self, rng: np.random.Generator, n: int, k: int) -> None:
        codes, self.scales = formats.quantise(rng.standard_normal((n, k), np.float32) / np.float32(k**0.5), ELEMENT)
        self.elements = formats.pack_bits(codes, ELEMENT).reshape(n, k // 32, -1)
        self.values = formats.dequantise(codes, self.scales, ELEMENT, dtype=np.float64)

    def constants(self) -> tuple[ir.Value, ir.Value]:
        """Elements [n, k/32, 32] and scales [n, k/32], where the insertion point is."""
        n, blocks = self.scales.shape
        elements, scales = (
            arith.ConstantOp(
                build.tensor_type(data.shape, "i8"), ir.DenseElementsAttr.get(np.ascontiguousarray(data).view(np.int8))
            ).result
            for data in (self.elements, self.scales)
        )
        return (
            build.bitcast(elements, build.tensor_type((n, blocks, 32), ELEMENT.mlir_type)),
            build.bitcast(scales, build.tensor_type((n, blocks), "f8E8M0FNU")),
        )


def gated_mlp(gate: Weights, up: Weights, down: Weights, tokens: int | None) -> ir.Module:
    """A module with `mlp(x: tensor<tokens x hidden x bf16>) -> tensor<tokens x hidden x bf16>`; None: dynamic."""
    hidden, intermediate = gate.values.shape[::-1]
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.create()
        x_type = build.tensor_type((tokens, hidden), "bf16")
        with ir.InsertionPoint(module.body):

            @func.FuncOp.from_py_func(x_type)
            def mlp(x: ir.Value) -> ir.Value:
                activations = quantisation.quantise(x, ELEMENT.mlir_type, MODE)
                factors = [_product(activations, weights) for weights in (gate, up)]
                between = _elementwise(build.tensor_type((tokens, intermediate), "bf16"), factors, _silu_product)
                y = _product(quantisation.quantise(between, ELEMENT.mlir_type, MODE), down)
                return _elementwise(x_type, [y], _bf16)

        module.operation.verify()
        return module


def _product(activations: tuple[ir.Value, ir.Value], weights: Weights) -> ir.Value:
    """[tokens, n] in f32."""
    elements, scales = activations
    w, w_scales = weights.constants()
    return scaled_matmul(elements, w, scales, w_scales)


def _elementwise(result: ir.RankedTensorType, inputs: list[ir.Value], body: Callable[..., ir.Value]) -> ir.Value:
    maps = [ir.AffineMap.get_identity(2)] * (len(inputs) + 1)
    init = build.empty(result, build.dynamic_sizes(inputs[0]))
    return build.generic(result, inputs, init, maps, ["parallel"] * 2, lambda *xs: body(*xs[:-1])).results[0]


def _silu_product(gate: ir.Value, up: ir.Value) -> ir.Value:
    one = arith.ConstantOp(gate.type, 1.0).result
    denominator = arith.AddFOp(math.ExpOp(arith.NegFOp(gate).result).result, one).result
    return _bf16(arith.MulFOp(arith.DivFOp(gate, denominator).result, up).result)


def _bf16(value: ir.Value) -> ir.Value:
    return arith.TruncFOp(ir.BF16Type.get(), value).result


def reference(x: np.ndarray, gate: Weights, up: Weights, down: Weights) -> np.ndarray:
    """The same in float64, rounded to bf16 and quantised where the program does so."""
    a = _quantised(x)
    g, u = a @ gate.values.T, a @ up.values.T
    return _quantised((g / (1 + np.exp(-g)) * u).astype(np.float32).astype(bfloat16)) @ down.values.T


def _quantised(x: np.ndarray) -> np.ndarray:
    return formats.dequantise(*formats.quantise(x, ELEMENT, MODE), ELEMENT, dtype=np.float64)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=16, help="divides hidden and intermediate size (default: 16)")
    parser.add_argument("--tokens", type=int, default=128)
    args = parser.parse_args(argv)
    hidden, intermediate = HIDDEN // args.scale, INTERMEDIATE // args.scale

    rng = np.random.default_rng(0)
    shapes = ((intermediate, hidden), (intermediate, hidden), (hidden, intermediate))
    weights = [Weights(rng, n, k) for n, k in shapes]
    start = time.perf_counter()
    program = mxcomp.compile(gated_mlp(*weights, args.tokens))
    print(f"compiled for gfx950 in {time.perf_counter() - start:.1f} s")
    program.report.print(sys.stdout)
    for name, matmul in zip(("gate", "up", "down"), program.report.matmuls, strict=True):
        print(f"{name:5} {', '.join(matmul.dispatches)}")

    x = rng.standard_normal((args.tokens, hidden), np.float32).astype(bfloat16)
    start = time.perf_counter()
    (y,) = program.run(x)
    print(f"run on the simulated gfx950, {time.perf_counter() - start:.1f} s")
    expected = reference(x, *weights)
    error = np.linalg.norm(y.astype(np.float64) - expected) / np.linalg.norm(expected)
    # A sum that rounds to the other side moves a bf16, and rarely an element, by one step.
    print(f"against float64 NumPy: error {error:.1e} of the result (Frobenius norms), bf16 rounds to 1.7e-03")
    return 0 if error < 5e-3 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
