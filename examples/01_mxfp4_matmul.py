# RUN: %python %s
"""An MXFP4 linear layer, from float weights to a gfx950 program that runs, without the GPU, and is checked.

    y[64, 14336] = x[64, 4096] · wᵀ, both in MXFP4: fp4 elements and one E8M0 scale for each 32 of them

Weights are part of the program, packed into the ukernel's layout at compile time; activations are its inputs.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
from iree.compiler import ir

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats
from mxcomp.sim import Kernel, code_object
from mxcomp.sim.program import program_of

M, N, K = 64, 14336, 4096


def linear_layer(w_codes: np.ndarray, w_scales: np.ndarray) -> ir.Module:
    """A module with `linear(x: tensor<64x2048xi8>, x_scales: tensor<64x128xi8>) -> tensor<64x14336xf32>`."""

    def linear(x: ir.Value, x_scales: ir.Value) -> ir.Value:
        weights = mx.constant(w_codes, w_scales, formats.E2M1)
        return mx.scaled_matmul(mx.operand(x, x_scales, formats.E2M1), weights)

    return mx.module(linear, f"{M}x{K // 2}xi8", f"{M}x{K // formats.MX_BLOCK}xi8")


def mixes(program: mxcomp.Program) -> Iterator[tuple[Kernel, Counter[str]]]:
    """The kernels of a program, and how often each has each instruction."""
    for image in code_object.images(program.vmfb):
        for kernel in code_object.load(image).kernels.values():
            yield kernel, Counter(each.mnemonic for each in program_of(kernel).instructions.values())


def main() -> int:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((N, K), np.float32) / np.sqrt(K, dtype=np.float32)
    x = rng.standard_normal((M, K), np.float32)
    (w, w_scales), (xq, x_scales) = (formats.quantise(data, formats.E2M1) for data in (weights, x))

    module = linear_layer(w, w_scales)
    program = mxcomp.compile(module, target="gfx950")
    program.report.print(sys.stdout)
    print(f"vmfb: {len(program.vmfb):,} bytes")

    kernel, counts = next(each for each in mixes(program) if any(name.startswith("v_mfma_scale") for name in each[1]))
    print(f"\n{kernel.name}: {kernel.metadata.vgprs} VGPRs, {kernel.descriptor.lds_bytes} bytes of LDS")
    for mnemonic, count in counts.most_common(8):
        print(f"  {count:5d}  {mnemonic}")

    start = time.perf_counter()
    (y,) = program.run(formats.pack_bits(xq, formats.E2M1).view(np.int8), x_scales.view(np.int8), device="sim")
    seconds = time.perf_counter() - start
    pairs = ((xq, x_scales), (w, w_scales))
    a, b = (formats.dequantise(codes, scales, formats.E2M1, dtype=np.float64) for codes, scales in pairs)
    error, bound = np.max(np.abs(y - a @ b.T) / (np.abs(a) @ np.abs(b).T)), K * 2.0**-24
    print(f"\nrun on the simulated gfx950 through IREE's runtime, {seconds:.1f} s, all checks on")
    print(f"against float64 NumPy: largest error {error:.1e} of Σ|a·b|, bound {bound:.1e}")
    exact = x.astype(np.float64) @ weights.T.astype(np.float64)
    rms = np.sqrt(np.mean((y - exact) ** 2) / np.mean(exact**2))
    print(f"quantisation error against the unquantised layer: {100 * rms:.1f} % (rms)")
    return 0 if error <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
