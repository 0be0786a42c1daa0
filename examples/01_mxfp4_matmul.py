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
from mxcomp import assembly, formats
from mxcomp.matching.canonical import scaled_matmul
from mxcomp.mlir import build

M, N, K = 64, 14336, 4096


def quantise(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[rows, K/2] bytes of fp4 and [rows, K/32] scales of a float32 array."""
    codes, scales = formats.quantise(x, formats.E2M1)
    return formats.pack_bits(codes, formats.E2M1), scales


def linear_layer(weights: np.ndarray, scales: np.ndarray) -> ir.Module:
    """A module with `linear(x: tensor<64x2048xi8>, x_scales: tensor<64x128xi8>) -> tensor<64x14336xf32>`."""
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.create()
        blocks = K // formats.BLOCK_SIZE
        x_type, xs_type = (build.tensor_type(shape, "i8") for shape in ((M, K // 2), (M, blocks)))
        with ir.InsertionPoint(module.body):
            from iree.compiler.dialects import arith, func

            @func.FuncOp.from_py_func(x_type, xs_type)
            def linear(x: ir.Value, x_scales: ir.Value) -> ir.Value:
                w, w_scales = (
                    arith.ConstantOp(
                        build.tensor_type(data.shape, "i8"), ir.DenseElementsAttr.get(data.view(np.int8))
                    ).result
                    for data in (weights, scales)
                )
                inputs = [
                    build.bitcast(value, build.tensor_type(shape, element))
                    for value, shape, element in (
                        (x, (M, blocks, 32), "f4E2M1FN"),
                        (w, (N, blocks, 32), "f4E2M1FN"),
                        (x_scales, (M, blocks), "f8E8M0FNU"),
                        (w_scales, (N, blocks), "f8E8M0FNU"),
                    )
                ]
                return scaled_matmul(*inputs)

        return module


def dequantized(packed: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """float64 values of what `quantise` returned."""
    codes = formats.unpack_bits(packed, formats.E2M1)
    return formats.dequantise(codes, scales, formats.E2M1, dtype=np.float64)


def main() -> int:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((N, K), np.float32) / np.sqrt(K, dtype=np.float32)
    x = rng.standard_normal((M, K), np.float32)
    (w, w_scales), (xq, x_scales) = quantise(weights), quantise(x)

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
    (y,) = program.run(xq.view(np.int8), x_scales.view(np.int8), device="sim")
    seconds = time.perf_counter() - start
    a, b = dequantized(xq, x_scales), dequantized(w, w_scales)
    error, bound = np.max(np.abs(y - a @ b.T) / (np.abs(a) @ np.abs(b).T)), K * 2.0**-24
    print(f"\nrun on the simulated gfx950 through IREE's runtime, {seconds:.1f} s, all checks on")
    print(f"against float64 NumPy: largest error {error:.1e} of Σ|a·b|, bound {bound:.1e}")
    exact = x.astype(np.float64) @ weights.T.astype(np.float64)
    rms = np.sqrt(np.mean((y - exact) ** 2) / np.mean(exact**2))
    print(f"quantisation error against the unquantised layer: {100 * rms:.1f} % (rms)")
    return 0 if error <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
