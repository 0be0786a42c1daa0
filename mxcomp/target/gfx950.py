"""Describes MI350X and MI355X (CDNA4)."""

from __future__ import annotations

from itertools import product

from mxcomp.target.description import MatrixInstruction, Target

_MX = frozenset({"f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "f8E4M3FN", "f8E5M2"})
_WIDE = ("f32", "f16", "bf16")
_SCALE, _BLOCK = "f8E8M0FNU", 32


def _scaled(shape: str) -> MatrixInstruction:
    """Returns v_mfma_scale_f32_*_f8f6f4 (CDNA4 ISA, section 7.1.5)."""
    return MatrixInstruction(f"MFMA_SCALE_F32_{shape}_B32", _MX, _MX, _SCALE, _BLOCK)


TARGET = Target(
    name="gfx950",
    arch="gfx950",
    products=("mi350x", "mi355x"),
    wave_size=64,
    cus=256,
    xcds=8,
    simds=4,
    waves_per_simd=8,
    registers=512,
    register_granule=8,
    lds_bytes=160 * 1024,
    lds_granule=1280,
    max_workgroup_threads=1024,
    max_buffer_bytes=2**31 - 1,
    clock_ghz=2.4,  # MI355X data sheet, peak engine clock
    matrix_instructions=(
        _scaled("16x16x128"),
        _scaled("32x32x64"),
        MatrixInstruction("MFMA_F32_16x16x32_BF16", frozenset({"bf16"}), frozenset({"bf16"})),
        MatrixInstruction("MFMA_F32_16x16x32_F16", frozenset({"f16"}), frozenset({"f16"})),
    ),
    conversions=frozenset({*product(_WIDE, _MX), *product(_MX, ("bf16", "f16"))}),
    timing="mi355x.toml",
)
