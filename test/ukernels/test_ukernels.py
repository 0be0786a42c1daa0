"""Every ukernel file of the package, and instances of the family of all widths, compiled for gfx950 in a problem that
fits it: what the kernel consists of."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest
from assembly import FLAG, KernelAssembly, read_dump
from iree.compiler import ir
from spread import every

import mxcomp
from mxcomp.formats import element_format
from mxcomp.layout.problem import Problem
from mxcomp.measuring.subject import RESULT_BYTES
from mxcomp.registry import Constraint, Registry, Ukernel, read
from mxcomp.target import get_target
from mxcomp.ukernels import KINDS, PLAIN_KINDS, data_tiled, family, gating

HERE = Path(__file__).parent
TARGET = get_target("gfx950")
UKERNELS = HERE.parent.parent / "ukernels" / TARGET.arch
FILES = sorted(UKERNELS.glob("*.mlir"))
PAIRS = (("f4E2M1FN", "f4E2M1FN"), ("f6E2M3FN", "f6E3M2FN"), ("f8E4M3FN", "f8E5M2"), ("f8E4M3FN", "f4E2M1FN"))
PLAIN = [each for kind in PLAIN_KINDS for each in kind.INSTANCES]
INSTANCES = [each for each in PLAIN if each.elements in PAIRS and not each.tile.lhs_row_major]
NAMES = [*(path.stem for path in FILES), *(instance.name for instance in INSTANCES)]
BY_DEFAULT = ("m256_n256_k512", "m16_n32_k256_single_wave")
"""The tiles over inner tiles that run by default, with 4-bit elements."""
MODULE = Template((HERE / "matmul.mlir.in").read_text())
GOLDEN = HERE / "golden.json"

SIMDS = 4  # of a compute unit; each has the registers below
VECTOR_REGISTERS = 512
_MFMA = re.compile(r"v_mfma_scale_f32_(\d+)x(\d+)x(\d+)_f8f6f4")
_LOAD = re.compile(r"(?:buffer|global|flat)_load_(?:lds_)?(\w+)")
_DWORDS = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4}
_WIDE = ("dwordx3", "dwordx4")


def _slow(name: str) -> bool:
    place, found = next(((i, each) for i, each in enumerate(INSTANCES) if each.name == name), (0, None))
    if found is None or found.layout.inner_tiles is None:
        return found is not None and place % 5 > 0
    return found.elements != PAIRS[0] or not name.endswith(BY_DEFAULT)


each_ukernel = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if _slow(name) else name for name in NAMES]
)


def test_there_are_ukernels() -> None:
    with ir.Context(), ir.Location.unknown():
        ukernels = Registry(TARGET).ukernels
    assert sorted(name for name, ukernel in ukernels.items() if ukernel.instance is None) == [f.stem for f in FILES]
    assert len(ukernels) == len(FILES) + sum(len(kind.INSTANCES) for kind in KINDS)
    assert all(len([each for each in data_tiled.INSTANCES if each.tile == tile]) == 25 for tile in data_tiled.TILES)
    assert all(ukernel.benefit < 1 for ukernel in ukernels.values() if ukernel.instance), "files come first"


@pytest.mark.parametrize(
    "instance",
    every(12, [*PLAIN, *gating.INSTANCES]),
    ids=lambda instance: instance.name,
)
def test_instances_are_as_their_text_says(instance: family.Instance, tmp_path: Path) -> None:
    """The registry has the match rule that stands in the text, which a file of one's own may hold."""
    file = tmp_path / "instance.mlir"
    with ir.Context(), ir.Location.unknown():
        ukernel = Registry(TARGET)[instance.name]
        file.write_text(ukernel.text())
        found = read(file, TARGET)
        assert ukernel.arguments() == found.arguments()
        assert ir.SymbolTable.get_symbol_name(ukernel.function()).value == instance.name
    assert found.lds_bytes == instance.lds_bytes(TARGET)
    assert replace(found, name=ukernel.name, path=ukernel.path, instance=instance) == ukernel


@pytest.mark.parametrize("m, n", [(1, 64), (64, 64), (65, 128), (1000, 128), (None, 128)])
@pytest.mark.parametrize("pair", PAIRS[1:], ids="-".join)
def test_selection_of_instances(m: int | None, n: int, pair: tuple[str, str]) -> None:
    """Instances are selected by rows, and hand-written files come before them."""
    scales = ("f8E8M0FNU", "f8E8M0FNU", "f32")
    with ir.Context(), ir.Location.unknown():
        registry = Registry(TARGET)
    ukernel, _ = registry.select("data_tiled", Problem(m, 512, 512, (*pair, *scales)))
    assert ukernel.tile == (n, 2 * n, 256 if n == 64 else 128)
    ukernel, _ = registry.select("data_tiled", Problem(m, 512, 512, (*PAIRS[0], *scales)))
    assert ukernel.instance is None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: Path(kind.__file__).stem)
def test_types_of_as_many_bits_have_one_kernel(kind: ModuleType) -> None:
    """Their texts differ in names of types, and in what an MFMA in assembly calls them: so their code does in nothing
    else."""
    found, last = set(), kind.INSTANCES[-1]
    for each in kind.INSTANCES:
        if (_bits(each), replace(each, elements=last.elements)) == (_bits(last), last):
            with ir.Context(), ir.Location.unknown():
                text = str(each.module(each.path, TARGET)).replace(each.name, "")
            for element, bits in zip(each.elements, _bits(each), strict=True):
                text = text.replace(element, f"f{bits}")
            found.add(re.sub(r"(cbsz|blgp):\d", "", text))
    assert len(found) == 1


def _bits(instance: family.Instance) -> tuple[int, ...]:
    return tuple(element_format(kind).bits for kind in instance.elements)


@each_ukernel
def test_rule(name: str) -> None:
    with ir.Context(), ir.Location.unknown():
        ukernel = Registry(TARGET)[name]
        ukernel.function()
    assert ukernel.instance is not None or ukernel.path.stem == name
    assert ukernel.objection == ""
    assert ukernel.instance is not None or TARGET.arch in ukernel.archs
    assert math.prod(ukernel.workgroup_size) % TARGET.wave_size == 0
    assert ukernel.mismatch(Problem(**_fitting_sizes(ukernel), types=ukernel.types)) == ""


@each_ukernel
def test_multiplies_by_scaled_mfma(name: str) -> None:
    """One K tile takes a wave so many MFMA; code may hold several K tiles, never parts of one."""
    compiled = _compiled(name)
    (mnemonic,) = (name for name in compiled.kernel.instructions if name.startswith("v_mfma"))
    m, n, k = map(int, _MFMA.fullmatch(mnemonic).groups())
    waves = math.prod(compiled.ukernel.workgroup_size) // TARGET.wave_size
    shared = waves // _along_k(compiled.ukernel)
    per_tile = math.prod(compiled.ukernel.tile) // (m * n * k * shared)
    if (layout := compiled.ukernel.layout) and layout.inner_tiles is None:
        assert per_tile == layout.intrinsics_m * layout.intrinsics_n * layout.intrinsics_k
    count = compiled.kernel.count("v_mfma_scale")
    assert count > 0
    assert count % per_tile == 0


def _along_k(ukernel: Ukernel) -> int:
    """Waves that have K tiles of their own."""
    waves = ukernel.instance and ukernel.instance.tile.waves
    return waves.k if waves else 1


@each_ukernel
def test_keeps_everything_in_registers(name: str) -> None:
    kernel = _compiled(name).kernel
    assert kernel.scratch_bytes == 0
    assert kernel.spills == 0
    assert kernel.count("scratch_") == 0


@each_ukernel
def test_fits_a_compute_unit(name: str) -> None:
    compiled = _compiled(name)
    waves_per_simd = math.ceil(math.prod(compiled.ukernel.workgroup_size) / TARGET.wave_size / SIMDS)
    assert compiled.kernel.vgprs * waves_per_simd <= VECTOR_REGISTERS
    assert compiled.kernel.lds_bytes <= TARGET.lds_bytes


@each_ukernel
def test_loads_elements_128_bits_at_a_time(name: str) -> None:
    """Narrower loads are left for scales: 1/16 of the elements' bytes, loaded at most twice as often; none of bytes.

    6-bit elements are loaded 96 bits at a time, half of what a lane takes for one MFMA. Of a half inner tile a lane has
    two scales, which it loads by itself, or four of two inner tiles, which half of the waves copy.
    """
    compiled = _compiled(name)
    instance, loads = compiled.ukernel.instance, compiled.loads
    is_half = instance is not None and instance.tile.is_half
    assert set(loads) <= {*_DWORDS, *(["ushort"] if is_half else [])}, f"loads of less than 32 bits: {loads}"
    wide = sum(count * _DWORDS[width] for width, count in loads.items() if width in _WIDE)
    narrow = sum(count * _DWORDS.get(width, 1) for width, count in loads.items() if width not in _WIDE)
    assert wide > 0
    assert narrow * (4 if is_half else 8) <= wide


@each_ukernel
def test_golden_figures(name: str, request: pytest.FixtureRequest) -> None:
    """MFMA and bytes of LDS are as they were, registers no more; --update-golden accepts others."""
    kernel = _compiled(name).kernel
    found = {"mfma": kernel.count("v_mfma_scale"), "lds_bytes": kernel.lds_bytes, "vgprs": kernel.vgprs}
    golden = json.loads(GOLDEN.read_text())
    if request.config.getoption("--update-golden"):
        kept = {other: figures for other, figures in golden.items() if other in NAMES}
        GOLDEN.write_text(json.dumps(kept | {name: found}, indent=2, sort_keys=True) + "\n")
        return
    assert name in golden, "no figures yet: python -m pytest test/ukernels --update-golden"
    expected = golden[name]
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


PRINTED = (
    "m16_n32_k512_single_wave",
    "m256_n256_k512",
    "m128_n256_k128",
    "m16_n64_k512",
    "m192_n256_k512",
    "m16_n32_k256_single_wave",
)
"""One of each kind, the first two by default."""


@pytest.mark.parametrize("tile", [*PRINTED[:2], *(pytest.param(each, marks=pytest.mark.slow) for each in PRINTED[2:])])
def test_a_printed_kernel_is_the_same_to_the_hardware(tile: str, tmp_path: Path) -> None:
    """What is made is printed as a file for a directory of ukernels; under another name, each is once."""
    name = f"mx_f4E2M1FN_f4E2M1FN_f32_{tile}"
    text = _compiled(name).ukernel.text
    with ir.Context(), ir.Location.unknown():
        (tmp_path / "own.mlir").write_text(text(family.Stores(RESULT_BYTES["f32"])).replace(f"@{name}(", "@own("))
    one, other = (each.kernel for each in (_compiled(name), _compiled("own", tmp_path)))
    assert one.instructions == other.instructions
    assert {key: other.metadata[key] for key in one.metadata} == one.metadata


@cache
def _compiled(name: str, *directories: Path) -> _Compiled:
    with ir.Context(), ir.Location.unknown():
        ukernel = Registry(TARGET, directories)[name]
    sizes = _fitting_sizes(ukernel)
    lhs, rhs = ukernel.types[:2]
    lhs_bytes, rhs_bytes = (sizes["k"] * element_format(kind).bits // 8 for kind in (lhs, rhs))
    source = MODULE.substitute(
        sizes, blocks=sizes["k"] // 32, lhs=lhs, rhs=rhs, lhs_bytes=lhs_bytes, rhs_bytes=rhs_bytes
    )
    with TemporaryDirectory() as directory:
        program = mxcomp.compile(
            source,
            data_tiling=ukernel.operands == "data_tiled",
            ukernels=ukernel.name,
            ukernel_dirs=directories,
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
    size = size // step * step
    return size - rule.odd if rule.odd and rule.violation("", size) else size
