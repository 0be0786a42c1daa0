# RUN: %python %s
"""An MXFP4 linear layer, from float weights to a gfx950 program that runs, without the GPU, and is checked.

    y[64, 14336] = x[64, 4096] · wᵀ, both in MXFP4: fp4 elements and one E8M0 scale for each 32 of them

Weights are part of the program, packed into the ukernel's layout at compile time; activations are its inputs.
"""

from __future__ import annotations

import sys
import tempfile
import time

import numpy as np
from iree.compiler import ir

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats
from mxcomp.measuring import assembly

M, N, K = 64, 14336, 4096


def linear_layer(w_codes: np.ndarray, w_scales: np.ndarray) -> ir.Module:
    """A module with `linear(x: tensor<64x2048xi8>, x_scales: tensor<64x128xi8>) -> tensor<64x14336xf32>`."""

    def linear(x: ir.Value, x_scales: ir.Value) -> ir.Value:
        weights = mx.constant(w_codes, w_scales, formats.E2M1)
        return mx.scaled_matmul(mx.operand(x, x_scales, formats.E2M1), weights)

    return mx.module(linear, f"{M}x{K // 2}xi8", f"{M}x{K // formats.MX_BLOCK}xi8")


def main() -> int:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((N, K), np.float32) / np.sqrt(K, dtype=np.float32)
    x = rng.standard_normal((M, K), np.float32)
    (w, w_scales), (xq, x_scales) = (formats.quantise(data, formats.E2M1) for data in (weights, x))

    module = linear_layer(w, w_scales)
    with tempfile.TemporaryDirectory() as directory:
        program = mxcomp.compile(module, target="gfx950", iree_flags=(f"{assembly.FLAG}={directory}",))
        kernels = assembly.read_dump(directory)
    program.report.print(sys.stdout)
    print(f"vmfb: {len(program.vmfb):,} bytes")

    kernel = next(kernel for kernel in kernels if kernel.count("v_mfma_scale"))
    print(f"\n{kernel.name}: {kernel.vgprs} VGPRs, {kernel.lds_bytes} bytes of LDS, {kernel.scratch_bytes} of scratch")
    for mnemonic, count in kernel.instructions.most_common(8):
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
