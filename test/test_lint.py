"""The code is clean for ruff and mypy, and every file stays one idea."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MACHINE_PATH = re.compile(rb"(?<![\w.$}])/(?:home|root|Users|work|mnt|workspace|builds?)/\w")
"""Somebody's own folders; what stands in front of it makes other things, such as a path below a variable."""


COMMANDS = [
    ["ruff", "check"], ["ruff", "format", "--check"], ["mypy", "mxcomp"], pytest.param(["mypy"], marks=pytest.mark.slow)
]  # fmt: skip
"""What mypy sees by default is the product: the tests take it as long again."""


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_clean(command: list[str]) -> None:
    result = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_imports_run_one_way() -> None:
    """In the order of docs/architecture.md, which is that of pyproject.toml."""
    from importlinter.cli import lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_no_machine_paths() -> None:
    """In all that git would add, if this is a repository; the same wherever it is checked out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git repository")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert [path for path in files if path.is_file() and MACHINE_PATH.search(path.read_bytes())] == []


def test_machine_paths_are_noticed() -> None:
    assert MACHINE_PATH.search(b"see /" + b"home/somebody/model.mlir")
    assert not MACHINE_PATH.search(b"$PREFIX/" + b"home/x, ./" + b"work/x, a/" + b"build/x")


DOCUMENTED = sorted(
    {path.resolve() for room in ("mxcomp", "passes", "ukernels") for path in (ROOT / room).rglob("*.py")}
)
FIRST_LINE = re.compile(r"(mxcomp[a-z0-9A-Z -]*: |--[a-z-]+|[A-Z`µ\d(])(.*[\w)`\]\"”%+²…*⌉])?[.:]( |$)")
"""A capital, code or the name of a command, and the end of a sentence."""

FRAGMENT = re.compile(r"(Of|As|The same|By|From|In|With|So|Behind|On|For|That|Those|Their|Where|What|How) ")
"""The beginning of half a sentence, which needs the name that it explains."""


def faults_of(source: str) -> list[str]:
    """Returns the lines and first lines of docstrings, of constants too, that are not sentences."""
    found = []

    def check(line: int, text: str, is_function: bool = False) -> None:
        first = text.strip().partition("\n")[0]
        is_verb = re.match(r"[A-Z][a-z]+s\b", first) is not None
        if not FIRST_LINE.match(first) or FRAGMENT.match(first) or (is_function and not is_verb):
            found.append(f"{line}: {first}")

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            if (text := ast.get_docstring(node)) is not None:
                decorators = {ast.unparse(each) for each in getattr(node, "decorator_list", ())}
                is_function = isinstance(node, ast.FunctionDef) and not decorators & {"property", "cached_property"}
                check(getattr(node, "lineno", 1), text, is_function)
            for target, after in pairwise(node.body):
                if isinstance(target, (ast.Assign, ast.AnnAssign)) and isinstance(after, ast.Expr):
                    value = after.value.value if isinstance(after.value, ast.Constant) else None
                    if isinstance(value, str):
                        check(after.lineno, " ".join(value.split("\n\n")[0].split()))
    return found


def test_docstrings_begin_with_a_sentence() -> None:
    faults = {str(path.relative_to(ROOT)): faults_of(path.read_text()) for path in DOCUMENTED}
    assert {path: lines for path, lines in faults.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        '"""what a module does."""',
        '"""The module"""',
        'A = 4\n"""Of an accumulator: f32."""',
        'A = 4\n"""bytes of an accumulator."""',
        'A = 4\n""""""',
        'def f():\n    """The number of waves."""',
        'class A:\n    b = 4\n    """As a lane has it."""',
        'def f():\n    """Returns a sentence\n    that ends on another line."""',
    ],
)
def test_half_sentences_are_noticed(source: str) -> None:
    assert len(faults_of(source)) == 1


def test_sentences_are_let_alone() -> None:
    constant = 'A = 4\n"""The bytes of an accumulator,\nwhich is f32."""'
    assert faults_of(f'"""Finds waves."""\n{constant}\ndef f():\n    """Returns 4."""') == []
