"""A GPU that there is not, added by one file: what is chosen for it, what is not, and why."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from iree.compiler import ir

import mxcomp
import mxcomp.ir as mx
import mxcomp.target
from mxcomp import pipeline
from mxcomp.errors import TargetError, UkernelError
from mxcomp.formats import E2M1, dequantise, pack_bits, quantise
from mxcomp.layout.problem import SCALES_AND_RESULT, Problem
from mxcomp.mlir import notes
from mxcomp.options import Options
from mxcomp.registry import Registry
from mxcomp.registry.reading import lds_bytes
from mxcomp.selection.ranking import fastest
from mxcomp.sim import Device
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.timing.examination import SIMDS
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.target import Target, get_target
from mxcomp.ukernels import KINDS, intrawave, weight_only
from mxcomp.ukernels.attention_decode import Decode
from mxcomp.ukernels.attention_memory import Stored, Subscript
from mxcomp.ukernels.attention_mx import MxAttention
from mxcomp.ukernels.attention_prefill import Prefill
from mxcomp.ukernels.builder import MOST_BYTES
from mxcomp.ukernels.family import Instance
from mxcomp.ukernels.waves import LANES, MOST_THREADS
from mxcomp.ukernels.waves import SIMDS as SIMDS_OF_CU

FOLDER, NAME = Path(__file__).parent / "gpus", "half950"
M, N, K = 20, 48, 512
FP4 = ("f4E2M1FN", "f4E2M1FN", *SCALES_AND_RESULT)


@pytest.fixture(autouse=True)
def half(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """The GPU, whose file lies in another folder."""
    monkeypatch.setattr(mxcomp.target, "__path__", [*mxcomp.target.__path__, str(FOLDER)])
    yield get_target(NAME)
    sys.modules.pop(f"mxcomp.target.{NAME}", None)


@pytest.fixture
def registry(half: Target) -> Registry:
    with ir.Context(), ir.Location.unknown():
        return Registry(half)


def matmul(x: ir.Value, x_scales: ir.Value, w: ir.Value, w_scales: ir.Value) -> ir.Value:
    return mx.scaled_matmul(mx.operand(x, x_scales, "E2M1"), mx.operand(w, w_scales, "E2M1"))


def weights_only(x: ir.Value, w: ir.Value, w_scales: ir.Value) -> ir.Value:
    return mx.dequantised_matmul(x, mx.operand(w, w_scales, "E2M1"))


def compiled(**options: str) -> mxcomp.Program:
    types = (f"{rows}x{size}xi8" for rows in (M, N) for size in (K // 2, K // 32))
    return mxcomp.compile(mx.module(matmul, *types), NAME, strict=True, **options)


def test_it_is_there_by_its_name_and_compiled_with_llvms(half: Target) -> None:
    assert half.iree_flags == get_target("gfx950").iree_flags
    with pytest.raises(TargetError, match=f"unknown target 'gfx942': expected one of gfx950, {NAME}"):
        get_target("gfx942")
    assert Device(NAME).name == NAME
    with pytest.raises(SimulationError, match=f"target 'gfx942': expected gfx950, {NAME}"):
        Device("gfx942")


def test_a_program_for_it_is_right() -> None:
    program, rng = compiled(), np.random.default_rng(3)
    (found,) = program.report.matmuls
    assert found.ukernel is not None
    assert program.report.target == NAME
    sides = (rng.normal(size=(rows, K)) * np.exp2(rng.integers(-4, 5, (rows, 1))) for rows in (M, N))
    operands = [quantise(each.astype(np.float32), "E2M1", "even") for each in sides]
    given = [part for codes, scales in operands for part in (pack_bits(codes, E2M1), scales)]
    (y,) = program.run(*(each.view(np.int8) for each in given))
    a, b = (dequantise(codes, scales, "E2M1").astype(np.float64) for codes, scales in operands)
    np.testing.assert_allclose(y, a @ b.T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("m", [16, 4096])
def test_what_is_chosen_has_room_in_its_lds_and_takes_longer_on_fewer_units(registry: Registry, m: int) -> None:
    problem = Problem(m, 8192, 8192, FP4)
    best = fastest(problem, registry)[0]
    with ir.Context(), ir.Location.unknown():
        whole = Registry(get_target("gfx950"))
    assert best.us > fastest(problem, whole)[0].us
    assert best.order.xcds in (1, registry.target.xcds)
    assert best.ukernel.instance is not None
    assert best.ukernel.instance.lds_bytes(registry.target) <= registry.target.lds_bytes


def test_what_its_lds_has_no_room_for_is_not_chosen(registry: Registry) -> None:
    reason = "65536 bytes of LDS of half950 hold 1 of 2 stages"
    fp4 = next(each.name for each in intrawave.INSTANCES if each.elements == FP4[:2])
    assert registry.excluded[fp4].objection == reason
    assert all(each.name in registry.excluded for each in intrawave.INSTANCES)
    with pytest.raises(UkernelError, match=f"'{fp4}': {reason}"):
        compiled(ukernels=fp4)


def test_what_lacks_an_instruction_is_not_chosen() -> None:
    """Weights that are not quantised are left to IREE, as the report says; on gfx950 they have a ukernel."""
    module = mx.module(weights_only, f"{M}x{K}xbf16", f"{N}x{K // 2}xi8", f"{N}x{K // 32}xi8")
    programs = [mxcomp.compile(module, target, compile_to="input") for target in ("gfx950", NAME)]
    (whole,), (found,) = (program.report.matmuls for program in programs)
    assert whole.ukernel in {each.name for each in weight_only.INSTANCES}
    assert found.ukernel is None
    assert found.reason == ("left to IREE: activations are not quantised, and half950 has no MFMA_F32_16x16x32_BF16")


ATTENTION = """
!t = tensor<2x256xSIZExf16>
func.func @main(%q: !t, %k: !t, %v: !t) -> !t {
  %scale = arith.constant 0.125 : f32
  %places = tensor.empty() : !t
  %r = iree_linalg_ext.attention <indexing_maps = [
      affine_map<(n, m, d, k, v) -> (n, m, d)>, affine_map<(n, m, d, k, v) -> (n, k, d)>,
      affine_map<(n, m, d, k, v) -> (n, k, v)>, affine_map<(n, m, d, k, v) -> ()>,
      affine_map<(n, m, d, k, v) -> (n, m, v)>]>
    ins(%q, %k, %v, %scale : !t, !t, !t, f32) outs(%places : !t) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> !t
  return %r : !t
}
"""


def taken(target: str, size: int) -> dict[str, object]:
    """What becomes of it, as the report says."""
    with ir.Context():
        module = ir.Module.parse(ATTENTION.replace("SIZE", str(size))).operation
        pipeline.run(module, ("mxcomp-take-attention",), Options.make(target))
        (entry,) = notes.take_attentions(module)
    return entry


def test_attention_its_lds_has_no_room_for_is_not_taken() -> None:
    assert "ukernel" in taken("gfx950", 256)
    assert taken(NAME, 256)["reason"] == "half950 has 65536 bytes of LDS, not 131072"


def test_attention_has_as_many_rounds_in_its_lds_as_fit() -> None:
    """Two of 64 keys, where gfx950's has two of 128."""
    program = mxcomp.compile(ATTENTION.replace("SIZE", "128"), NAME, strict=True)
    (found,) = program.report.attentions
    assert found.ukernel is not None
    rng = np.random.default_rng(4)
    q, k, v = rng.standard_normal((3, 2, 256, 128)).astype(np.float16)
    (y,) = program.run(q, k, v)
    weights = np.exp(0.125 * np.einsum("hmd,hkd->hmk", *(each.astype(np.float64) for each in (q, k))))
    expected = np.einsum("hmk,hkv->hmv", weights / weights.sum(-1, keepdims=True), v.astype(np.float64))
    np.testing.assert_allclose(y, expected, rtol=0, atol=2**-10 * np.abs(v).max())


def stored(axis: str) -> Stored:
    return Stored(
        "f16", (4, 256, 128), tuple(Subscript(*each) for each in (("n", 1, 4), (axis, 1, 256), ("d", 1, 128)))
    )


SPEC = (4, 256, 128, 128, 256, 1.0, stored("t"), stored("l"), stored("l"), None, None, None, None)
ATTENTIONS = [
    *(
        Prefill(*SPEC, "f16", waves=waves, splits=splits, xcds=8, room=room)
        for waves, splits, room in ((8, 1, 160 * 1024), (2, 1, 160 * 1024), (4, 2, 160 * 1024), (2, 1, 64 * 1024))
    ),
    *(Decode(4, 4, *SPEC[2:], result, group=4, splits=4) for result in ("", "f16")),
    *(
        MxAttention(4, 256, 1, 128, 128, 256, 256, 1.0, True, ("f4E2M1FN", v, v), 4, 2, 1, "f32", 8, room)
        for v, room in (("f4E2M1FN", 160 * 1024), ("f8E4M3FN", 160 * 1024), ("f4E2M1FN", 64 * 1024))
    ),
]


@pytest.mark.parametrize("kernel", ATTENTIONS, ids=lambda kernel: kernel.name.rpartition("_")[0])
def test_attention_takes_as_much_lds_as_it_says(kernel: Prefill | Decode | MxAttention) -> None:
    with ir.Context(), ir.Location.unknown():
        assert lds_bytes(ir.Module.parse(kernel.text()).operation) == kernel.lds_bytes


def test_the_simulators_machine_is_that_of_gfx950() -> None:
    """Whose instruction tables and replays have its numbers as constants."""
    target = get_target("gfx950")
    assert target.simds == SIMDS
    assert (target.cus, target.clock_ghz) == (mi355x().cus, mi355x().clock_ghz)


def test_what_kernels_are_written_with_is_gfx950s() -> None:
    """What they have of it as constants; `Target` has it for what chooses among them."""
    target = get_target("gfx950")
    assert (target.wave_size, target.simds, target.max_workgroup_threads) == (LANES, SIMDS_OF_CU, MOST_THREADS)
    assert target.max_buffer_bytes == MOST_BYTES


def test_few_files_name_a_gpu() -> None:
    """Beside its description, the simulator's instruction tables and the timing model's numbers."""
    package = Path(mxcomp.__file__).parent
    rooms = [path for path in package.iterdir() if path.name not in ("sim", "target", "ukernels")]
    files = [file for room in rooms for file in (room.rglob("*.py") if room.is_dir() else [room])]
    assert len([file for file in files if file.suffix == ".py" and "gfx9" in file.read_text()]) <= 6


def test_gfx950_runs_all_there_are() -> None:
    with ir.Context(), ir.Location.unknown():
        assert not Registry(get_target("gfx950")).excluded


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.rpartition(".")[2])
def test_an_instance_takes_as_much_lds_as_it_says(kind: ModuleType, half: Target) -> None:
    """As it is written for each GPU that can run it."""
    able: dict[bool, Instance] = {bool(each.objection(half)): each for each in kind.INSTANCES if not is_alone(each)}
    for is_excluded, instance in able.items():
        for target in (get_target("gfx950"), half)[: 1 if is_excluded else 2]:
            with ir.Context(), ir.Location.unknown():
                function = instance.kernel(instance, target).function()
                assert lds_bytes(function) == instance.lds_bytes(target)


def is_alone(instance: Instance) -> bool:
    """Whether it is one wave: what it allocates for others it does not use."""
    return instance.tile.threads == get_target("gfx950").wave_size
