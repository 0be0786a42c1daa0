"""What `mxcomp.compile` makes for gfx950: dispatches, kernels and constants."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import numpy as np
import pytest
from cases import (
    CONSTANT,
    CONSTANT_PARTS,
    DYNAMIC,
    EXACT,
    M64,
    M128,
    MATMULS,
    MIXED,
    NARROW,
    PADDED,
    PARTS,
    built,
    in_phases,
    parts,
)
from iree.compiler import ir
from kernels import Kernel, compiled, kernels, stock
from modules import Matmul, source
from spread import every, quick_if

import mxcomp
from mxcomp.layout import LHS, RHS, RHS_SCALE, layout_from

UKERNELS = ["fastest", "none"]
EACH_WAY = [(matmul, ukernels) for matmul in MATMULS for ukernels in UKERNELS]


def is_quick(case: tuple[Matmul, str]) -> bool:
    """Each form with a ukernel, each tile without; PADDED differs from others by its size only."""
    matmul, ukernels = case
    return matmul in (EXACT, NARROW) or (matmul != PADDED and ukernels == "fastest")


each_way = pytest.mark.parametrize("case", quick_if(is_quick, EACH_WAY), ids=lambda case: "-".join(map(str, case)))
each_without_constants = pytest.mark.parametrize(
    "matmul", quick_if(lambda matmul: matmul != PADDED, [m for m in MATMULS if not m.constant_rhs]), ids=str
)


# Dispatches and copies.


@each_way
def test_dispatches(case: tuple[Matmul, str]) -> None:
    matmul, ukernels = case
    expected = CONSTANT_PARTS if matmul.constant_rhs else PARTS
    program, found = built(matmul, ukernels)
    assert program.report.matmuls[0].dispatches == expected
    assert len(found) == len(expected)
    assert in_phases(source(matmul), ukernels).calls("flow")["flow.dispatch"] == len(expected)


def in_a_callee(matmul: Matmul) -> str:
    """The matmul in a private function, called by the public one."""
    text = source(matmul, name="callee").replace("func.func @callee", "func.func private @callee")
    types = [f"tensor<{a.shape[0]}x{a.shape[1]}xi8>" for a in matmul.inputs]
    result = f"tensor<{matmul.m}x{matmul.n}xf32>"
    names = [f"%{i}" for i in range(len(types))]
    arguments = ", ".join(f"{name}: {kind}" for name, kind in zip(names, types, strict=True))
    return text + (
        f"func.func @main({arguments}) -> {result} {{\n"
        f"  %r = call @callee({', '.join(names)}) : ({', '.join(types)}) -> {result}\n  return %r : {result}\n}}"
    )


MODULES = {
    **{str(matmul): (source(matmul), 3 if matmul.constant_rhs else 5) for matmul in MATMULS + MIXED},
    "util": (source(EXACT, dialect="util"), 5),
    "callee": (in_a_callee(EXACT), 5),
    "several": (source(NARROW, CONSTANT), 8),
}
IN_OTHERS = {str(PADDED)}
"""Which differs from others by its size only."""


@pytest.mark.parametrize("name", quick_if(lambda name: name not in IN_OTHERS, MODULES))
def test_operands_are_not_copied(name: str) -> None:
    text, count = MODULES[name]
    made = in_phases(text)
    stream, hal = made.calls("stream"), made.calls("hal")
    assert stream["stream.cmd.dispatch"] == hal["hal.command_buffer.dispatch"] == count
    for operation in ("stream.async.clone", "stream.cmd.copy", "stream.cmd.fill", "stream.tensor.clone"):
        assert stream[operation] == 0
    assert hal["hal.command_buffer.copy_buffer"] == hal["hal.command_buffer.fill_buffer"] == 0


SIZES_OF_1 = [
    (Matmul(m, n, 544, dynamic_m=dynamic_m), ukernels)
    for m, n in ((1, 1), (1, 17), (1, 1000), (17, 1), (300, 1))
    for dynamic_m in (False, True)
    for ukernels in UKERNELS
]


@pytest.mark.parametrize("case", every(5, SIZES_OF_1), ids=lambda case: "-".join(map(str, case)))
def test_sizes_of_1(case: tuple[Matmul, str]) -> None:
    """IREE drops dimensions of size 1, and then cannot always fuse the unpacking."""
    matmul, ukernels = case
    program, _ = built(matmul, ukernels)
    assert program.report.matmuls[0].dispatches == PARTS
    stream = in_phases(source(matmul), ukernels).calls("stream")
    assert (stream["stream.cmd.dispatch"], stream["stream.cmd.copy"], stream["stream.async.clone"]) == (5, 0, 0)


# Packing.


@each_without_constants
def test_packing_moves_128_bits_of_elements_at_a_time(matmul: Matmul) -> None:
    for part in ("pack_lhs", "pack_rhs"):
        kernel = parts(matmul)[part]
        assert kernel.loads == kernel.stores == {"dwordx4"}


@pytest.mark.parametrize("matmul", MIXED, ids=str)
def test_packing_of_other_element_types(matmul: Matmul) -> None:
    """6-bit elements move by 64 bits: IREE takes no 128 out of the 192 of a lane."""
    for part, kind in zip(("pack_lhs", "pack_rhs"), matmul.types, strict=True):
        kernel = parts(matmul)[part]
        assert kernel.loads == kernel.stores == {"dwordx2" if kind.startswith("f6") else "dwordx4"}


@pytest.mark.parametrize("matmul", MIXED, ids=str)
def test_other_element_types(matmul: Matmul) -> None:
    """One dispatch for each part, no spills."""
    program, found = built(matmul)
    assert program.report.matmuls[0].dispatches == PARTS
    assert program.report.matmuls[0].ukernel.startswith(f"mx_{'_'.join(matmul.types)}_f32_")
    assert [kernel.assembly.scratch_bytes + kernel.assembly.spills for kernel in found] == [0] * 5


@each_without_constants
def test_packing_stores_scales_in_words(matmul: Matmul) -> None:
    for part in ("pack_lhs_scale", "pack_rhs_scale"):
        stores = parts(matmul)[part].stores
        assert stores and stores <= {"dword", "dwordx2", "dwordx4"}


@each_way
def test_no_kernel_spills(case: tuple[Matmul, str]) -> None:
    for kernel in parts(*case).values():
        assert kernel.assembly.scratch_bytes == kernel.assembly.spills == 0, kernel.assembly.name


# Constants.


def in_globals(text: str) -> str:
    """Constants as the initial values of globals."""
    values = re.findall(r"arith\.constant (dense<\"[^\"]*\"> : \S+)", text)
    for index, value in enumerate(values):
        kind = value.split(" : ")[1]
        text = text.replace(f"arith.constant {value}", f"util.global.load immutable @weights{index} : {kind}")
    return text + "".join(f"util.global private @weights{index} = {value}\n" for index, value in enumerate(values))


def in_resources(text: str) -> str:
    """Constants as resources, which exporters use for large weights."""
    values = re.findall(r"dense<\"0x([^\"]*)\">", text)
    for index, value in enumerate(values):
        text = text.replace(f'dense<"0x{value}">', f"dense_resource<weights{index}>")
    blobs = ", ".join(f'weights{index}: "0x01000000{value}"' for index, value in enumerate(values))
    return f"{text}\n{{-# dialect_resources: {{ builtin: {{ {blobs} }} }} #-}}\n"


@pytest.mark.parametrize("spelling", [str, in_globals, in_resources])
def test_constants_are_packed_at_compile_time(spelling: Callable[[str], str]) -> None:
    program = built(CONSTANT)[0] if spelling is str else mxcomp.compile(spelling(source(CONSTANT)))
    layout = layout_from(program.report.matmuls[0].layout)
    _, rhs, _, scales = CONSTANT.operands
    packed = layout.swizzle(RHS).pack(rhs.reshape(CONSTANT.n, -1, 16))
    assert program.report.matmuls[0].dispatches == CONSTANT_PARTS
    assert packed.size > rhs.size  # padded
    assert packed.tobytes() in program.vmfb
    assert layout.swizzle(RHS_SCALE).pack(scales).tobytes() in program.vmfb
    assert rhs.tobytes() not in program.vmfb
    assert scales.tobytes() not in program.vmfb


def test_constants_are_packed_in_each_layout() -> None:
    _, rhs, _, _ = CONSTANT.operands
    images = []
    for ukernels in ("fastest", M64):
        program, _ = built(CONSTANT, ukernels)
        layout = layout_from(program.report.matmuls[0].layout)
        images.append(layout.swizzle(RHS).pack(rhs.reshape(CONSTANT.n, -1, 16)).tobytes())
        assert images[-1] in program.vmfb
    assert images[0] != images[1]


def test_matching_layouts_of_lhs_and_constants_differ_by_operand() -> None:
    """A guard for the test above: LHS and RHS do not share one image, so a mix-up would be seen."""
    layout = layout_from(built(CONSTANT, M128)[0].report.matmuls[0].layout)
    data = np.arange(128 * 8 * 16).reshape(128, 8, 16)
    assert layout.swizzle(LHS).pack(data).tobytes() != layout.swizzle(RHS).pack(data).tobytes()


@pytest.mark.parametrize("spelling", quick_if(lambda spelling: spelling is not str, [str, in_globals, in_resources]))
def test_constants_need_no_work_at_load_time(spelling: Callable[[str], str]) -> None:
    text = mxcomp.compile(spelling(source(CONSTANT)), compile_to="stream").vmfb
    with ir.Context():
        module = ir.Module.parse(text)
        initializers = [str(op) for op in module.body.operations if op.operation.name == "util.initializer"]
    assert initializers  # they upload what is packed
    assert not any("dispatch" in initializer for initializer in initializers)


# Ukernels.


@pytest.mark.parametrize(
    "matmul", quick_if(lambda matmul: matmul in (EXACT, NARROW), [EXACT, PADDED, DYNAMIC, NARROW]), ids=str
)
def test_our_ukernel_is_used(matmul: Matmul) -> None:
    """The default one is over inner tiles and may load straight into registers; code that IREE generates has LDS."""
    configured = in_phases(source(matmul)).phases["executable-configurations"].decode()
    program, _ = built(matmul)
    name = program.report.matmuls[0].ukernel
    assert f'ukernel_descriptor<"{name}"' in configured
    assert f"util.func private @{name}(" in configured
    assert "pingpong" not in configured
    assert layout_from(program.report.matmuls[0].layout).inner_tiles is not None
    assert parts(matmul)["matmul"].assembly.count("v_mfma_scale_f32_16x16x128") > 0


@pytest.mark.parametrize("matmul", quick_if(lambda matmul: matmul == NARROW, [EXACT, PADDED, DYNAMIC, NARROW]), ids=str)
def test_a_ukernel_by_benefit(matmul: Matmul) -> None:
    program, _ = built(matmul, "benefit")
    assert program.report.matmuls[0].ukernel == (M64 if matmul == NARROW else M128)
    ours, generated = parts(matmul, "benefit")["matmul"], parts(matmul, "none")["matmul"]
    # These loops load straight into shared memory; IREE's generated code does not.
    assert ours.lds_loads > 0
    assert generated.lds_loads == 0
    assert ours.assembly.count("v_mfma_scale_f32_16x16x128") > 0


@pytest.mark.parametrize("data_tiling", [True, False])
@pytest.mark.parametrize("matmul", quick_if(lambda matmul: matmul != DYNAMIC, [EXACT, NARROW, DYNAMIC]), ids=str)
def test_no_ukernel_unless_wanted(matmul: Matmul, data_tiling: bool) -> None:
    options = {"ukernels": "none", "data_tiling": data_tiling}
    configured = in_phases(source(matmul), **options).phases["executable-configurations"].decode()
    assert "ukernel" not in configured.replace('ukernels = "none"', "")
    program, _ = built(matmul, **options)
    assert program.report.matmuls[0].ukernel is None
    assert "--ukernels=none" in program.report.matmuls[0].reason


@pytest.mark.parametrize("ukernels", UKERNELS)
def test_code_does_not_grow_with_k(ukernels: str) -> None:
    """K is walked in a loop, one tile at a time."""
    short = built(EXACT, ukernels)[0].report.matmuls[0]
    long = Matmul(EXACT.m, EXACT.n, 16 * layout_from(short.layout).tile[2])
    kernels = parts(EXACT, ukernels), parts(long, short.ukernel or ukernels)  # another is the fastest of a long K
    counts = [kernel["matmul"].assembly.count("v_mfma_scale") for kernel in kernels]
    assert counts[0] == counts[1] > 0


F16 = """
func.func @half(%a: tensor<1024x1024xf16>, %b: tensor<1024x1024xf16>) -> tensor<1024x1024xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<1024x1024xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %r = linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                                      affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %b : tensor<1024x1024xf16>, tensor<1024x1024xf16>)
      outs(%zeros : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  return %r : tensor<1024x1024xf32>
}
"""


@pytest.mark.parametrize("data_tiling", quick_if(bool, [True, False]))
def test_other_matmuls_are_compiled_as_iree_does(data_tiling: bool) -> None:
    """In particular without IREE's builtin ukernels, which our provider could have let in.

    Ours is one with LDS: where kernels of a module have none, LLVM gives this one's two buffers other places.
    """

    def half(found: list[Kernel]) -> str:
        (kernel,) = [kernel for kernel in found if kernel.assembly.name.startswith("half_dispatch")]
        return kernel.normal

    plain = half(kernels(lambda flag: stock(F16, flag)))
    assert half(kernels(lambda flag: stock(F16, flag, "--iree-rocm-enable-tensor-ukernels"))) != plain
    program, found = compiled(source(EXACT, extra=F16), data_tiling=data_tiling, ukernels="benefit")
    assert len(program.report.matmuls) == 1
    assert program.report.matmuls[0].ukernel
    assert half(found) == plain


# The large problem.


@pytest.mark.parametrize("ukernels", quick_if(lambda ukernels: ukernels == "fastest", UKERNELS))
@pytest.mark.parametrize("data_tiling", [True, False])
def test_large_problem(data_tiling: bool, ukernels: str) -> None:
    program, found = built(Matmul(10000, 16384, 16384), ukernels, data_tiling)
    (matmul,) = program.report.matmuls
    assert (matmul.m, matmul.n, matmul.k) == (10000, 16384, 16384)
    assert bool(matmul.ukernel) == (ukernels == "fastest")
    assert (
        matmul.operands
        == {
            (True, "fastest"): "data_tiled",
            (True, "none"): "data_tiled",
            (False, "fastest"): "row_major",
            (False, "none"): "plain",
        }[data_tiling, ukernels]
    )
    packed = {(True, "fastest"): 3, (True, "none"): 4}  # RHS is read as it is stored where that is faster
    assert len(found) == packed.get((data_tiling, ukernels), 0) + 1
    assert found[-1].assembly.count("v_mfma_scale_f32") > 0
    assert all(kernel.assembly.scratch_bytes == 0 for kernel in found)


@pytest.mark.parametrize("case", every(3, itertools.product([40000, 10**6], [True, False])), ids=str)
def test_more_than_2_gib_are_left_to_iree(case: tuple[int, bool]) -> None:
    """The result of the first M is too large, of the second the LHS as well."""
    m, data_tiling = case
    program, found = built(Matmul(m, 16384, 16384), "fastest", data_tiling)
    (matmul,) = program.report.matmuls
    assert matmul.reason.startswith("left to IREE: ")
    assert "exceeds 2147483647 bytes" in matmul.reason
    assert (matmul.ukernel, matmul.layout, matmul.operands) == (None, None, "plain")
    assert len(found) == 1


def test_dynamic_m_is_guarded_at_run_time() -> None:
    """A packed row of 2^21 elements is 1 MiB; 2047 rows are below 2 GiB, 1920 of them whole tiles of 128."""
    program = mxcomp.compile(source(Matmul(1, 256, 2**21, dynamic_m=True)), ukernels="benefit")
    assert b"mxcomp: M must be between 1 and 1920" in program.vmfb
    assert b"mxcomp: M must be" not in built(EXACT)[0].vmfb


def _long(kind: str) -> tuple[str, str]:
    """What precedes a plain matmul, and what its body begins with: too long to be written out, or to recur over."""
    tensor = "tensor<32x64xf32>"
    match kind:
        case "2⁶⁰ operations in a body":
            return "", "\n".join(f"%x{i + 1} = arith.addf %x{i}, %x{i} : f32" for i in range(60)) + USE.format(60)
        case "2⁶⁰ operations on tensors":
            lines = [f"%t{i + 1} = arith.addf %t{i}, %t{i} : {tensor}" for i in range(60)]
            return "\n".join([f"%t0 = arith.negf %lhs : {tensor}", *lines]), USE.format(0)
        case "1500 in a row in a body":
            return "", "\n".join(f"%x{i + 1} = arith.negf %x{i} : f32" for i in range(1500)) + USE.format(1500)
    lines = [f"%t{i + 1} = arith.negf %t{i} : {tensor}" for i in range(1500)]
    return "\n".join([f"%t0 = arith.negf %lhs : {tensor}", *lines]), USE.format(0)


USE = """
      %p = arith.mulf %x{}, %b : f32"""


@pytest.mark.parametrize(
    "kind",
    ["2⁶⁰ operations in a body", "2⁶⁰ operations on tensors", "1500 in a row in a body", "1500 in a row on tensors"],
)
def test_long_expressions(kind: str) -> None:
    before, body = _long(kind)
    lhs = f"%t{before.count('arith.') - 1}" if before else "%lhs"
    generic = f"""
  func.func @plain(%lhs: tensor<32x64xf32>, %rhs: tensor<48x64xf32>, %init: tensor<32x48xf32>) -> tensor<32x48xf32> {{
    {before}
    %0 = linalg.generic {{
      indexing_maps = [
        affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>
      ],
      iterator_types = ["parallel", "parallel", "reduction"]
    }} ins({lhs}, %rhs : tensor<32x64xf32>, tensor<48x64xf32>) outs(%init : tensor<32x48xf32>) {{
    ^bb0(%x0: f32, %b: f32, %acc: f32):
      {body}
      %s = arith.addf %acc, %p : f32
      linalg.yield %s : f32
    }} -> tensor<32x48xf32>
    return %0 : tensor<32x48xf32>
  }}
"""
    report = mxcomp.compile(source(Matmul(32, 48, 64)) + generic, compile_to="input", strict=True).report
    assert [matmul.operands for matmul in report.matmuls] == ["data_tiled"]
