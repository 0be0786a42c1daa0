"""Every ukernel of the package, compiled for gfx950 in a problem that fits it: what the kernel consists of."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory

import pytest
from iree.compiler import ir

import mxcomp
from mxcomp.assembly import FLAG, KernelAssembly, read_dump
from mxcomp.target import get_target
from mxcomp.ukernels import Constraint, Registry, Ukernel, read

HERE = Path(__file__).parent
TARGET = get_target("gfx950")
FILES = sorted((HERE.parent.parent / "ukernels" / TARGET.arch).glob("*.mlir"))
MODULE = Template((HERE / "matmul.mlir.in").read_text())
GOLDEN = HERE / "golden.json"

SIMDS = 4  # of a compute unit; each has the registers below
VECTOR_REGISTERS = 512
_MFMA = re.compile(r"v_mfma_scale_f32_(\d+)x(\d+)x(\d+)_f8f6f4")
_LOAD = re.compile(r"(?:buffer|global|flat)_load_(?:lds_)?(\w+)")
_DWORDS = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4}

each_ukernel = pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])


def test_there_are_ukernels() -> None:
    with ir.Context(), ir.Location.unknown():
        assert sorted(Registry(TARGET.arch).ukernels) == [path.stem for path in FILES] != []


@each_ukernel
def test_rule(path: Path) -> None:
    with ir.Context(), ir.Location.unknown():
        ukernel = read(path)
        ukernel.function()
    assert ukernel.name == path.stem
    assert TARGET.arch in ukernel.archs
    assert math.prod(ukernel.workgroup_size) % TARGET.subgroup_size == 0
    assert ukernel.mismatch(TARGET.arch, ukernel.types, _fitting_sizes(ukernel)) == ""


@each_ukernel
def test_multiplies_by_scaled_mfma(path: Path) -> None:
    """One K tile takes a wave so many MFMA; code may hold several K tiles, never parts of one."""
    compiled = _compiled(path)
    (mnemonic,) = (name for name in compiled.kernel.instructions if name.startswith("v_mfma"))
    m, n, k = map(int, _MFMA.fullmatch(mnemonic).groups())
    waves = math.prod(compiled.ukernel.workgroup_size) // TARGET.subgroup_size
    per_tile = math.prod(compiled.ukernel.tile) // (m * n * k * waves)
    if layout := compiled.ukernel.layout:
        assert per_tile == layout.intrinsics_m * layout.intrinsics_n * layout.intrinsics_k
    count = compiled.kernel.count("v_mfma_scale")
    assert count > 0
    assert count % per_tile == 0


@each_ukernel
def test_keeps_everything_in_registers(path: Path) -> None:
    kernel = _compiled(path).kernel
    assert kernel.scratch_bytes == 0
    assert kernel.spills == 0
    assert kernel.count("scratch_") == 0


@each_ukernel
def test_fits_a_compute_unit(path: Path) -> None:
    compiled = _compiled(path)
    waves_per_simd = math.ceil(math.prod(compiled.ukernel.workgroup_size) / TARGET.subgroup_size / SIMDS)
    assert compiled.kernel.vgprs * waves_per_simd <= VECTOR_REGISTERS
    assert compiled.kernel.lds_bytes <= TARGET.max_workgroup_memory_bytes


@each_ukernel
def test_loads_elements_128_bits_at_a_time(path: Path) -> None:
    """Narrower loads are left for scales: 1/16 of the elements' bytes, loaded at most twice as often; none of bytes."""
    loads = _compiled(path).loads
    assert set(loads) <= set(_DWORDS), f"loads of less than 32 bits: {loads}"
    wide = 4 * loads["dwordx4"]
    narrow = sum(count * _DWORDS[width] for width, count in loads.items() if width != "dwordx4")
    assert wide > 0
    assert narrow * 8 <= wide


@each_ukernel
def test_golden_figures(path: Path, request: pytest.FixtureRequest) -> None:
    """MFMA and bytes of LDS are as they were, registers no more; --update-golden accepts others."""
    kernel = _compiled(path).kernel
    found = {"mfma": kernel.count("v_mfma_scale"), "lds_bytes": kernel.lds_bytes, "vgprs": kernel.vgprs}
    golden = json.loads(GOLDEN.read_text())
    if request.config.getoption("--update-golden"):
        stems = {file.stem for file in FILES}
        kept = {name: figures for name, figures in golden.items() if name in stems}
        GOLDEN.write_text(json.dumps(kept | {path.stem: found}, indent=2, sort_keys=True) + "\n")
        return
    assert path.stem in golden, "no figures yet: python -m pytest test/ukernels --update-golden"
    expected = golden[path.stem]
    assert {**found, "vgprs": 0} == {**expected, "vgprs": 0}
    assert found["vgprs"] <= expected["vgprs"]


@dataclass(frozen=True)
class _Compiled:
    ukernel: Ukernel
    kernel: KernelAssembly

    @property
    def loads(self) -> dict[str, int]:
        """Loads from memory by width."""
        found = ((_LOAD.fullmatch(name), count) for name, count in self.kernel.instructions.items())
        return {match[1]: count for match, count in found if match}


@cache
def _compiled(path: Path) -> _Compiled:
    with ir.Context(), ir.Location.unknown():
        ukernel = read(path)
    sizes = _fitting_sizes(ukernel)
    source = MODULE.substitute(sizes, blocks=sizes["k"] // 32, bytes=sizes["k"] // 2)
    with TemporaryDirectory() as directory:
        program = mxcomp.compile(
            source,
            data_tiling=ukernel.operands == "data_tiled",
            ukernels=ukernel.name,
            iree_flags=[f"{FLAG}={directory}"],
        )
        kernels = read_dump(directory)
    (matmul,) = program.report.matmuls
    assert (matmul.ukernel, matmul.reason) == (ukernel.name, None)
    (kernel,) = (kernel for kernel in kernels if kernel.count("v_mfma"))
    return _Compiled(ukernel, kernel)


def _fitting_sizes(ukernel: Ukernel) -> dict[str, int]:
    """A problem of a few tiles in each direction that satisfies the ukernel's rule."""
    counts = {"m": 2, "n": 2, "k": 8}
    tiles = dict(zip("mnk", ukernel.tile, strict=True))
    return {axis: _fitting_size(ukernel.constraints.get(axis), tiles[axis], counts[axis]) for axis in "mnk"}


def _fitting_size(rule: Constraint | None, tile: int, count: int) -> int:
    rule = rule or Constraint()
    size = min(max(tile * count, rule.min or 1), rule.max or 2**31)
    step = rule.div or 1
    return size // step * step
