"""Writes golden/*.npz: what torchao makes of the inputs in mx_vectors.

    python test/formats/make_golden.py

needs torchao 0.18 with a CPU build of torch 2.13 on an x86-64 machine with AVX2. Rewrites the files in place; without
a change in torchao or in mx_vectors their arrays stay the same.
"""

from __future__ import annotations

from pathlib import Path

import mx_vectors
import numpy as np
import torch
from numpy.typing import NDArray
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_mx

GOLDEN = Path(__file__).parent / "golden"

ELEMENT_DTYPES = {
    "E2M1": torch.float4_e2m1fn_x2,
    "E2M3": "fp6_e2m3",
    "E3M2": "fp6_e3m2",
    "E4M3": torch.float8_e4m3fn,
    "E5M2": torch.float8_e5m2,
}


def torchao_quantize(
    bits: NDArray[np.uint32] | NDArray[np.uint16], fmt: str, mode: str
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Codes (one per byte) and scales that torchao gives bit patterns of float32 (uint32) or bfloat16 (uint16)."""
    torch_dtype = torch.float32 if bits.dtype == np.uint32 else torch.bfloat16
    signed = bits.view(np.int32 if bits.dtype == np.uint32 else np.int16)
    x = torch.from_numpy(np.ascontiguousarray(signed)).view(torch_dtype)
    scales, data = to_mx(x, ELEMENT_DTYPES[fmt], 32, ScaleCalculationMode(mode))
    codes = data.view(torch.uint8).numpy()
    if fmt == "E2M1":
        codes = np.stack([codes & 0xF, codes >> 4], axis=-1).reshape(bits.shape)
    return codes, scales.view(torch.uint8).numpy()


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    maxima = mx_vectors.block_maxima()
    alone = np.zeros((len(maxima), 32), np.uint32)
    alone[:, 0] = maxima
    scales = {
        f"{fmt}_scales": np.stack([torchao_quantize(alone, fmt, mode)[1][:, 0] for mode in mx_vectors.MODES])
        for fmt in mx_vectors.FORMAT_NAMES
    }
    np.savez_compressed(GOLDEN / "torchao_scales.npz", maxima=maxima, **scales)

    float32 = mx_vectors.blocks(np.arange(255))
    inputs = {"float32": float32, "bfloat16": mx_vectors.as_bfloat16(float32[::2])}
    for name, bits in inputs.items():
        arrays: dict[str, NDArray[np.generic]] = {"input": bits}
        for fmt in mx_vectors.FORMAT_NAMES:
            codes, scales_by_mode = zip(*(torchao_quantize(bits, fmt, mode) for mode in mx_vectors.MODES), strict=True)
            arrays[f"{fmt}_codes"] = np.stack(codes)
            arrays[f"{fmt}_scales"] = np.stack(scales_by_mode)
        np.savez_compressed(GOLDEN / f"torchao_{name}.npz", **arrays)


if __name__ == "__main__":
    main()
