# RUN: %python %s
"""Weights from a checkpoint: an MXFP4 linear layer whose parameters are packed offline, once, by mxcomp-pack.

A program that is compiled for parameters as they are packs them on the GPU whenever it is loaded. With packed
parameters it asks for them in its own layout, under keys of their own, and its manifest says what is in them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import mxcomp
from mxcomp import formats
from mxcomp.tools import pack
from mxcomp.weights.checkpoint import Checkpoint

MODEL = Path(__file__).with_suffix(".mlir")
M, N, K = 64, 512, 512


def quantise(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[rows, K/2] bytes of fp4 and [rows, K/32] scales of a float32 array."""
    codes, scales = formats.quantise(x, formats.E2M1)
    return formats.pack_bits(codes, formats.E2M1), scales


def dequantized(packed: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """float64 values of what `quantise` returned."""
    codes = formats.unpack_bits(packed, formats.E2M1)
    return formats.dequantise(codes, scales, formats.E2M1, dtype=np.float64)


def write_checkpoint(path: Path, rng: np.random.Generator) -> None:
    """A layer as AMD Quark publishes it: `weight` has two codes a byte, the even K in the low nibble."""
    weight, scales = quantise(rng.standard_normal((N, K), np.float32) / np.sqrt(K, dtype=np.float32))
    bias = rng.standard_normal(N, np.float32)
    save_file({"fc.weight": weight, "fc.weight_scale": scales, "fc.bias": bias}, path)


def main(directory: Path) -> int:
    rng = np.random.default_rng(0)
    published, manifest, archive = (directory / name for name in ("fc.safetensors", "manifest.json", "packed.irpa"))
    write_checkpoint(published, rng)
    x, x_scales = quantise(rng.standard_normal((M, K), np.float32))

    unpacked = mxcomp.compile(MODEL)
    packed = mxcomp.compile(MODEL, packed_parameters=True)
    assert packed.report.manifest is not None
    manifest.write_text(packed.report.manifest.to_json())
    if pack.main([str(published), f"--manifest={manifest}", "-o", str(archive)]):
        return 1
    print("mxcomp-pack fc.safetensors --manifest=manifest.json -o packed.irpa")
    for key, tensor in Checkpoint.read(archive).items():
        print(f"  {tensor.data.size:9,} bytes  {key}")

    weights, stored = Checkpoint.read(published).mx_weights("fc"), Checkpoint.read(published)
    a, b = dequantized(x, x_scales), dequantized(weights.elements, weights.scales)
    bias = stored["fc.bias"].data.view(np.float32).astype(np.float64)
    exact, magnitude, bound = a @ b.T + bias, np.abs(a) @ np.abs(b).T + np.abs(bias), (K + 1) * 2.0**-24
    worst = 0.0
    for name, program, file in (("as published", unpacked, published), ("packed offline", packed, archive)):
        (y,) = program.run(x.view(np.int8), x_scales.view(np.int8), parameters={"model": file})
        error = float(np.max(np.abs(y - exact) / magnitude))
        dispatches = program.report.matmuls[0].dispatches
        print(f"\nparameters {name}, on the simulated gfx950: {len(dispatches)} dispatches: {', '.join(dispatches)}")
        print(f"  largest error against float64 NumPy {error:.1e} of Σ|a·b| + |bias|, bound {bound:.1e}")
        worst = max(worst, error)
    packing = [name for name in packed.report.matmuls[0].dispatches if name.startswith("pack_rhs")]
    return 0 if worst <= bound and not packing else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        sys.exit(main(Path(name)))
