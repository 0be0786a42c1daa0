"""--split-input-file: the modules in one file, compiled apart from each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from mxcomp.compiler import Program, compile_with
from mxcomp.errors import MxcompError
from mxcomp.mlir.session import NamedSource, read_source
from mxcomp.options import Options
from mxcomp.report.report import Report

MARK = "// -----"
"""The line between modules, which may go on; the same as in MLIR's own tools."""


def compile_pieces(source: bytes | Path, options: Options, flags: Sequence[str], compile_to: str) -> Program:
    """The texts that the modules compile to, with MARK between them, and one report.

    Each is compiled, whatever became of the others; if some could not be, raises one error with what is wrong in all.
    """
    results, report, errors = [], Report(options.target.arch), []
    for piece in split(*read_source(source)):
        try:
            program = compile_with(piece, options, flags, compile_to)
        except MxcompError as error:
            errors.append(error)
            report.matmuls += error.report.matmuls if error.report is not None else []
        else:
            results.append(program.vmfb.rstrip(b"\n"))
            report.matmuls += program.report.matmuls
    if errors:
        first, *others = errors
        raise type(first)(first.message, (*first.diagnostics, *map(str, others))).with_report(report, ())
    return Program(f"\n\n{MARK}\n\n".encode().join(results) + b"\n", report)


def split(source: bytes, name: str) -> Iterator[NamedSource]:
    """The modules of a file, each behind empty lines, so that locations are those of the file."""
    line = 0
    for piece in re.split(rf"^{MARK}.*$".encode(), source, flags=re.M):
        padded = b"\n" * line + piece
        yield NamedSource.of(padded, name)
        line = padded.count(b"\n")
