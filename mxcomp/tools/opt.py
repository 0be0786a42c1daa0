"""mxcomp-opt: runs passes of mxcomp and of IREE on MLIR text, for tests and for inspection.

mxcomp-opt --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{ukernels=none},canonicalize)' model.mlir
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from iree.compiler import ir

from mxcomp import pipeline
from mxcomp.errors import InputError, MxcompError
from mxcomp.mlir.session import SPLIT_MARK, Session, split_source
from mxcomp.options import Options
from mxcomp.passes import PASSES, get_pass
from mxcomp.support import files
from mxcomp.tools import common

NAME = "mxcomp-opt"
_ELEMENT = re.compile(r"^(?P<name>[\w-]+)(\{(?P<options>[^}]*)\})?$")
_EXPECTED = re.compile(r"//\s*expected-error\s*(@(?P<offset>[+-]\d+))?\s*\{\{(?P<text>.*?)\}\}")
_LOCATION = re.compile(r":(?P<line>\d+):\d+")


def main(argv: list[str] | None = None) -> int:
    parser = common.parser(NAME, __doc__)
    parser.add_argument("--pass-pipeline", default="builtin.module()", help="builtin.module(pass{option=value …},…)")
    parser.add_argument(
        "--split-input-file", action="store_true", help=f"treat parts between '{SPLIT_MARK}' lines apart"
    )
    parser.add_argument("--verify-diagnostics", action="store_true", help="check errors against // expected-error")
    parser.add_argument("--mlir-print-ir-after-all", action="store_true", help="print IR after each pass on stderr")
    parser.add_argument("--mlir-print-debuginfo", action="store_true", help="print locations")
    args = parser.parse_args(argv)

    def run() -> None:
        options = common.options(args)
        elements = parse_pipeline(args.pass_pipeline, options)
        data = _read(args.input)
        is_text = not data.startswith(_BYTECODE)
        pieces = split_source(data, args.input) if args.split_input_file and is_text else [data]
        results = []
        for part in pieces:
            error, output = _process(part, args.input, elements, args)
            if args.verify_diagnostics:
                check_diagnostics(part.decode() if is_text else "", error)
            elif error is not None:
                raise error
            results.append(output)
        if not args.verify_diagnostics:
            files.write({args.output: f"\n{SPLIT_MARK}\n\n".join(results).encode()})

    return common.exit_code(NAME, run)


_BYTECODE = b"ML\xefR"
"""The first bytes of MLIR bytecode."""


def _read(path: str) -> bytes:
    """Reads text or bytecode. Raises InputError."""
    data = sys.stdin.buffer.read() if path == "-" else files.read(path)
    try:
        if not data.startswith(_BYTECODE):
            data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: not UTF-8 text ({error.reason}), nor bytecode of MLIR") from None
    return data


def parse_pipeline(text: str, options: Options) -> list[tuple[str, Options | None]]:
    """Returns pipeline elements in order: our passes with their options, and IREE's (None) as text. Raises
    InputError."""
    match = re.fullmatch(r"\s*builtin\.module\((.*)\)\s*", text, re.S)
    if match is None:
        raise InputError(f"--pass-pipeline={text}: expected builtin.module(…)")
    elements: list[tuple[str, Options | None]] = []
    for element in _split(match[1]):
        found = _ELEMENT.match(element)
        if found is None or found["name"] not in PASSES:
            if element.startswith("mxcomp-"):
                raise InputError(f"unknown pass '{element}': expected one of {', '.join(PASSES)}")
            elements.append((element, None))
            continue
        elements.append((found["name"], _with_options(found["name"], options, found["options"] or "")))
    return elements


def _split(text: str) -> list[str]:
    """Splits at commas outside brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "({") - (char in ")}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


_AS_FLAGS = ("data-tiling", "ukernels", "versions", "fuse-quantisers", "tuned")
"""The options of passes that are parsed as flags are."""


def _with_options(name: str, options: Options, text: str) -> Options:
    known = get_pass(name).options
    for item in text.split():
        key, _, value = item.partition("=")
        if key not in known:
            expected = f"expected {', '.join(known)}" if known else "it has none"
            raise InputError(f"pass {name} has no option '{key}': {expected}")
        entry, given = key.replace("-", "_"), dict[str, Any]()
        if key in _AS_FLAGS:
            given[entry] = value
            given[entry] = getattr(Options.make(**given), entry)
        elif key == "ukernel-dir":
            given["ukernel_dirs"] = (*options.ukernel_dirs, Path(value))
        else:
            given[entry] = _is_true(key, value)
        options = replace(options, **given)
    options.check()
    return options


def _is_true(key: str, value: str) -> bool:
    if value not in ("", "true", "false"):
        raise InputError(f"pass option {key}={value}: expected true or false")
    return value != "false"


def _process(
    source: bytes, name: str, elements: list[tuple[str, Options | None]], args: argparse.Namespace
) -> tuple[MxcompError | None, str]:
    try:
        session = Session()
        session.load(source, name)
        for element, options in elements:
            if options is None:
                session.run_passes(element)
            else:
                pipeline.run(session.module, (element,), options)
            if args.mlir_print_ir_after_all:
                print(f"// -----// IR Dump After {element} //----- //\n{session.module}", file=sys.stderr)
        module: ir.Operation = session.module
        return None, module.get_asm(enable_debug_info=args.mlir_print_debuginfo).rstrip("\n") + "\n"
    except MxcompError as error:
        return error, ""


def check_diagnostics(text: str, error: MxcompError | None) -> None:
    """Compares an error with the `// expected-error @±n {{…}}` comments of its part. Raises InputError."""
    expected = []
    for number, comment in enumerate(text.split("\n"), 1):
        expected += [(number + int(m["offset"] or 0), m["text"]) for m in _EXPECTED.finditer(comment)]
    message = str(error) if error is not None else ""
    found = _LOCATION.search(message)
    expected_line = int(found["line"]) if found else None
    for line, wanted in expected:
        if wanted not in message or expected_line not in (None, line):
            raise InputError(f"line {line}: expected error '{wanted}', got '{message or 'none'}'")
    if error is not None and not expected:
        raise error


if __name__ == "__main__":
    sys.exit(main())
