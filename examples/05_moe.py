# RUN: %python %s
# RUN: %python %s --activations=E4M3
# RUN: %python %s --activations=bf16
"""A mixture of experts as GPT-OSS has it, from logits of a router to the sum over experts, on the simulated GPU.

Experts are chosen on the device (softmax over the top-k logits), tokens are sorted by expert, gate and up projections,
whose rows alternate in one tensor, multiply each block of rows with its expert's MXFP4 weights, a clamped SwiGLU is
quantised again, to MXFP4 or MXFP8, where they are computed, and the down projections are weighted and added up: six
dispatches. Neither tokens nor weights are gathered in memory. Compared with float64 NumPy.

With `--activations=bf16` nothing is quantised: kernels dequantise weights in registers; one dispatch more.

python examples/05_moe.py                            # small
python examples/05_moe.py --activations=E4M3
python examples/05_moe.py --activations=bf16
python examples/05_moe.py --hidden=2880 --inner=2880 --experts=32 --tokens=64     # GPT-OSS 20B: minutes
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from iree.compiler import ir

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats, moe, routing

ELEMENT, MODE = formats.E2M1, "even"
BF16 = "bf16"
MOST_DISPATCHES = {ELEMENT.name: 6, formats.E4M3.name: 7, BF16: 7}
RULE = routing.gpt_oss(4)


@dataclass(frozen=True)
class Matrices:
    """Random [E, N, K] in MXFP4, biases [E, N], and the float64 values that the codes mean."""

    codes: np.ndarray
    scales: np.ndarray
    bias: np.ndarray
    values: np.ndarray

    @staticmethod
    def random(rng: np.random.Generator, experts: int, n: int, k: int) -> Matrices:
        codes, scales = formats.quantise(rng.standard_normal((experts, n, k), np.float32) / np.float32(k**0.5), ELEMENT)
        bias = rng.standard_normal((experts, n), np.float32) / 8
        return Matrices(codes, scales, bias, formats.dequantise(codes, scales, ELEMENT, dtype=np.float64))

    def constant(self) -> mx.Operand:
        return mx.constant(self.codes, self.scales, ELEMENT)


def module(tokens: int, block_m: int, activations: str, gate_up: Matrices, down: Matrices) -> ir.Module:
    """`layer(x: [T, H] bf16, logits: [T, E] f32, two biases: [E, N] f32) -> [T, H] bf16`."""
    experts, hidden, inner = down.values.shape

    def layer(x: ir.Value, logits: ir.Value, *biases: ir.Value) -> ir.Value:
        found = routing.route(logits, RULE, block_m)
        parts = [moe.Experts(part.constant(), bias) for part, bias in zip((gate_up, down), biases, strict=True)]
        if activations == BF16:
            return moe.gated_layer(x, *parts, found, None, moe.clamped_swiglu)
        return moe.gated_layer(mx.quantise(x, activations, MODE), *parts, found, activations, moe.clamped_swiglu)

    biases = [f"{experts}x{n}xf32" for n in (2 * inner, hidden)]
    return mx.module(layer, f"{tokens}x{hidden}xbf16", f"{tokens}x{experts}xf32", *biases)


def expected(x: np.ndarray, logits: np.ndarray, activations: str, gate_up: Matrices, down: Matrices) -> np.ndarray:
    """The same in float64, token by token, rounded where the program does so."""
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, : RULE.top_k]
    powers = np.exp(np.take_along_axis(logits, chosen, 1).astype(np.float64))
    weights = powers / powers.sum(axis=1, keepdims=True)
    a, out = rounded(x, activations), np.zeros(x.shape)
    for token, (experts, factors) in enumerate(zip(chosen, weights, strict=True)):
        for expert, factor in zip(experts, factors, strict=True):
            both = gate_up.values[expert] @ a[token] + gate_up.bias[expert]
            g, u = np.minimum(both[::2], 7.0), np.clip(both[1::2], -7.0, 7.0)
            between = rounded((g / (1 + np.exp(-1.702 * g)) * (u + 1)).astype(np.float32)[None], activations)[0]
            out[token] += factor * (down.values[expert] @ between + down.bias[expert])
    return out


def rounded(x: np.ndarray, activations: str) -> np.ndarray:
    if activations == BF16:
        return x.astype(ml_dtypes.bfloat16).astype(np.float64)
    return formats.dequantise(*formats.quantise(x, activations, MODE), activations, dtype=np.float64)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, size in (("tokens", 12), ("hidden", 96), ("inner", 160), ("experts", 8), ("block-m", 16)):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--activations", choices=[*MOST_DISPATCHES], default=ELEMENT.name)
    args = parser.parse_args()
    rng = np.random.default_rng(7)
    shapes = [(2 * args.inner, args.hidden), (args.hidden, args.inner)]
    parts = [Matrices.random(rng, args.experts, n, k) for n, k in shapes]
    program = mxcomp.compile(module(args.tokens, args.block_m, args.activations, *parts))
    program.report.print(sys.stdout)

    x = rng.standard_normal((args.tokens, args.hidden), np.float32).astype(ml_dtypes.bfloat16)
    logits = rng.standard_normal((args.tokens, args.experts), np.float32)
    arrays = (x, logits, *(part.bias for part in parts))
    start = time.perf_counter()
    (y,) = program.run(*arrays)
    print(f"\nrun on the simulated gfx950, {time.perf_counter() - start:.1f} s, all checks on")
    profile = program.profile(*arrays)
    for dispatch in profile.dispatches:
        us = "-" if dispatch.modelled is None else f"{dispatch.modelled.us:6.1f} µs modelled"
        print(f"  {us}  {dispatch.kernel}")

    right = expected(x.astype(np.float32), logits, args.activations, *parts)
    error = np.sqrt(np.mean((y.astype(np.float64) - right) ** 2) / np.mean(right**2))
    print(f"{len(profile.dispatches)} dispatches; against float64 NumPy: {error:.1e} (rms), bound 1e-02")
    # A hidden value that lies between two codes may be rounded to either: f32 sums are in another order than NumPy's.
    return int(not (error < 1e-2 and len(profile.dispatches) <= MOST_DISPATCHES[args.activations]))


if __name__ == "__main__":
    raise SystemExit(main())
