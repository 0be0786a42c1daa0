"""What mxcomp takes for granted of IREE, one test for each point that a new release could break."""

from __future__ import annotations

import itertools
import subprocess
import sys
from functools import cache
from pathlib import Path
from string import Template

import pytest
from cases import CONSTANT, EXACT, M128, built
from iree.compiler import ir
from kernels import STOCK_FLAGS, calls, executable_target, stock
from modules import HERE, Matmul, source

import mxcomp
from mxcomp import pipeline
from mxcomp.errors import CompileError
from mxcomp.layout import RHS, DataTiledLayout, layout_from
from mxcomp.mlir import build, graph
from mxcomp.mlir.attributes import mma_layout
from mxcomp.mlir.session import PHASES, Session
from mxcomp.passes import link_ukernels

BUILTIN_UKERNELS = "--iree-rocm-enable-tensor-ukernels"
DATA_TILING = "--iree-rocm-encoding-layout-resolver=data-tiling"
BUILTIN = DataTiledLayout(
    intrinsics_m=4,
    intrinsics_n=8,
    intrinsics_k=2,
    subgroups_m=2,
    subgroups_n=2,
    operands_interleaving_intrinsics_m=(2,),
    operands_interleaving_intrinsics_n=(3,),
    operands_interleaving_intrinsics_k=(2, 3),
)
"""Of IREE's pingpong_dt_medium_f4E2M1FN."""
MARKERS = {
    "input": "util.func",
    "abi": "hal.tensor.import",
    "preprocessing": "util.global",
    "global-optimization": "iree_tensor_ext.compute_barrier.start",
    "dispatch-creation": "flow.dispatch.workgroups",
    "flow": "flow.executable",
    "stream": "stream.executable",
    "executable-sources": "hal.executable.variant",
    "executable-configurations": "iree_codegen.dispatch_config",
    "executable-targets": "llvm.func",
    "hal": "hal.command_buffer.dispatch",
    "vm": "vm.module",
}
"""An operation that occurs first at the end of each phase."""


@cache
def at(phase: str) -> str:
    return mxcomp.compile(source(EXACT), ukernels=M128, compile_to=phase).vmfb.decode()


@cache
def ops_at(phase: str) -> set[str]:
    return {op.name for op in graph.walk(stock(source(Matmul(64, 64, 64)), to=phase).module)}


def test_swizzle_is_what_encodings_become() -> None:
    """Packing of each operand as IREE materialises it; test/layout compares the attributes."""
    text = (HERE / "set_encodings.mlir.in").read_text()
    session = Session()
    target = executable_target(DATA_TILING, BUILTIN_UKERNELS)
    session.load(Template(text).substitute(executable=target).encode(), "set_encodings")
    session.run_passes("func.func(iree-codegen-materialize-device-encoding)")
    found: dict[str, list[ir.Operation]] = {"linalg.pack": [], "tensor.expand_shape": [], "linalg.transpose": []}
    for op in graph.walk(session.module):
        found.get(op.name, []).append(op)
    assert [len(ops) for ops in found.values()] == [5, 5, 5]
    for operand, (packing, expand, transpose) in enumerate(zip(*found.values(), strict=True)):
        swizzle = BUILTIN.swizzle(operand)
        outer = len(swizzle.tile_shape)
        permutation = list(ir.DenseI64ArrayAttr(transpose.attributes["permutation"]))
        assert tuple(ir.DenseI64ArrayAttr(packing.attributes["static_inner_tiles"])) == swizzle.tile_shape
        assert tuple(build.static_sizes(expand.results[0])[outer:]) == tuple(dim.size for dim in swizzle.dims)
        assert permutation == [*range(outer), *(outer + p for p in swizzle.permutation)]


def test_the_builtin_ukernel_has_the_layout_we_think() -> None:
    flags = ("--iree-opt-data-tiling", DATA_TILING, BUILTIN_UKERNELS)
    session = stock(source(Matmul(1024, 1024, 1024)), *flags, to="executable-configurations")
    (op,) = [op for op in graph.walk(session.module) if "iree_codegen.ukernel" in op.attributes]
    assert 'ukernel_descriptor<"pingpong_dt_medium_f4E2M1FN"' in str(op.attributes["iree_codegen.ukernel"])
    with session.context:
        assert op.attributes["kind"] == mma_layout(BUILTIN, ["f4E2M1FN", "f4E2M1FN", "f8E8M0FNU", "f8E8M0FNU", "f32"])


def test_compilation_info_survives() -> None:
    (line,) = [line for line in at("executable-configurations").split("\n") if M128 in line and "inner_tiled" in line]
    assert "lowering_config<{workgroup = [1, 1, 0, 0]}>" in line
    (kernel,) = [
        line for line in at("executable-configurations").split("\n") if "func.func @mxcomp_main_dispatch_4" in line
    ]
    alias = kernel.split("translation_info = ")[1].split("}")[0].split(",")[0]
    (translation,) = [line for line in at("executable-configurations").split("\n") if line.startswith(f"{alias} = ")]
    assert "pipeline<TileAndFuse> workgroup_size = [256, 1, 1] subgroup_size = 64" in translation
    assert built(EXACT, M128)[1][-1].assembly.metadata["max_flat_workgroup_size"] == 256


def test_ukernels_are_looked_up_in_the_inner_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_ukernels, "_insert", lambda *_: None)
    with pytest.raises(CompileError, match=f"failed to retrieve a uKernel with name {M128}"):
        mxcomp.compile(source(EXACT), ukernels=M128)


def test_the_provider_of_a_function_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    """`hal.executable.target` on the function is enough, and the only thing that provides ukernels."""
    with ir.Context():
        module = ir.Module.parse(at("executable-sources"))
        ops = list(graph.walk(module.operation))
        targets = [str(op.attributes["target"]) for op in ops if op.name == "hal.executable.variant"]
        functions = [op.attributes["hal.executable.target"] for op in ops if "hal.executable.target" in op.attributes]
        assert len(targets) == 5
        assert not any("ukernel_provider" in target for target in targets)
        assert ["ukernel_provider = #rocm.tensor_ukernel_provider" in str(target) for target in functions] == [True]
    assert built(EXACT)[0].vmfb
    monkeypatch.setattr(link_ukernels, "_set_provider", lambda user: None)
    with pytest.raises(CompileError, match="no ukernel provider found"):
        mxcomp.compile(source(EXACT))


def test_unlinked_ukernels_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A descriptor is never ignored silently."""
    monkeypatch.setattr(pipeline, "EXECUTABLE_PASSES", ())
    with pytest.raises(CompileError, match="no ukernel provider found"):
        mxcomp.compile(source(EXACT))


def test_no_builtin_ukernel_takes_over() -> None:
    """Not even for its own layout, when its provider is there: what has compilation_info is left alone."""
    for flags in ([], [BUILTIN_UKERNELS]):
        program = mxcomp.compile(
            source(EXACT), ukernels="none", iree_flags=flags, compile_to="executable-configurations"
        )
        assert layout_from(program.report.matmuls[0].layout) == BUILTIN
        assert b"ukernel_descriptor" not in program.vmfb
        assert b"pingpong" not in program.vmfb


def test_the_ukernel_keeps_its_name() -> None:
    configured = at("executable-configurations")
    assert f"util.func private @{M128}(" in configured
    assert f'iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"{M128}", tensor>' in configured
    assert configured.count("#iree_codegen.ukernel_descriptor<") == 1


def iree_compile(text: str, *flags: str) -> str:
    """A stock iree-compile; flags that are not of a session need one."""
    tool = Path(sys.executable).with_name("iree-compile")
    result = subprocess.run([tool, "-", *STOCK_FLAGS, *flags], input=text, text=True, capture_output=True, check=True)
    return result.stdout


def test_executables_are_preprocessed_before_they_are_configured() -> None:
    interpreter = f"iree-preprocessing-transform-interpreter{{transform-spec-path={HERE / 'inputs' / 'link.mlir'}}}"
    variant = f"builtin.module(hal.executable.variant(builtin.module({interpreter})))"
    flag = f"--iree-hal-preprocess-executables-with={variant}"
    sources = iree_compile(source(EXACT), flag, "--compile-to=executable-sources")
    assert 'seen = "at this stage"' in sources
    assert "translation_info" not in sources
    configured = iree_compile(source(EXACT), flag, "--compile-to=executable-configurations")
    assert 'seen = "at this stage"' in configured
    assert "translation_info" in configured
    assert "util.func private @linked()" in configured


def test_import_symbol_and_cast_and_call() -> None:
    text = """
    util.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = math.absf %a : tensor<4xf32>
      util.return %0 : tensor<4xf32>
    }"""
    session = Session()
    session.load(text.encode(), "text")
    spec = HERE / "inputs" / "match.mlir"
    session.run_passes(f"iree-preprocessing-transform-interpreter{{transform-spec-path={spec}}}")
    result = str(session.module)
    assert "math.absf" not in result
    assert "util.func private @library(" in result
    assert "tensor.cast %arg0 : tensor<4xf32> to tensor<?xf32>" in result
    assert "util.call @library(" in result


def test_bitcasts_to_bytes_fold_into_fat_raw_buffers() -> None:
    """A ukernel's bitcast from f4 to i8 costs nothing: its buffers are the bindings."""
    assert "iree_tensor_ext.bitcast" in at("executable-sources")
    assert "amdgpu.fat_raw_buffer_cast" in at("executable-configurations")
    instructions = built(EXACT)[1][-1].assembly.instructions
    assert any(name.startswith("buffer_load") for name in instructions)
    assert not any(name.startswith(("global_", "flat_")) for name in instructions)


def test_dispatch_counts() -> None:
    assert calls(source(EXACT), "flow")["flow.dispatch"] == 5
    assert calls(source(CONSTANT), "flow")["flow.dispatch"] == 3


def test_widths_of_packing() -> None:
    lhs, rhs, lhs_scale, rhs_scale, _ = built(EXACT)[1]
    for kernel in (lhs, rhs):
        assert kernel.loads == kernel.stores == {"dwordx4"}
    for kernel in (lhs_scale, rhs_scale):
        assert kernel.stores <= {"dword", "dwordx2", "dwordx4"}


def test_no_scratch() -> None:
    for kernel in built(EXACT)[1]:
        assert kernel.assembly.scratch_bytes == kernel.assembly.spills == 0


def test_constants_are_evaluated() -> None:
    program, _ = built(CONSTANT)
    layout = layout_from(program.report.matmuls[0].layout)
    assert layout.swizzle(RHS).pack(CONSTANT.operands[1].reshape(CONSTANT.n, -1, 16)).tobytes() in program.vmfb


@pytest.mark.parametrize("phase", MARKERS)
def test_phase_names(phase: str) -> None:
    """IREE ignores a wrong name silently and compiles to the end."""
    before = PHASES[PHASES.index(phase) - 1]
    assert MARKERS[phase] in ops_at(phase)
    assert before == "start" or MARKERS[phase] not in ops_at(before)


def test_phases_can_be_run_one_by_one() -> None:
    text = source(Matmul(64, 64, 64))
    steps = Session(STOCK_FLAGS)
    steps.load(text.encode(), "source")
    for before, after in itertools.pairwise(PHASES):
        steps.run(before, after)
    assert set(MARKERS) | {"start", "end"} == set(PHASES)
    assert steps.vm_bytecode() == stock(text).vm_bytecode()


def test_conversion_to_six_bits() -> None:
    """The hardware could (v_cvt_scalef32_2xpk16_fp6_f32), IREE cannot: why `mxcomp.codes.truncate` calculates."""
    text = (HERE / "six_bit_conversion.mlir.in").read_text()
    with pytest.raises(CompileError) as error:
        stock(text)
    assert "amdgpu.packed_scaled_trunc" in "".join(error.value.diagnostics)
    assert stock(text.replace("f6E2M3FN", "f4E2M1FN")).vm_bytecode()
