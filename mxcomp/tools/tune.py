"""mxcomp-tune: finds the fastest ukernel of each problem, and writes it into a table for mxcomp-compile --tuned.

mxcomp-tune model.mlir -o tuned.csv                         # modelled, from a table of replays of all ukernels
mxcomp-tune 64x8192x8192 -o tuned.csv --candidates=3        # the best three compiled, and replayed for the size
mxcomp-tune model.mlir -o tuned.csv --device=hip            # compiled, checked and measured on the GPU
mxcomp-tune model.mlir -o tuned.csv --candidates=3 --dask tcp://HOST:8786      # by the machines of a Dask cluster

Problems that the table has a line for are skipped: what was interrupted goes on where it was. Measured lines take the
place of modelled ones, never the other way round. Exit code 1 where something could not be tuned.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from mxcomp.errors import InputError
from mxcomp.formats import ELEMENT_TYPES
from mxcomp.support import files
from mxcomp.support.progress import Bar
from mxcomp.target import DEFAULT
from mxcomp.tools import common, shapes

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from mxcomp.selection.tuned_lines import Key, Line
    from mxcomp.tuning import Settings

NAME = "mxcomp-tune"
_CANDIDATES = {"sim": 0, "hip": 4}
_WRITTEN = 25
"""The number of lines without timing after which the table is written; it is also written after each timed line."""


def main(argv: list[str] | None = None) -> int:
    parser = common.described_parser(NAME, __doc__)
    parser.add_argument("subjects", nargs="+", metavar="model.mlir|MxNxK", help="models, and sizes of matmuls")
    parser.add_argument("-o", dest="output", default="-", help="the table, which may be there; - for stdout (default)")
    parser.add_argument("--types", nargs=2, default=["f4E2M1FN"] * 2, metavar=("LHS", "RHS"), choices=ELEMENT_TYPES)
    parser.add_argument("--result", default="bf16", choices=shapes.RESULTS, help="stored elements (default: bf16)")
    parser.add_argument("--target", default=DEFAULT, help="the GPU (default: %(default)s)")
    parser.add_argument("--ukernel-dir", action="append", default=[], metavar="DIR", help="more ukernels; repeatable")
    parser.add_argument("--device", default="sim", choices=_CANDIDATES, help="sim: modelled (default); hip: measured")
    parser.add_argument("--candidates", type=_count, metavar="N", help="how many of the best are compiled and timed")
    parser.add_argument("--jobs", type=_count, metavar="N", help="processes for them (default: sim: all cores, hip: 1)")
    parser.add_argument("--dask", metavar="ADDRESS", help="of the scheduler of a Dask cluster, whose machines do that")
    parser.add_argument("--force", action="store_true", help="tune what the table has already, too")
    args = parser.parse_args(argv)
    return common.exit_code(NAME, lambda: _tune(args))


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError
    return count


def _tune(args: argparse.Namespace) -> int:
    from mxcomp.selection.tuned_lines import Line
    from mxcomp.tuning import Settings, tune

    candidates = _CANDIDATES[args.device] if args.candidates is None else args.candidates
    if args.device == "hip" and not candidates:
        raise InputError("--candidates=0 and --device=hip: nothing would be measured: expected 1 or more")
    if args.dask and (args.jobs is not None or not candidates):
        other = "--candidates=0: nothing would be compiled" if not candidates else f"--jobs={args.jobs}"
        raise InputError(f"--dask={args.dask} and {other}: expected --candidates=1 or more, without --jobs")
    settings = Settings(args.device, candidates, tuple(args.ukernel_dir))
    keys, left = _problems(args)
    table = _Table(args.output, args.force)
    wanted = [key for key in keys if not table.has(key, settings)]
    for reason in left:
        print(f"{NAME}: not tuned: {reason}", file=sys.stderr)
    pool = _pool(args) if candidates and wanted else nullcontext()
    with table, Bar("problems", len(wanted)) as bar, pool as executor:
        for found in tune(wanted, settings, executor):
            if isinstance(found, Line):
                table.add(found, at_once=bool(candidates))
            else:
                left.append(found.reason)
                print(f"{NAME}: not tuned: {_name(found.key)}: {found.reason}", file=sys.stderr)
            bar.advance()
    print(f"{NAME}: {table.added} tuned, {len(keys) - len(wanted)} in the table before", file=sys.stderr)
    return int(bool(left))


def _pool(args: argparse.Namespace) -> AbstractContextManager[Executor]:
    """Returns the executor that compiles and times candidates: processes, or other machines."""
    from mxcomp.support import workers
    from mxcomp.tuning import machines

    is_measured = args.device == "hip"
    if args.dask:
        return machines.executor(args.dask, one_at_a_time=is_measured)
    return workers.pool(args.jobs or (1 if is_measured else None), fresh=True)


def _problems(args: argparse.Namespace) -> tuple[list[Key], list[str]]:
    """Returns the problems to tune, and those that cannot be tuned."""
    from mxcomp.layout.problem import SCALES_AND_RESULT, Problem
    from mxcomp.options import Options
    from mxcomp.selection.tuned_lines import Key
    from mxcomp.tuning import problems_of

    options = Options.make(args.target, ukernel_dirs=tuple(args.ukernel_dir))
    keys: dict[Key, None] = {}
    left: list[str] = []
    for subject in args.subjects:
        if Path(subject).suffix or not subject[:1].isdigit():
            found = problems_of(Path(subject), options)
            keys |= dict.fromkeys(found.keys)
            left += found.left
            if not found.keys and not found.left:
                raise InputError(f"{subject}: no scaled matmul to tune")
        else:
            problem = Problem(*shapes.sizes(subject), (*args.types, *SCALES_AND_RESULT))
            keys[Key(options.target.name, problem, args.result)] = None
    return list(keys), left


class _Table:
    """The lines of a table's file, old and new. Leaving it writes the file."""

    def __init__(self, path: str, force: bool) -> None:
        """Reads the file. Raises InputError for a file with lines that would be lost."""
        from mxcomp.selection import tuned_lines

        files.check_writable(path)
        self._path, self._force, self._unwritten = path, force, 0
        self.added = 0
        self._lines: dict[Key, Line] = {}
        if path != "-" and Path(path).exists():
            lines, faults = tuned_lines.read(Path(path))
            if faults and not force:
                raise InputError(f"{faults[0].text}: remove the line, or --force, which drops such lines")
            self._lines = {line.key: line for line in lines}

    def has(self, key: Key, settings: Settings) -> bool:
        """Returns whether there is a line of an equally good source."""
        from mxcomp.selection.tuned_lines import MEASURED

        line = None if self._force else self._lines.get(key)
        return line is not None and (settings.device == "sim" or line.source == MEASURED)

    def add(self, line: Line, at_once: bool) -> None:
        self._lines[line.key] = line
        self.added += 1
        self._unwritten += 1
        if self._path != "-" and (at_once or self._unwritten >= _WRITTEN):
            self._write()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        """Writes the file, after an interrupt too."""
        if self._unwritten:
            self._write()

    def _write(self) -> None:
        from mxcomp.selection import tuned_lines

        files.write({self._path: tuned_lines.text(self._lines.values()).encode()})
        self._unwritten = 0


def _name(key: Key) -> str:
    return " × ".join(str(size) for size in key.problem.sizes.values())


if __name__ == "__main__":
    sys.exit(main())
