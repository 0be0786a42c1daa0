"""Writes the flags that make a stock iree-compile read a plugin, as lines of an LLVM response file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mxcomp.errors import InputError

MATCH, LINK, RESPONSE = "match.mlir", "link.mlir", "mxcomp.rsp"


def response_file(directory: Path, flags: Sequence[str]) -> list[str]:
    """Returns a line for each of `flags`, one for MATCH and, last, one for LINK. Raises InputError for names it cannot
    contain."""
    return [_token(flag) for flag in (*flags, *spec_flags(str(directory / MATCH), _pass_option(directory / LINK)))]


def spec_flags(match: str, link: str) -> tuple[str, str]:
    """Returns the flags for the files MATCH, a path, and LINK, a path as the value of a pass's option."""
    interpreter = f"iree-preprocessing-transform-interpreter{{transform-spec-path={link}}}"
    variant = f"builtin.module(hal.executable.variant(builtin.module({interpreter})))"
    return (
        f"--iree-preprocessing-transform-spec-filename={match}",
        f"--iree-hal-preprocess-executables-with={variant}",
    )


def _token(flag: str) -> str:
    """Quotes a flag as one token: inside double quotes a backslash keeps the next character as it is."""
    escaped = flag.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _pass_option(path: Path) -> str:
    """Quotes a path as the value of a pass's option, so that MLIR does not split it at spaces.

    MLIR knows no escapes: neither for a quote inside of quotes, nor for the braces that it counts to find the end of
    a pass's options.
    """
    text = str(path)
    quote = next((mark for mark in "\"'" if mark not in text), None)
    if quote is None or not _is_balanced(text):
        raise InputError(
            f"--emit-plugin: iree-compile cannot read a path with both kinds of quotes or unmatched braces: {text!r}: "
            "expected another directory"
        )
    return f"{quote}{text}{quote}"


def _is_balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char == "{") - (char == "}")
        if depth < 0:
            return False
    return depth == 0
