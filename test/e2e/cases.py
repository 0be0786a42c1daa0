"""Problems that several test modules compile, each in one of the ways compilation can go."""

from __future__ import annotations

from functools import cache

from kernels import InPhases, Kernel, compiled_in_phases
from modules import Matmul, source

from mxcomp.compiler import Program

M128 = "mx_f4_f4_f32_m128_n256_k256"
M64 = "mx_f4_f4_f32_m64_n128_k512"
PARTS = ["pack_lhs", "pack_rhs", "pack_lhs_scale", "pack_rhs_scale", "matmul"]
CONSTANT_PARTS = ["pack_lhs", "pack_lhs_scale", "matmul"]

EXACT = Matmul(256, 512, 1024)
PADDED = Matmul(1000, 1040, 1056)
DYNAMIC = Matmul(1000, 1000, 1056, dynamic_m=True)
NARROW = Matmul(40, 300, 544)
CONSTANT = Matmul(200, 300, 544, constant_rhs=True)
UNFUSED = Matmul(256, 512, 1024, dynamic_m=True, form="unfused")
FP8_FP6 = Matmul(1000, 1000, 1056, dynamic_m=True, types=("f8E4M3FN", "f6E3M2FN"))
FP8_FP4 = Matmul(40, 300, 544, form="unfused", types=("f8E5M2", "f4E2M1FN"))
MATMULS = [EXACT, PADDED, DYNAMIC, NARROW, CONSTANT, UNFUSED]
MIXED = [FP8_FP6, FP8_FP4]


def built(matmul: Matmul, ukernels: str = "fastest", data_tiling: bool = True) -> tuple[Program, list[Kernel]]:
    """A program and its kernels, compiled once."""
    made = in_phases(source(matmul), ukernels, data_tiling)
    return made.program, made.kernels


def in_phases(text: str, ukernels: str = "fastest", data_tiling: bool = True) -> InPhases:
    """A module on its way, compiled once."""
    return _in_phases(text, ukernels, data_tiling)


@cache  # which tells a default from the same value given
def _in_phases(text: str, ukernels: str, data_tiling: bool) -> InPhases:
    return compiled_in_phases(text, ukernels=ukernels, data_tiling=data_tiling, versions=False)


def parts(matmul: Matmul, ukernels: str = "fastest") -> dict[str, Kernel]:
    """Kernels by what they do."""
    program, found = built(matmul, ukernels)
    return dict(zip(program.report.matmuls[0].dispatches, found, strict=True))
