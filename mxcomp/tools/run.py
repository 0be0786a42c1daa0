"""mxcomp-run: runs a function of a vmfb with iree-run-module, on the simulated GPU unless told otherwise.

mxcomp-run model.vmfb --function=main --input=@a.npy --input=4x8xf32=1.5 --output=@y.npy --profile
iree-run-module --device=hip --hip_dylib_path=$(mxcomp-run --print-hip-dylib) --module=model.vmfb …   # the same

Takes every flag of iree-run-module: --function, --input, --output, --expected_output, --parameters …
One --output per result, in order. Besides what IREE takes it may name a type, to show bytes of MX data as numbers:

--output=f4E2M1FN            elements
--output=f4E2M1FN*1          elements times the scales in result 1, for which --output=f8E8M0FNU is given
--output=f4E2M1FN*1@y.npy    the same as float32 into a file

A scalar argument takes a number, --input=3 or --input=2.5.

A .npy file has no bf16 and no fp8: --input=@s.npy of uint8 is viewed as the f8E8M0FNU (f8E4M3FN, …) that the argument
is, one of uint16 as bf16. --output=@y.npy of such a result holds its codes as uint16 or uint8, in the result's
shape. numpy.load("y.npy").view(ml_dtypes.bfloat16) are the numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from mxcomp import profiling
from mxcomp.errors import InputError
from mxcomp.hip import library
from mxcomp.hip.dump import INDEX
from mxcomp.hip.settings import Settings
from mxcomp.profiling import Wanted, reports
from mxcomp.run.devices import DRIVERS
from mxcomp.sim.device import ENGINES
from mxcomp.sim.findings import CHECKS
from mxcomp.sim.schedule import ORDERS
from mxcomp.support import files, tables
from mxcomp.support.tables import Column
from mxcomp.tools import common, inputs, outputs, relay

NAME = "mxcomp-run"
_PROFILES = ("profile", "profile_json", "profile_csv", "roofline")
_SETTINGS = ("engine", "checks", "schedule", "seed", *_PROFILES, "timeline", "dump_operands")
_FILE_COLUMNS = 200
"""The width of a profile that is not printed on a terminal: enough for all counters."""
_BARE = {"--profile": "--profile=all"}
"""Flags without a value, and what they mean: the next word is another argument."""


def main(argv: list[str] | None = None) -> int:
    parser = common.described_parser(NAME, __doc__)
    parser.add_argument("module", nargs="?", help="vmfb; the same as --module")
    parser.add_argument(
        "--device", default="sim", help=f"{', '.join(DRIVERS)} or with a number, sim://1 (default: sim)"
    )
    parser.add_argument("--engine", choices=tuple(ENGINES), help="how the simulator executes (default: fast)")
    parser.add_argument("--checks", metavar="LIST", help=f"of {','.join(CHECKS)}; all (default) or none")
    parser.add_argument("--schedule", choices=ORDERS, help="order of waves between barriers (default: forward)")
    parser.add_argument("--seed", help="of the random schedule")
    parser.add_argument(
        "--profile",
        metavar="[top:N,in-order]",
        help="what each dispatch did, and its modelled µs, on stderr: all, the slowest first; =top:N: the N slowest; "
        "=in-order: as they are launched",
    )
    parser.add_argument("--profile-json", metavar="FILE", help="all of the profile as JSON; - for stdout")
    parser.add_argument("--profile-csv", metavar="FILE", help="the same as a table, a line for each dispatch")
    parser.add_argument("--roofline", metavar="FILE.png", help="a picture of all dispatches' modelled FLOP/s")
    parser.add_argument("--timeline", metavar="DIR", help="a trace of a CU for each dispatch, for ui.perfetto.dev")
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="what mxcomp-compile --report wrote: a profile then names modules, matmuls and source lines; "
        "for --dump-operands, too",
    )
    parser.add_argument(
        "--dump-operands",
        "--dump_operands",
        metavar="DIR",
        help="write the operands of each matmul dispatch as .npy, float32 in logical order",
    )
    parser.add_argument("--print-hip-dylib", action="store_true", help="for iree-run-module's --hip_dylib_path")
    given = sys.argv[1:] if argv is None else argv
    args, flags = parser.parse_known_args([_BARE.get(flag, flag) for flag in given])

    def run() -> int:
        if args.print_hip_dylib:
            print(library.lasting_hip_dylib().parent)
            return 0
        module = [] if args.module is None else [f"--module={args.module}"]
        return _run(args, [*module, *flags])

    return common.exit_code(NAME, run)


def _run(args: argparse.Namespace, flags: list[str]) -> int:
    name, separator, number = args.device.partition("://")
    if name not in DRIVERS:
        raise InputError(f"--device={args.device}: expected {', '.join(DRIVERS)}, or with a number as in sim://1")
    flags = [f"--device={DRIVERS[name]}{separator}{number}", *flags]
    if name != "sim":
        if given := [setting for setting in _SETTINGS if getattr(args, setting)]:
            flag = given[0].replace("_", "-")
            raise InputError(f"--{flag} is about the simulator: expected --device=sim, not {args.device}")
        return _call(flags)
    flags.insert(0, f"--hip_dylib_path={library.hip_dylib_directory()}")
    os.environ |= library.environment(engine=args.engine, checks=args.checks, schedule=args.schedule, seed=args.seed)
    Settings.of(os.environ)
    if args.timeline:
        os.environ |= library.environment(timeline=str(files.folder(args.timeline, "timelines").absolute()))
    index = _prepare_dump(args.dump_operands, args.report) if args.dump_operands else None
    is_profiled = any(getattr(args, name) for name in _PROFILES)
    with _profiled(args, flags) if is_profiled else nullcontext():
        code = _call(flags)
    if index is not None:
        _print_dump(index, args.report, code)
    return code


def _call(flags: list[str]) -> int:
    from iree._runtime import libs

    with inputs.taken(flags) as readable, outputs.shown(readable) as taken_over:
        return relay.call(Path(libs.library_path) / "iree-run-module", taken_over, NAME)


@contextmanager
def _profiled(args: argparse.Namespace, flags: list[str]) -> Iterator[None]:
    """Profiles the dispatches that run inside of it, and prints the profile or writes it to files."""
    wanted = Wanted.of((args.profile or "").removeprefix("all"))
    places = reports.read(args.report).launches if args.report else ()
    for name in ("profile_json", "profile_csv", "roofline"):
        files.check_writable(getattr(args, name), f"--{name.replace('_', '-')}: ")
    if args.roofline:
        from mxcomp.sim.timing import pictures  # half of this program's start

        pictures.check()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "profile.jsonl"
        os.environ |= library.environment(profile=str(path))
        yield
        function = next((flag.partition("=")[2] for flag in flags if flag.startswith("--function=")), None)
        found = profiling.read(path, places, function)
    if places and found.dispatches and not any(d.places for d in found.dispatches):
        print(f"{NAME}: warning: {args.report} names no kernel of this program: is it another's?", file=sys.stderr)
    if args.profile:
        found.print(sys.stderr, wanted, tables.width_of(sys.stderr, _FILE_COLUMNS))
    results: dict[str | Path, bytes] = {}
    if args.profile_json:
        results[args.profile_json] = found.to_json().encode()
    if args.profile_csv:
        results[args.profile_csv] = found.to_csv().encode()
    if args.roofline:
        from mxcomp.sim.timing.pictures import roofline

        times = [(d.kernel, d.modelled) for d in found.dispatches if d.modelled is not None]
        results[args.roofline] = roofline([(kernel, m.flops, m.unique_bytes, m.us) for kernel, m in times])
    files.write(results)


def _prepare_dump(directory: str, report: str | None) -> Path:
    """Makes later launches dump operands, and returns the index of the files. Raises InputError and SimulationError."""
    if report is None:
        raise InputError("--dump-operands needs --report=FILE, as mxcomp-compile --report=FILE writes it")
    reports.read(report)
    index = files.folder(directory, "operands").absolute() / INDEX
    try:
        index.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"operands cannot be written: {error}") from None
    os.environ |= library.environment(dump_operands=str(index.parent), report=str(Path(report).absolute()))
    return index


def _print_dump(index: Path, report: str, code: int) -> None:
    if not index.exists():
        if code == 0:
            raise InputError(
                f"no matmul dispatch of {report} was launched: is it the report of this module? Matmuls with a "
                "batch, a dynamic N or K are not dumped"
            )
        return
    columns = [Column(name, fold=20) for name in ("file", "operand", "type", "shape", "kernel", "location")]
    rows = [
        [line["file"], line["operand"], line["type"], "×".join(map(str, line["shape"])), line["kernel"],
         "\n".join(line["locations"])]
        for line in map(json.loads, index.read_text().splitlines())
    ]  # fmt: skip
    tables.show(sys.stderr, columns, rows)


if __name__ == "__main__":
    sys.exit(main())
