"""--split-input-file: compiles the modules in one file apart from each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mxcomp.compiler import Program, compile_with
from mxcomp.errors import MxcompError
from mxcomp.mlir.session import SPLIT_MARK, read_source, split_source
from mxcomp.options import Options
from mxcomp.report.report import Report


def compile_pieces(source: bytes | Path, options: Options, flags: Sequence[str], compile_to: str) -> Program:
    """Returns the compiled texts of the modules with SPLIT_MARK between them, and one report.

    Each is compiled, whatever became of the others; if some could not be, raises one error with what is wrong in all.
    """
    results, report, errors = [], Report(options.target.name), []
    for piece in split_source(*read_source(source)):
        try:
            program = compile_with(piece, options, flags, compile_to)
        except MxcompError as error:
            errors.append(error)
            report.matmuls += error.report.matmuls if error.report is not None else []
        else:
            results.append(program.vmfb.rstrip(b"\n"))
            report.matmuls += program.report.matmuls
            report.left_out = program.report.left_out
            report.fallback = report.fallback or program.report.fallback
    if errors:
        first, *others = errors
        raise type(first)(first.message, (*first.diagnostics, *map(str, others))).with_report(report, ())
    return Program(f"\n\n{SPLIT_MARK}\n\n".encode().join(results) + b"\n", report)
