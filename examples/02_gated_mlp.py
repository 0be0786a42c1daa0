# RUN: %python %s --scale=32 --tokens=70
# slow: with pytest -m slow only; test_requantised.py has the same program
"""A gated MLP in MXFP4 from bf16 activations: y = (silu(x·gateᵀ) · (x·upᵀ)) · downᵀ, each product of MX operands.

Weights are constants, packed at compile time. Activations are quantised in the program, before the first products and
again before the last one. Sizes are those of Llama 3 8B, divided by --scale for the simulated GPU.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from iree.compiler import ir
from ml_dtypes import bfloat16

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats

HIDDEN, INTERMEDIATE = 4096, 14336
ELEMENT, MODE = formats.E2M1, "even"


class Weights:
    """A random [n, k] matrix in MX: `codes` and `scales`, and the float64 `values` that they mean."""

    def __init__(self, rng: np.random.Generator, n: int, k: int) -> None:
        values = rng.standard_normal((n, k), np.float32) / np.float32(k**0.5)
        self.codes, self.scales = formats.quantise(values, ELEMENT)
        self.values = formats.dequantise(self.codes, self.scales, ELEMENT, dtype=np.float64)

    def constant(self) -> mx.Operand:
        """The matrix as a part of the program."""
        return mx.constant(self.codes, self.scales, ELEMENT)


def gated_mlp(gate: Weights, up: Weights, down: Weights, tokens: int | None) -> ir.Module:
    """A module with `mlp(x: tensor<tokens x hidden x bf16>) -> tensor<tokens x hidden x bf16>`; None: dynamic."""

    def mlp(x: ir.Value) -> ir.Value:
        activations = mx.quantise(x, ELEMENT, MODE)
        factors = [mx.scaled_matmul(activations, weights.constant()) for weights in (gate, up)]
        between = mx.quantise(mx.elementwise(_silu_product, *factors, result="bf16"), ELEMENT, MODE)
        y = mx.scaled_matmul(between, down.constant())
        return mx.elementwise(lambda value: value, y, result="bf16")

    return mx.module(mlp, f"{'?' if tokens is None else tokens}x{gate.values.shape[1]}xbf16")


def _silu_product(gate: ir.Value, up: ir.Value) -> ir.Value:
    return mx.multiply(mx.divide(gate, mx.add(mx.exp(mx.subtract(0.0, gate)), 1.0)), up)


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
