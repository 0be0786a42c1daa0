"""mxcomp-compile: compiles a module with MX scaled matmuls to a vmfb.

Takes the flags of iree-compile besides its own, for example --compile-to=PHASE, --output-format=vm-asm,
--iree-hal-dump-executable-files-to=DIR or @FILE.rsp.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from iree.compiler.tools.scripts.iree_compile.__main__ import main as iree_compile

from mxcomp.compiler import Program, compile_with
from mxcomp.errors import InputError, MxcompError
from mxcomp.mlir import driver, target_flags
from mxcomp.mlir.driver import DriverFlags
from mxcomp.mlir.session import PHASES, SPLIT_MARK, read_source, set_global_flags, split_source
from mxcomp.options import Options
from mxcomp.plugin.emit import emit_plugin
from mxcomp.plugin.response_file import RESPONSE
from mxcomp.report.report import Report
from mxcomp.support import files
from mxcomp.support.progress import waiting
from mxcomp.tools import common, remarks, response
from mxcomp.weights.manifest import FLAG

NAME = "mxcomp-compile"
_LISTS = ("--iree-list-plugins", "--iree-hal-list-target-backends")
"""Flags with which iree-compile prints a list and compiles nothing."""


def main(argv: list[str] | None = None) -> int:
    parser = common.parser(NAME, __doc__)
    parser.add_argument("--report", metavar="FILE", help="what became of each scaled matmul, as JSON; - for stdout")
    parser.add_argument(
        "--emit-plugin", metavar="DIR", help="write files for a stock iree-compile, and compile nothing"
    )
    parser.add_argument(
        "--packed-parameters", metavar="FILE", help="read parameters packed by mxcomp-pack; FILE gets its manifest"
    )
    parser.add_argument("--compile-to", default="end", metavar="PHASE", help="stop after an IREE phase and print MLIR")
    parser.add_argument(
        "--split-input-file", action="store_true", help=f"treat parts between '{SPLIT_MARK}' lines apart"
    )
    parser.add_argument("-w", "--no-warnings", action="store_true", help="nothing on stderr but errors")

    def run() -> None:
        driver_flags, others = driver.split(response.expanded(sys.argv[1:] if argv is None else argv))
        args, iree_flags = parser.parse_known_args(others)
        if lists := [flag for flag in iree_flags if flag in _LISTS]:
            iree_compile(lists)
        else:
            _run(args, driver_flags, iree_flags)

    return common.exit_code(NAME, run)


def _run(args: argparse.Namespace, driver_flags: Sequence[str], iree_flags: Sequence[str]) -> None:
    options = replace(common.options(args), packed_parameters=bool(args.packed_parameters))
    _check_packed_parameters(args)
    _check_flags(args, DriverFlags.of(driver_flags))
    set_global_flags(NAME, iree_flags)
    target = target_flags.missing(options.target)
    try:
        with waiting(f"compiling {args.input}"):
            report, results = _results(args, options, driver_flags, iree_flags, target)
    except MxcompError as error:
        if error.report is not None and error.report.matmuls:
            _write_beside(error, _report(args, error.report))
        raise
    if not args.no_warnings and args.compile_to != "start":
        for line in remarks.lines(report, options):
            print(line, file=sys.stderr)
        print(f"{NAME}: {report.summary()}", file=sys.stderr)
        if args.emit_plugin:
            print(f"{NAME}: next: {_next_command(args)}", file=sys.stderr)
    results |= _report(args, report)
    if args.packed_parameters and report.manifest is not None:
        results[args.packed_parameters] = report.manifest.to_json().encode() + b"\n"
    files.write(results)


def _results(
    args: argparse.Namespace,
    options: Options,
    driver_flags: Sequence[str],
    iree_flags: Sequence[str],
    target: Sequence[str],
) -> tuple[Report, dict[str | Path, bytes]]:
    """Returns the report, and the program by the name of its file; none if a plugin was written instead."""
    if args.emit_plugin:
        flags = (*target, *driver_flags, *iree_flags)
        return emit_plugin(_source(args), options, Path(args.emit_plugin), flags, target), {}
    program = _compile(args, options, (*target, *driver_flags))
    return program.report, {args.output: program.vmfb}


def _source(args: argparse.Namespace) -> bytes | Path:
    return sys.stdin.buffer.read() if args.input == "-" else Path(args.input)


def _next_command(args: argparse.Namespace) -> str:
    """Returns the command that compiles a model with the plugin that has been written."""
    model = "model.mlir" if args.input == "-" else args.input
    output = "model.vmfb" if args.output == "-" else args.output
    return shlex.join(("iree-compile", f"@{Path(args.emit_plugin) / RESPONSE}", model, "-o", output))


def _compile(args: argparse.Namespace, options: Options, flags: Sequence[str]) -> Program:
    compile_each = _compile_pieces if args.split_input_file else compile_with
    return compile_each(_source(args), options, flags, args.compile_to)


def _compile_pieces(source: bytes | Path, options: Options, flags: Sequence[str], compile_to: str) -> Program:
    """Returns the compiled texts of the modules in one file, with SPLIT_MARK between them, and one report.

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


def _report(args: argparse.Namespace, report: Report) -> dict[str | Path, bytes]:
    """Returns the report as it is to be written; a terminal gets a table right away."""
    if args.report == "-" and sys.stdout.isatty():
        report.print(sys.stdout)
        return {}
    return {args.report: report.to_json().encode() + b"\n"} if args.report else {}


def _write_beside(error: MxcompError, results: dict[str | Path, bytes]) -> None:
    """Writes the available results after an error, which remains the one that is reported."""
    try:
        files.write(results)
    except InputError as other:
        print(f"{NAME}: error: {other}", file=sys.stderr)


def _check_flags(args: argparse.Namespace, flags: DriverFlags) -> None:
    """Raises InputError for flags that contradict each other."""
    if args.output == args.report and not args.emit_plugin:
        raise InputError(f"-o and --report are both {args.output}: give one of them a file of its own")
    if args.emit_plugin and args.tuned:
        raise InputError(
            f"--tuned={args.tuned} and --emit-plugin: a line is about a result as a model stores it, which a plugin's "
            "functions do not see: compile in process"
        )
    if args.emit_plugin and flags.compile_from != "start":
        raise InputError(f"--compile-from={flags.compile_from} and --emit-plugin: a plugin is for a model's source")
    if not args.split_input_file:
        return
    if args.emit_plugin or args.packed_parameters:
        raise InputError("--split-input-file: --emit-plugin and --packed-parameters are for one module: split the file")
    if flags.remarks_filter:
        raise InputError("--split-input-file and --remarks-filter: a file of remarks is of one module: split the file")
    if not flags.is_text(args.compile_to):
        raise InputError(
            "--split-input-file: several binaries do not make one file: expected --output-format=vm-asm, or a PHASE to "
            "--compile-to, without --emit-mlir-bytecode"
        )


def _check_packed_parameters(args: argparse.Namespace) -> None:
    """Raises InputError where --packed-parameters has no meaning."""
    flag = f"{FLAG}={args.packed_parameters}"
    if args.packed_parameters is None:
        return
    if args.emit_plugin:
        raise InputError(f"{flag} and --emit-plugin: only a compilation in process reads packed parameters")
    if args.packed_parameters in ("", args.output, args.report):
        raise InputError(f"{flag}: expected a file of its own for the manifest")
    if args.compile_to in PHASES and PHASES.index(args.compile_to) < PHASES.index("flow"):
        raise InputError(f"{flag}: which parameters are read is known from phase flow on, not in {args.compile_to}")


if __name__ == "__main__":
    sys.exit(main())
