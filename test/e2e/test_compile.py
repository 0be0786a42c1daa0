"""What `mxcomp.compile` makes for gfx950: dispatches, kernels, constants, reports and errors."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
import pytest
from iree.compiler import ir
from kernels import ANY_WORK, Kernel, calls, compiled, kernels, stock
from modules import HERE, Matmul, source

import mxcomp
from mxcomp import files
from mxcomp.compiler import Program
from mxcomp.errors import CompileError, InputError, TargetError, UkernelError
from mxcomp.layout import LHS, RHS, RHS_SCALE
from mxcomp.ukernels import layout_from

M128 = "mx_f4_f4_f32_m128_n256_k256"
M64 = "mx_f4_f4_f32_m64_n128_k512"
PARTS = ["pack_lhs", "pack_rhs", "pack_lhs_scale", "pack_rhs_scale", "matmul"]
CONSTANT_PARTS = ["pack_lhs", "pack_lhs_scale", "matmul"]

EXACT = Matmul(256, 512, 1024)
PADDED = Matmul(1000, 1000, 1056)
DYNAMIC = Matmul(1000, 1000, 1056, dynamic_m=True)
NARROW = Matmul(40, 300, 544)
CONSTANT = Matmul(200, 300, 544, constant_rhs=True)
UNFUSED = Matmul(256, 512, 1024, dynamic_m=True, form="unfused")
MATMULS = [EXACT, PADDED, DYNAMIC, NARROW, CONSTANT, UNFUSED]
UKERNELS = ["auto", "none"]


@cache
def built(matmul: Matmul, ukernels: str = "auto", data_tiling: bool = True) -> tuple[Program, list[Kernel]]:
    return compiled(source(matmul), ukernels=ukernels, data_tiling=data_tiling)


def parts(matmul: Matmul, ukernels: str = "auto") -> dict[str, Kernel]:
    """Kernels by what they do."""
    program, found = built(matmul, ukernels)
    return dict(zip(program.report.matmuls[0].dispatches, found, strict=True))


# Dispatches and copies.


@pytest.mark.parametrize("ukernels", UKERNELS)
@pytest.mark.parametrize("matmul", MATMULS, ids=str)
def test_dispatches(matmul: Matmul, ukernels: str):
    expected = CONSTANT_PARTS if matmul.constant_rhs else PARTS
    program, found = built(matmul, ukernels)
    assert program.report.matmuls[0].dispatches == expected
    assert len(found) == len(expected)
    assert calls(source(matmul), "flow", ukernels=ukernels)["flow.dispatch"] == len(expected)


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


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *((source(matmul), 3 if matmul.constant_rhs else 5) for matmul in MATMULS),
        (source(EXACT, dialect="util"), 5),
        (in_a_callee(EXACT), 5),
        (source(EXACT, NARROW, DYNAMIC), 15),
    ],
    ids=[*map(str, MATMULS), "util", "callee", "several"],
)
def test_operands_are_not_copied(text: str, count: int):
    stream, hal = calls(text, "stream"), calls(text, "hal")
    assert stream["stream.cmd.dispatch"] == hal["hal.command_buffer.dispatch"] == count
    for operation in ("stream.async.clone", "stream.cmd.copy", "stream.cmd.fill", "stream.tensor.clone"):
        assert stream[operation] == 0
    assert hal["hal.command_buffer.copy_buffer"] == hal["hal.command_buffer.fill_buffer"] == 0


# Packing.


@pytest.mark.parametrize("matmul", [m for m in MATMULS if not m.constant_rhs], ids=str)
def test_packing_moves_128_bits_of_elements_at_a_time(matmul: Matmul):
    for part in ("pack_lhs", "pack_rhs"):
        kernel = parts(matmul)[part]
        assert kernel.loads == kernel.stores == {"dwordx4"}


@pytest.mark.parametrize("matmul", [m for m in MATMULS if not m.constant_rhs], ids=str)
def test_packing_stores_scales_in_words(matmul: Matmul):
    for part in ("pack_lhs_scale", "pack_rhs_scale"):
        stores = parts(matmul)[part].stores
        assert stores and stores <= {"dword", "dwordx2", "dwordx4"}


@pytest.mark.parametrize("ukernels", UKERNELS)
@pytest.mark.parametrize("matmul", MATMULS, ids=str)
def test_no_kernel_spills(matmul: Matmul, ukernels: str):
    for kernel in parts(matmul, ukernels).values():
        assert kernel.assembly.scratch_bytes == kernel.assembly.spills == 0, kernel.assembly.name


# Constants.


def test_constants_are_packed_at_compile_time():
    program, _ = built(CONSTANT)
    layout = layout_from(program.report.matmuls[0].layout)
    _, rhs, _, scales = CONSTANT.operands
    packed = layout.swizzle(RHS).pack(rhs.reshape(CONSTANT.n, -1, 16))
    assert packed.size > rhs.size  # padded
    assert packed.tobytes() in program.vmfb
    assert layout.swizzle(RHS_SCALE).pack(scales).tobytes() in program.vmfb
    assert rhs.tobytes() not in program.vmfb
    assert scales.tobytes() not in program.vmfb


def test_constants_are_packed_in_each_layout():
    _, rhs, _, _ = CONSTANT.operands
    images = []
    for ukernel in (M128, M64):
        program = mxcomp.compile(source(CONSTANT), ukernels=ukernel)
        layout = layout_from(program.report.matmuls[0].layout)
        images.append(layout.swizzle(RHS).pack(rhs.reshape(CONSTANT.n, -1, 16)).tobytes())
        assert images[-1] in program.vmfb
    assert images[0] != images[1]


def test_constants_need_no_work_at_load_time():
    text = mxcomp.compile(source(CONSTANT), compile_to="stream").vmfb
    with ir.Context():
        module = ir.Module.parse(text)
        initializers = [str(op) for op in module.body.operations if op.operation.name == "util.initializer"]
    assert initializers  # they upload what is packed
    assert not any("dispatch" in initializer for initializer in initializers)


# Ukernels.


@pytest.mark.parametrize(("matmul", "name"), [(EXACT, M128), (PADDED, M128), (DYNAMIC, M128), (NARROW, M64)], ids=str)
def test_our_ukernel_is_used(matmul: Matmul, name: str):
    configured = mxcomp.compile(source(matmul), compile_to="executable-configurations").vmfb.decode()
    assert f'ukernel_descriptor<"{name}"' in configured
    assert f"util.func private @{name}(" in configured
    assert "pingpong" not in configured
    program, _ = built(matmul)
    assert program.report.matmuls[0].ukernel == name
    ours, generated = parts(matmul)["matmul"], parts(matmul, "none")["matmul"]
    # Our loops load straight into shared memory; IREE's generated code does not.
    assert ours.lds_loads > 0
    assert generated.lds_loads == 0
    assert ours.assembly.count("v_mfma_scale_f32_16x16x128") > 0


@pytest.mark.parametrize("data_tiling", [True, False])
@pytest.mark.parametrize("matmul", [EXACT, NARROW, DYNAMIC], ids=str)
def test_no_ukernel_unless_wanted(matmul: Matmul, data_tiling: bool):
    options = {"ukernels": "none", "data_tiling": data_tiling}
    configured = mxcomp.compile(source(matmul), compile_to="executable-configurations", **options).vmfb.decode()
    assert "ukernel" not in configured.replace('ukernels = "none"', "")
    program, _ = built(matmul, **options)
    assert program.report.matmuls[0].ukernel is None
    assert "--ukernels=none" in program.report.matmuls[0].reason


@pytest.mark.parametrize("ukernels", UKERNELS)
def test_code_does_not_grow_with_k(ukernels: str):
    """K is walked in a loop, one tile at a time."""
    tile = layout_from(built(EXACT, ukernels)[0].report.matmuls[0].layout).tile
    long = Matmul(EXACT.m, EXACT.n, 16 * tile[2])
    counts = [parts(matmul, ukernels)["matmul"].assembly.count("v_mfma_scale") for matmul in (EXACT, long)]
    assert counts[0] == counts[1] > 0


F16 = """
func.func @half(%a: tensor<1024x1024xf16>, %b: tensor<1024x1024xf16>) -> tensor<1024x1024xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<1024x1024xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %r = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%a, %b : tensor<1024x1024xf16>, tensor<1024x1024xf16>)
      outs(%zeros : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  return %r : tensor<1024x1024xf32>
}
"""


def test_other_matmuls_are_compiled_as_iree_does():
    """In particular without IREE's builtin ukernels, which our provider could have let in."""

    def half(found: list[Kernel]) -> str:
        (kernel,) = [kernel for kernel in found if kernel.assembly.name.startswith("half_dispatch")]
        return kernel.normal

    text = source(EXACT, extra=F16)
    plain = half(kernels(lambda flag: stock(text, flag)))
    assert half(kernels(lambda flag: stock(text, flag, "--iree-rocm-enable-tensor-ukernels"))) != plain
    for data_tiling in (True, False):
        program, found = compiled(text, data_tiling=data_tiling)
        assert len(program.report.matmuls) == 1
        assert program.report.matmuls[0].ukernel
        assert half(found) == plain


# The large problem.


@pytest.mark.parametrize("ukernels", UKERNELS)
@pytest.mark.parametrize("data_tiling", [True, False])
def test_large_problem(data_tiling: bool, ukernels: str):
    program, found = built(Matmul(10000, 16384, 16384), ukernels, data_tiling)
    (matmul,) = program.report.matmuls
    assert (matmul.m, matmul.n, matmul.k) == (10000, 16384, 16384)
    assert bool(matmul.ukernel) == (ukernels == "auto")
    assert (
        matmul.operands
        == {
            (True, "auto"): "data_tiled",
            (True, "none"): "data_tiled",
            (False, "auto"): "row_major",
            (False, "none"): "plain",
        }[data_tiling, ukernels]
    )
    assert len(found) == (5 if data_tiling else 1)
    assert found[-1].assembly.count("v_mfma_scale_f32") > 0
    assert all(kernel.assembly.scratch_bytes == 0 for kernel in found)


@pytest.mark.parametrize("data_tiling", [True, False])
@pytest.mark.parametrize("m", [40000, 10**6])
def test_more_than_2_gib_are_left_to_iree(m: int, data_tiling: bool):
    """The result of the first is too large, in the second the LHS as well."""
    program, found = built(Matmul(m, 16384, 16384), "auto", data_tiling)
    (matmul,) = program.report.matmuls
    assert matmul.reason.startswith("left to IREE: ")
    assert "exceeds 2147483647 bytes" in matmul.reason
    assert (matmul.ukernel, matmul.layout, matmul.operands) == (None, None, "plain")
    assert len(found) == 1


def test_dynamic_m_is_guarded_at_run_time():
    """A packed row of 2^21 elements is 1 MiB; 2047 rows are below 2 GiB, 1920 of them whole tiles of 128."""
    program = mxcomp.compile(source(Matmul(1, 256, 2**21, dynamic_m=True)))
    assert b"mxcomp: M must be between 1 and 1920" in program.vmfb
    assert b"mxcomp: M must be" not in built(EXACT)[0].vmfb


# Threads and sources.


def test_threads_compile_alike():
    texts = [source(matmul) for matmul in (EXACT, NARROW, DYNAMIC, CONSTANT)]
    alone = [mxcomp.compile(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(mxcomp.compile, texts * 2))
    assert [program.vmfb for program in together] == [program.vmfb for program in alone] * 2
    assert [program.report for program in together] == [program.report for program in alone] * 2


def test_sources(tmp_path: Path):
    text = source(EXACT)
    path = tmp_path / "model.mlir"
    path.write_text(text)
    buffer = BytesIO()
    with ir.Context():
        module = ir.Module.parse(text)
        module.operation.write_bytecode(buffer)
        before = str(module)
        programs = [mxcomp.compile(kind) for kind in (text, text.encode(), path, str(path), buffer.getvalue(), module)]
        assert str(module) == before
    sizes = []
    for program in programs:
        (matmul,) = program.report.matmuls
        assert matmul.dispatches == PARTS
        assert matmul.ukernel == M128
        sizes.append(len(program.vmfb))
    assert programs[0].vmfb == programs[1].vmfb
    assert programs[2].vmfb == programs[3].vmfb
    assert max(sizes) - min(sizes) < 0.2 * min(sizes)
    assert programs[2].report.matmuls[0].location.startswith(str(path))


# Errors.


def test_invalid_mlir():
    with pytest.raises(InputError, match="not valid MLIR") as caught:
        mxcomp.compile("func.func @f(%a: i32) -> i64 {\n  return %a : i32\n}")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.startswith("error: source:2:3: type of return operand 0 ('i32')")
    assert diagnostic in str(caught.value)


@pytest.mark.parametrize("data", [b"\x00\x01", b"ML\xefR\x06", "func.func @f() {}\n".encode("utf-16")])
def test_invalid_bytes(data: bytes):
    with pytest.raises(InputError, match="not valid MLIR") as caught:
        mxcomp.compile(data)
    assert caught.value.diagnostics


def test_what_iree_rejects():
    """Arguments cannot have 4-bit elements."""
    text = """
    func.func @f(%a: tensor<4xf4E2M1FN>) -> tensor<4xf32> {
      %0 = arith.extf %a : tensor<4xf4E2M1FN> to tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    with pytest.raises(CompileError, match="IREE could not compile the module") as caught:
        mxcomp.compile(text)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.startswith("error: source:2:5: 'hal.element_type' op unsupported element type")
    assert diagnostic in str(caught.value)


@pytest.mark.parametrize("text", ["\n", "module {\n}"])
def test_empty_module(text: str):
    with pytest.raises(CompileError) as caught:
        mxcomp.compile(text)
    assert caught.value.diagnostics


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target": "gfx942"}, TargetError, "unknown target 'gfx942': expected one of gfx950"),
        ({"compile_to": "codegen"}, InputError, "unknown compilation phase 'codegen'"),
        ({"iree_flags": ["--no-such-flag"]}, InputError, "option not found: no-such-flag"),
        ({"iree_flags": ["--iree-rocm-target=gfx1"]}, CompileError, "Unknown ROCM target 'gfx1'"),
        ({"ukernels": "absent"}, UkernelError, f"unknown ukernel 'absent': known are {M128}, {M64}"),
        ({"ukernels": ""}, InputError, "--ukernels is empty"),
        ({"data_tiling": "perhaps"}, InputError, "--data-tiling=perhaps: expected on or off"),
        ({"ukernel_dirs": ["absent"]}, UkernelError, "ukernel directory absent does not exist"),
    ],
)
def test_options_without_meaning(options: dict, error: type[Exception], message: str):
    with pytest.raises(error) as caught:
        mxcomp.compile(source(EXACT), **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(("path", "message"), [("absent.mlir", "No such file"), (str(HERE), "Is a directory")])
def test_unreadable_source(path: str, message: str):
    with pytest.raises(InputError, match=message):
        mxcomp.compile(path)


# Saving.


def test_save(tmp_path: Path):
    program, _ = built(EXACT)
    path = tmp_path / "model.vmfb"
    path.write_bytes(b"old")
    program.save(path)
    assert path.read_bytes() == program.vmfb
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_save_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    program, _ = built(EXACT)
    path = tmp_path / "model.vmfb"
    path.write_bytes(b"old")
    write = Path.write_bytes

    def disk_full(self: Path, data: bytes) -> int:
        write(self, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", disk_full)
    with pytest.raises(InputError, match=r"cannot write .*model\.vmfb: No space left on device"):
        program.save(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_save_where_nothing_can_be_written(tmp_path: Path):
    program, _ = built(EXACT)
    for path in (tmp_path, tmp_path / "absent" / "model.vmfb"):
        with pytest.raises(InputError, match="cannot write"):
            program.save(path)
    assert not list(tmp_path.iterdir())


def test_all_files_or_none(tmp_path: Path):
    good = tmp_path / "good"
    with pytest.raises(InputError, match="cannot write"):
        files.write({good: b"data", tmp_path / "absent" / "bad": b"data"})
    assert not list(tmp_path.iterdir())
    files.write({good: b"data", tmp_path / "other": b"more"})
    assert good.read_bytes() == b"data"


# The report.


def test_report():
    unsupported = source(EXACT, name="f8").replace("f4E2M1FN", "f8E4M3FN").replace("512xi8", "1024xi8")
    text = source(PADDED, DYNAMIC, NARROW, Matmul(40000, 16384, 16384)) + unsupported[unsupported.index("func.func") :]
    program = mxcomp.compile(text)
    padded, dynamic, narrow, large, fp8 = program.report.matmuls
    lines = text.split("\n")
    for index, matmul in enumerate((padded, dynamic, narrow, large)):
        file, line, column = matmul.location.split(":")
        assert file == "source"
        assert lines[int(line) - 1][int(column) - 1 :].startswith("linalg.generic")
        assert f"%r{index} = " in lines[int(line) - 1]
        assert matmul.types == ["f4E2M1FN", "f4E2M1FN", "f8E8M0FNU", "f8E8M0FNU", "f32"]
        assert matmul.index == index
    assert [(m.m, m.n, m.k) for m in (padded, dynamic)] == [(1000, 1000, 1056), (None, 1000, 1056)]
    assert [m.ukernel for m in program.report.matmuls] == [M128, M128, M64, None, None]
    assert [m.operands for m in program.report.matmuls] == ["data_tiled"] * 3 + ["plain"] * 2
    assert [m.dispatches for m in program.report.matmuls] == [PARTS] * 3 + [["matmul"]] * 2
    assert layout_from(padded.layout).tile == (128, 256, 256)
    assert layout_from(narrow.layout).tile == (64, 128, 512)
    assert padded.reason is padded.warning is None
    assert "exceeds 2147483647 bytes" in large.reason
    assert "f8E4M3FN × f8E4M3FN" in fp8.reason
    assert "wrong for non-uniform scales" in fp8.warning


def test_report_as_json_and_table():
    report = built(DYNAMIC, "none")[0].report
    assert json.loads(report.to_json()) == {
        "target": "gfx950",
        "matmuls": [
            {
                "location": report.matmuls[0].location,
                "index": 0,
                "m": None,
                "n": 1000,
                "k": 1056,
                "types": report.matmuls[0].types,
                "operands": "data_tiled",
                "layout": report.matmuls[0].layout,
                "ukernel": None,
                "reason": "--ukernels=none",
                "warning": None,
                "dispatches": PARTS,
            }
        ],
    }
    stream = StringIO()
    report.print(stream)
    for text in ("? × 1000 × 1056", "f4E2M1FN × f4E2M1FN", "128×256×256", "--ukernels=none", "gfx950"):
        assert text in stream.getvalue()


def test_no_matmul_no_report():
    program = mxcomp.compile(ANY_WORK)
    assert program.report.matmuls == []
    assert stock(ANY_WORK).vm_bytecode() == program.vmfb


def test_matching_layouts_of_lhs_and_constants_differ_by_operand():
    """A guard for the tests above: LHS and RHS do not share one image, so a mix-up would be seen."""
    layout = layout_from(built(CONSTANT)[0].report.matmuls[0].layout)
    data = np.arange(128 * 8 * 16).reshape(128, 8, 16)
    assert layout.swizzle(LHS).pack(data).tobytes() != layout.swizzle(RHS).pack(data).tobytes()
