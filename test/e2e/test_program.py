"""`mxcomp.compile` as a function: sources, threads, errors, saving, reports."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pytest
from cases import CONSTANT, DYNAMIC, EXACT, M64, M128, NARROW, PADDED, PARTS, built
from iree.compiler import ir
from kernels import ANY_WORK, stock
from modules import HERE, Matmul, source

import mxcomp
from mxcomp.errors import CompileError, InputError, TargetError, UkernelError
from mxcomp.layout import layout_from
from mxcomp.support import files

# Threads and sources.


def test_threads_compile_alike() -> None:
    texts = [source(matmul) for matmul in (NARROW, CONSTANT)]
    alone = [mxcomp.compile(text) for text in texts]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(mxcomp.compile, texts))
    assert [program.vmfb for program in together] == [program.vmfb for program in alone]
    assert [program.report for program in together] == [program.report for program in alone]


def test_sources(tmp_path: Path) -> None:
    text = source(EXACT)
    path = tmp_path / "model.mlir"
    path.write_text(text)
    buffer = BytesIO()
    with ir.Context():
        module = ir.Module.parse(text)
        module.operation.write_bytecode(buffer)
        before = str(module)
        kinds = (text, text.encode(), path, str(path), buffer.getvalue(), module)
        programs = [mxcomp.compile(kind, compile_to="flow") for kind in kinds]
        assert str(module) == before
    sizes = []
    for program in programs:
        (matmul,) = program.report.matmuls
        assert matmul.dispatches == PARTS
        assert matmul.ukernel == programs[0].report.matmuls[0].ukernel is not None
        sizes.append(len(program.vmfb))
    assert programs[0].vmfb == programs[1].vmfb
    assert programs[2].vmfb == programs[3].vmfb
    assert max(sizes) - min(sizes) < 0.2 * min(sizes)
    assert programs[2].report.matmuls[0].location.startswith(str(path))


# Errors.


def test_invalid_mlir() -> None:
    with pytest.raises(InputError, match="not valid MLIR") as caught:
        mxcomp.compile("func.func @f(%a: i32) -> i64 {\n  return %a : i32\n}")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.startswith("error: source:2:3: type of return operand 0 ('i32')")
    assert diagnostic in str(caught.value)


@pytest.mark.parametrize("data", [b"\x00\x01", b"ML\xefR\x06", "func.func @f() {}\n".encode("utf-16")])
def test_invalid_bytes(data: bytes) -> None:
    with pytest.raises(InputError, match="not valid MLIR") as caught:
        mxcomp.compile(data)
    assert caught.value.diagnostics


def test_what_iree_rejects() -> None:
    """Arguments cannot have elements of f8E3M4."""
    text = """
    func.func @f(%a: tensor<4xf8E3M4>) -> tensor<4xf32> {
      %0 = arith.extf %a : tensor<4xf8E3M4> to tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    with pytest.raises(CompileError, match="IREE could not compile the module") as caught:
        mxcomp.compile(text, iree_flags=["--verify=true"])
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.startswith("error: source:2:5: 'hal.element_type' op unsupported element type")
    assert diagnostic in str(caught.value)


@pytest.mark.parametrize("text", ["\n", "module {\n}"])
def test_empty_module(text: str) -> None:
    with pytest.raises(CompileError) as caught:
        mxcomp.compile(text)
    assert caught.value.diagnostics


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target": "gfx942"}, TargetError, "unknown target 'gfx942': expected one of gfx950"),
        ({"compile_to": "codegen"}, InputError, "unknown compilation phase 'codegen'"),
        ({"iree_flags": ["--no-such-flag"]}, InputError, "option not found: no-such-flag"),
        (
            {"iree_flags": ["--iree-rocm-target=gfx942"]},
            InputError,
            "--iree-rocm-target=gfx942: expected gfx950, since the target is gfx950: leave the flag out, or compile "
            "for gfx942 with iree-compile",
        ),
        ({"iree_flags": ["--iree-hal-target-device=local"]}, InputError, "expected hip, since the target is gfx950"),
        ({"iree_flags": ["--iree-hal-target-backends=llvm-cpu"]}, InputError, "expected rocm, since the target is"),
        ({"ukernels": "absent"}, UkernelError, f"unknown ukernel 'absent': known are {M128}, {M64}"),
        ({"ukernels": ""}, InputError, "--ukernels is empty"),
        ({"data_tiling": "perhaps"}, InputError, "--data-tiling=perhaps: expected on or off"),
        ({"ukernel_dirs": ["absent"]}, UkernelError, "ukernel directory absent does not exist"),
    ],
)
def test_options_without_meaning(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        mxcomp.compile(source(EXACT), **options)
    assert message in str(caught.value)


def test_flags_that_name_the_target() -> None:
    """In IREE's other spellings, in the place of those that say so otherwise."""
    for flags in (["--iree-rocm-target=mi355x"], ["--iree-hal-target-backends=rocm"]):
        text = mxcomp.compile(source(EXACT), iree_flags=flags, compile_to="executable-sources").vmfb.decode()
        assert "gfx950" in text


@pytest.mark.parametrize(("path", "message"), [("absent.mlir", "No such file"), (str(HERE), "Is a directory")])
def test_unreadable_source(path: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        mxcomp.compile(path)


# Saving.


def test_save(tmp_path: Path) -> None:
    program, _ = built(EXACT)
    path = tmp_path / "model.vmfb"
    path.write_bytes(b"old")
    program.save(path)
    assert path.read_bytes() == program.vmfb
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_save_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_save_where_nothing_can_be_written(tmp_path: Path) -> None:
    program, _ = built(EXACT)
    for path in (tmp_path, tmp_path / "absent" / "model.vmfb"):
        with pytest.raises(InputError, match="cannot write"):
            program.save(path)
    assert not list(tmp_path.iterdir())


def test_all_files_or_none(tmp_path: Path) -> None:
    good = tmp_path / "good"
    with pytest.raises(InputError, match="cannot write"):
        files.write({good: b"data", tmp_path / "absent" / "bad": b"data"})
    assert not list(tmp_path.iterdir())
    files.write({good: b"data", tmp_path / "other": b"more"})
    assert good.read_bytes() == b"data"


# The report.


def test_report() -> None:
    large_fp8 = Matmul(131072, 256, 16384, types=("f8E4M3FN", "f4E2M1FN"))
    text = source(PADDED, DYNAMIC, NARROW, Matmul(40000, 16384, 16384), large_fp8)
    program = mxcomp.compile(text, ukernels="benefit", compile_to="executable-sources")
    padded, dynamic, narrow, large, fp8 = program.report.matmuls
    lines = text.split("\n")
    for index, matmul in enumerate((padded, dynamic, narrow, large, fp8)):
        file, line, column = matmul.location.split(":")
        assert file == "source"
        assert lines[int(line) - 1][int(column) - 1 :].startswith("linalg.generic")
        assert f"%r{index} = " in lines[int(line) - 1]
        assert matmul.types == [
            "f8E4M3FN" if matmul is fp8 else "f4E2M1FN",
            "f4E2M1FN",
            "f8E8M0FNU",
            "f8E8M0FNU",
            "f32",
        ]
        assert matmul.index == index
    assert [(m.m, m.n, m.k) for m in (padded, dynamic)] == [(1000, 1040, 1056), (None, 1000, 1056)]
    assert [m.ukernel for m in program.report.matmuls] == [M128, M128, M64, None, None]
    assert [m.operands for m in program.report.matmuls] == ["data_tiled"] * 3 + ["plain"] * 2
    assert [m.dispatches for m in program.report.matmuls] == [PARTS] * 3 + [["matmul"]] * 2
    assert layout_from(padded.layout).tile == (128, 256, 256)
    assert layout_from(narrow.layout).tile == (64, 128, 512)
    assert padded.reason is padded.warning is None
    assert "exceeds 2147483647 bytes" in large.reason
    assert large.warning is None
    assert "exceeds 2147483647 bytes" in fp8.reason
    assert "dequantised to f32 first" in fp8.warning


def test_report_as_json_and_table() -> None:
    report = mxcomp.compile(source(DYNAMIC), ukernels="none", compile_to="executable-configurations").report
    kernel = report.matmuls[0].kernel
    assert kernel.startswith("mxcomp_main_dispatch_4_")
    stored = asdict(report.matmuls[0].stored)
    assert [operand["operand"] for operand in stored["operands"]] == ["lhs", "rhs", "lhs_scale", "rhs_scale"]
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
                "order": "8 XCDs in bands of 4",
                "transposed": False,
                "ukernel": None,
                "reason": "--ukernels=none",
                "warning": None,
                "unfused": [],
                "dispatches": PARTS,
                "kernel": kernel,
                "stored": stored,
                "note": None,
                "versions": [],
                "kernels": report.matmuls[0].kernels,
                "name": None,
            }
        ],
        "launches": json.loads(json.dumps([asdict(launch) for launch in report.launches])),
    }
    assert [launch.part for launch in report.launches] == PARTS
    stream = StringIO()
    report.print(stream)
    for text in ("?×1000×1056", "f4E2M1FN × f4E2M1FN", "128×256×256", "--ukernels=none", "gfx950"):
        assert text in stream.getvalue()


def test_no_matmul_no_report() -> None:
    program = mxcomp.compile(ANY_WORK)
    assert program.report.matmuls == []
    assert stock(ANY_WORK).vm_bytecode() == program.vmfb


def test_an_unknown_operation_is_an_error() -> None:
    """IREE parses it and then crashes."""
    text = 'func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> { "foo.bar"() : () -> () return %a : tensor<4xf32> }'
    with pytest.raises(InputError, match=r"unknown operation 'foo\.bar'"):
        mxcomp.compile(text)
