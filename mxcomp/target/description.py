"""A GPU as the compiler sees it: a frozen description that is passed along, never global."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MatrixInstruction:
    """A matrix instruction of a GPU, by IREE's name; `mxcomp.layout` has lane layouts of scaled ones.

    Attributes:
        lhs, rhs: MLIR types of elements that each of its factors may have.
        scale: Type of the scales of a scaled one.
        block: Elements along K that share one.
    """

    name: str
    lhs: frozenset[str]
    rhs: frozenset[str]
    scale: str | None = None
    block: int | None = None


@dataclass(frozen=True)
class Target:
    """A GPU. Sizes are in bytes.

    Attributes:
        name: What `--target` calls it.
        arch: What LLVM, and IREE with it, calls its instruction set: several GPUs may have the same.
        products: Other names that IREE has for it.
        wave_size: Lanes of a wave.
        cus, xcds, simds: Compute units; dies that they are on, each with an L2 of its own; SIMDs of a compute unit.
        waves_per_simd: That a SIMD keeps at most.
        registers, register_granule: Vector registers of a lane that the waves on a SIMD share, and how many a wave
            takes at a time.
        lds_bytes, lds_granule: Of a compute unit; what a workgroup takes at a time.
        max_workgroup_threads: Of a workgroup.
        max_buffer_bytes: Bounds every operand and result of one dispatch, because buffer instructions take signed
            32-bit offsets.
        clock_ghz: The highest clock, whose cycles the timing model counts.
        matrix_instructions: By format and shape.
        conversions: MLIR types of elements, from and to, between which an instruction converts with a scale.
        timing: The file of the timing model with what was measured of it (`mxcomp.sim.timing`).
    """

    name: str
    arch: str
    products: tuple[str, ...]
    wave_size: int
    cus: int
    xcds: int
    simds: int
    waves_per_simd: int
    registers: int
    register_granule: int
    lds_bytes: int
    lds_granule: int
    max_workgroup_threads: int
    max_buffer_bytes: int
    clock_ghz: float
    matrix_instructions: tuple[MatrixInstruction, ...]
    conversions: frozenset[tuple[str, str]]
    timing: str

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def iree_flags(self) -> tuple[str, ...]:
        return ("--iree-hal-target-device=hip", f"--iree-rocm-target={self.arch}")

    def lacks_instruction(self, name: str, types: Sequence[str]) -> str:
        """Returns why there is no such matrix instruction for these types of LHS, RHS and scales. "" if there is
        one."""
        found = next((each for each in self.matrix_instructions if each.name == name), None)
        if found is None:
            return f"{self.name} has no {name}"
        for kind, factor in zip(types[:2], (found.lhs, found.rhs), strict=True):
            if kind not in factor:
                return f"{name} of {self.name} takes no {kind}"
        other = next((kind for kind in types[2:4] if kind != found.scale), None)
        return "" if other is None else f"{name} of {self.name} takes scales of {found.scale}, not {other}"

    def lacks_short_products(self, kind: str) -> str:
        """Returns why there is no matrix instruction of 16x16x32 for a type of 16 bits; "" if there is one."""
        return self.lacks_instruction(f"MFMA_F32_16x16x32_{kind.upper()}", (kind, kind))

    def lacks_lds(self, wanted: int) -> str:
        """Returns why a workgroup cannot have so many bytes of LDS; "" if it can."""
        return "" if wanted <= self.lds_bytes else f"{self.name} has {self.lds_bytes} bytes of LDS, not {wanted}"

    def lacks_conversion(self, source: str, result: str) -> str:
        """Returns why there is no such conversion instruction with a scale; "" if there is one."""
        has_it = (source, result) in self.conversions
        return "" if has_it else f"{self.name} has no instruction that converts {source} to {result} with a scale"
