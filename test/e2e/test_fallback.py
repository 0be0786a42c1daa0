"""What cannot be compiled as asked for: a right program with less of ours, which says so, or an error where strict."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from cases import CONSTANT, DYNAMIC, EXACT, M64, NARROW
from iree.compiler import ir
from modules import Matmul, source

import mxcomp
from mxcomp.compiler import Program
from mxcomp.errors import CompileError, InputError, InternalError
from mxcomp.options import STRICT, Options
from mxcomp.report import Report
from mxcomp.tools import compile as tool

Fault = Callable[[ir.Operation, Options], None]


def _forgets(module: ir.Operation, options: Options) -> None:
    """A pass that does nothing."""


def _raises(module: ir.Operation, options: Options) -> None:
    raise TypeError("an operand of nothing")


def _raises_with_versions(module: ir.Operation, options: Options) -> None:
    if options.versions:
        raise KeyError("version")


def _leaves_invalid(module: ir.Operation, options: Options) -> None:
    if options.data_tiling:
        next(op for op in module.regions[0].blocks[0] if "sym_name" in op.attributes).attributes["sym_name"] = (
            ir.UnitAttr.get(module.context)
        )


ALL = "by IREE's own lowering of scaled matmuls"
FAULTS: dict[str, tuple[str, Fault, Matmul, str, str]] = {
    "a pass raises": ("materialise", _raises, NARROW, "mxcomp-materialise failed", ALL),
    "a pass raises first": ("encode", _raises_with_versions, DYNAMIC, "mxcomp-encode failed", "with one kernel for"),
    "invalid IR": ("materialise", _leaves_invalid, CONSTANT, "invalid IR after mxcomp-materialise", ALL),
    "IREE fails": ("link_ukernels", _forgets, EXACT, "IREE could not compile the module", "without ukernels"),
}
"""The pass, what it does instead, the matmul, what is said, and what is compiled."""


@pytest.fixture(autouse=True)
def not_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STRICT)


def broken(monkeypatch: pytest.MonkeyPatch, name: str, fault: Fault) -> None:
    """Makes a pass do something else, wherever it would do anything."""
    passed = import_module(f"mxcomp.passes.{name}")
    run = passed.run

    def faulty(module: ir.Operation, options: Options) -> None:
        fault(module, options)
        if fault not in (_forgets, _raises):
            run(module, options)

    def needed(module: ir.Operation, options: Options) -> None:
        needs = options.data_tiling if name == "materialise" else True
        (faulty if needs else run)(module, options)

    monkeypatch.setattr(passed, "run", needed)


def is_right(program: Program, matmul: Matmul) -> bool:
    (result,) = program.run(*matmul.inputs, engine="fast")
    return matmul.error(result) <= matmul.bound


@pytest.mark.parametrize("case", FAULTS)
def test_a_right_program_is_compiled_and_says_why(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, fault, matmul, said, how = FAULTS[case]
    broken(monkeypatch, name, fault)
    with pytest.warns(RuntimeWarning, match=f"{said}.*; compiled {how}") as caught:
        program = mxcomp.compile(source(matmul))
    assert caught[0].filename == __file__
    assert is_right(program, matmul)
    fallback = program.report.fallback
    assert fallback is not None and str(caught[0].message) == fallback
    assert program.report.warnings[0] == f"warning: {fallback}"
    assert Report.from_json(program.report.to_json()) == program.report
    (found,) = program.report.matmuls
    assert (found.ukernel is not None) == (case == "a pass raises first")
    assert (found.operands == "plain") == (how == ALL)


@pytest.mark.parametrize("case", FAULTS)
def test_strict(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, fault, matmul, said, _ = FAULTS[case]
    broken(monkeypatch, name, fault)
    with pytest.raises(CompileError, match=said) as caught:
        mxcomp.compile(source(matmul), strict=True)
    internal = case != "IREE fails"
    assert isinstance(caught.value, InternalError) == internal
    assert ("this is a bug in mxcomp" in caught.value.message) == internal
    monkeypatch.setenv(STRICT, "")
    with pytest.raises(CompileError, match=said):
        mxcomp.compile(source(matmul))


def test_an_exception_of_a_pass_is_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "materialise", _raises)
    with pytest.raises(InternalError) as caught:
        mxcomp.compile(source(NARROW), strict=True)
    assert isinstance(caught.value.__cause__, TypeError)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.startswith(f"TypeError: an operand of nothing ({Path(__file__).name}:")


def test_an_error_in_every_way_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "share_executables", _raises)
    with pytest.raises(InternalError, match="mxcomp-share-executables failed"):
        mxcomp.compile(source(NARROW))


def test_bad_input_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def refuses(module: ir.Operation, options: Options) -> None:
        tries.append(options)
        raise InputError("no such thing")

    broken(monkeypatch, "encode", refuses)
    with pytest.raises(InputError, match="no such thing"):
        mxcomp.compile(source(NARROW))
    assert len(tries) == 1


def test_ukernels_of_the_users_own_are_not_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken(monkeypatch, "link_ukernels", _forgets)
    with pytest.raises(CompileError, match="IREE could not compile the module"):
        mxcomp.compile(source(EXACT), ukernel_dirs=[tmp_path])


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken(monkeypatch, "link_ukernels", _forgets)
    monkeypatch.setattr(tool, "set_global_flags", lambda *_: None)  # which IREE takes once, before all else
    model, vmfb, report = (tmp_path / name for name in ("model.mlir", "model.vmfb", "report.json"))
    model.write_text(source(NARROW))
    command = [str(model), "-o", str(vmfb), f"--ukernels={M64}", f"--report={report}"]
    assert tool.main(command) == 0
    said = capfd.readouterr().err.splitlines()
    assert said[0].startswith("warning: IREE could not compile the module") and "compiled without ukernels" in said[0]
    assert "compiled without ukernels" in json.loads(report.read_text())["fallback"]
    assert is_right(Program.load(vmfb, report), NARROW)
    vmfb.unlink()
    assert tool.main([*command, "--strict"]) == 1
    assert "error: IREE could not compile the module" in capfd.readouterr().err
    assert not vmfb.exists()
