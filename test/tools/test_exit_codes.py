"""0: all went well; 1: an error that was said on stderr; 2: a command line that cannot be read; 130: an interrupt."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import NoReturn

import pytest

from mxcomp.errors import InputError
from mxcomp.tools import common

ARGUMENTS = {
    "bench": ["64x0x32"],
    "compile": ["no_such.mlir"],
    "kernel": ["no_such"],
    "opt": ["no_such.mlir"],
    "pack": ["no_such.npz", "-o", "x.irpa"],
    "run": ["no_such.vmfb", "--device=toaster"],
    "show": ["no_such.npy", "--type=f4E2M1FN"],
    "sim": ["no_such.hsaco"],
    "tune": ["no_such.mlir"],
}
"""What each command cannot do."""


@pytest.mark.parametrize("tool", ARGUMENTS)
def test_an_error_is_1(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert import_module(f"mxcomp.tools.{tool}").main(ARGUMENTS[tool]) == 1
    assert f"mxcomp-{tool}: error: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tool", ARGUMENTS)
def test_version_is_0_and_nonsense_is_2(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    main = import_module(f"mxcomp.tools.{tool}").main
    own = {
        "show": "--type=f4",
        "compile": "--report",
        "opt": "--nonsense",
        "run": "--engine=steam",
        "pack": "--nonsense",
    }
    for argument, code in (("--version", 0), (own.get(tool, "--jobs=many"), 2)):
        with pytest.raises(SystemExit) as found:
            main([argument])
        assert found.value.code == code
    assert f"mxcomp-{tool}" in capsys.readouterr().out


def test_codes(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(error: BaseException) -> NoReturn:
        raise error

    assert common.exit_code("tool", lambda: None) == 0
    assert common.exit_code("tool", lambda: 3) == 3
    assert common.exit_code("tool", lambda: fail(InputError("wrong: expected right"))) == 1
    assert common.exit_code("tool", lambda: fail(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "tool: error: wrong: expected right\ntool: interrupted\n"
