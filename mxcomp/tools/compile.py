"""mxcomp-compile: compiles a module with MX scaled matmuls to a vmfb.

Takes every flag of iree-compile besides its own, for example --compile-to=PHASE or
--iree-hal-dump-executable-files-to=DIR.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from mxcomp import files
from mxcomp.compiler import compile_with
from mxcomp.errors import InputError
from mxcomp.mlir.session import PHASES, set_global_flags
from mxcomp.plugin.emit import emit_plugin
from mxcomp.tools import common
from mxcomp.weights.manifest import FLAG

NAME = "mxcomp-compile"


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
    args, iree_flags = parser.parse_known_args(argv)

    def run() -> None:
        options = replace(common.options(args), packed_parameters=bool(args.packed_parameters))
        _check_packed_parameters(args)
        if args.output == args.report and not args.emit_plugin:
            raise InputError(f"-o and --report are both {args.output}: give one of them a file of its own")
        source = sys.stdin.buffer.read() if args.input == "-" else Path(args.input)
        flags = (*options.target.iree_flags, *iree_flags)
        set_global_flags(NAME, flags)
        if args.emit_plugin:
            report = emit_plugin(source, options, Path(args.emit_plugin), flags)
            results: dict[str | Path, bytes] = {}
        else:
            program = compile_with(source, options, (), args.compile_to)
            report, results = program.report, {args.output: program.vmfb}
        for warning in report.warnings:
            print(warning, file=sys.stderr)
        if args.report == "-" and sys.stdout.isatty():
            report.print(sys.stdout)
        elif args.report:
            results[args.report] = report.to_json().encode() + b"\n"
        if args.packed_parameters and report.manifest is not None:
            results[args.packed_parameters] = report.manifest.to_json().encode() + b"\n"
        files.write(results)

    return common.exit_code(NAME, run)


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
