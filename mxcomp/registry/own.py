"""A user's own kernels in Python: runs the Python files of a directory of ukernels, which define their kernels.

    INSTANCES = (Kernel("my_kernel", rule, write),)

A file is run when the directory is read, once in a process, and may do anything that Python can. Any object with
`name`, `rule` and `module(path, target)` is an instance, including one of a kind of this package with a tile of the
user's.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

from iree.compiler import ir

from mxcomp.errors import UkernelError
from mxcomp.registry import reading
from mxcomp.registry.rules import Ukernel, location_of, ruled, said, unreadable
from mxcomp.target import Target

_INSTANCES, _ENTRIES = "INSTANCES", ("name", "rule", "module")


def read(path: Path, target: Target) -> tuple[Ukernel, ...]:
    """Returns the ukernels of a file, each written once to be checked. Needs a current context. Raises UkernelError."""
    try:
        return _read(path, target, path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None


@cache
def _read(path: Path, target: Target, text: str) -> tuple[Ukernel, ...]:
    with _locating_errors(path, None):
        tree = ast.parse(text, str(path))
        values = _run(tree, path)
    line = _line(tree)
    with _locating_errors(path, line):
        instances = tuple(values.get(_INSTANCES, ()))
    if not instances:
        raise UkernelError(f"{location_of(path, line)}: no kernel: expected {_INSTANCES}, of mxcomp.ukernels.Kernel")
    return tuple(_checked(path, target, line, each) for each in instances)


def _run(tree: ast.Module, path: Path) -> dict[str, Any]:
    """Returns the names that a file defines."""
    module = ModuleType(f"{__name__}.{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses look for names in annotations
    exec(compile(tree, str(path), "exec"), vars(module))
    return vars(module)


def _line(tree: ast.Module) -> int | None:
    """Returns the line where instances are listed."""
    for statement in tree.body:
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        if any(isinstance(each, ast.Name) and each.id == _INSTANCES for each in targets):
            return statement.lineno
    return None


def _checked(path: Path, target: Target, line: int | None, instance: Any) -> Ukernel:
    with _locating_errors(path, line):
        missing = [entry for entry in _ENTRIES if not hasattr(instance, entry)]
        if missing:
            raise TypeError(f"{instance!r} in {_INSTANCES} has no {missing[0]}: expected mxcomp.ukernels.Kernel")
        name, rule = instance.name, instance.rule
    ukernel = reading.described(name, path, target, rule, line, partial(_module, instance, line))
    with _locating_errors(path, line, name), ir.loc_tracebacks():
        module = instance.module(path, target)
        module.operation.verify()
    return reading.checked(ukernel, ruled(module, path))


def _module(instance: Any, line: int | None, path: Path, target: Target) -> ir.Module:
    with _locating_errors(path, line, instance.name):
        module: ir.Module = instance.module(path, target)
        return module


@contextmanager
def _locating_errors(path: Path, line: int | None, name: str = "") -> Iterator[None]:
    """Converts any exception to a UkernelError with its location: the innermost line of the file, or `line`."""
    kernel = f"@{name}: " if name else ""
    try:
        yield
    except UkernelError:
        raise
    except SyntaxError as error:
        location = location_of(path, error.lineno) if error.filename == str(path) else location_of(path, line)
        raise UkernelError(f"{location}: {kernel}{error.msg}") from None
    except (Exception, SystemExit) as error:
        frames = [number for frame, number in walk_tb(error.__traceback__) if frame.f_code.co_filename == str(path)]
        line = frames[-1] if frames else line
        if isinstance(error, ir.MLIRError):
            raise UkernelError(said(path, error, line, kernel)) from None
        text = " ".join(str(error).split())
        raise UkernelError(f"{location_of(path, line)}: {kernel}{type(error).__name__}: {text}") from error
