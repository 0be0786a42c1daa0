"""mxcomp-bench: modelled times of scaled matmuls with the fastest of our ukernels, beside a peer's.

mxcomp-bench 10000x16384x16384 64x14336x4096            # a table
mxcomp-bench --rows FILE.csv --aiter DIR --json OUT     # m,n,k and perhaps tile_m,tile_n of AITER's kernel

Operands are packed already, elements of the result are bf16 (or f32, by --result). A list of m, n, k, kernel, ours_us,
low, high, bound and, given a checkout of ROCm/aiter, peer_us of the same model goes to OUT; rows that OUT has from
an earlier run are kept. Every figure is modelled (docs/timing.md): none is measured.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from iree.compiler import ir

from mxcomp import __version__, files
from mxcomp.errors import InputError
from mxcomp.formats import ELEMENT_TYPES
from mxcomp.options import FASTEST, Options
from mxcomp.problem import Problem
from mxcomp.selection import times
from mxcomp.selection.ranking import fastest
from mxcomp.sim.timing import rows as table
from mxcomp.sim.timing.aiter import Gemm
from mxcomp.tools import common
from mxcomp.ukernels import Registry

NAME = "mxcomp-bench"
_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)")
_RESULTS = {"bf16": 2, "f32": 4}
_SCALES = ("f8E8M0FNU", "f8E8M0FNU", "f32")


@dataclass(frozen=True)
class Entry:
    """One matmul: sizes, our kernel and its modelled µs; the peer's tile, 0 where none is named, and its µs."""

    m: int
    n: int
    k: int
    tile_m: int
    tile_n: int
    kernel: str
    ours_us: float
    low: float
    high: float
    bound: str
    peer_us: float | None = None

    @property
    def key(self) -> Gemm:
        return Gemm(self.m, self.n, self.k, self.tile_m, self.tile_n)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("shapes", nargs="*", metavar="MxNxK", help="sizes of matmuls")
    parser.add_argument("--rows", type=Path, metavar="FILE.csv", help="more of them; columns m,n,k,tile_m,tile_n")
    parser.add_argument("--types", nargs=2, default=["f4E2M1FN"] * 2, metavar=("LHS", "RHS"), choices=ELEMENT_TYPES)
    parser.add_argument("--result", default="bf16", choices=_RESULTS, help="elements of the result (default: bf16)")
    parser.add_argument("--aiter", type=Path, metavar="DIR", help="a checkout of ROCm/aiter, for the peer's times")
    parser.add_argument("--json", type=Path, metavar="OUT", help="where the list goes")
    parser.add_argument("--version", action="version", version=f"{NAME} {__version__}")
    args = parser.parse_args(argv)
    return common.exit_code(NAME, lambda: _bench(args))


def _bench(args: argparse.Namespace) -> None:
    wanted = [_shape(text) for text in args.shapes]
    rows: list[table.Row] = []
    if args.rows:
        rows, faults, _ = table.read(args.rows)
        for fault in faults:
            print(f"{NAME}: {args.rows}:{fault.line}: {fault.message}: left out", file=sys.stderr)
        wanted += [row.gemm for row in rows]
    if not wanted:
        raise InputError("nothing to model: expected MxNxK or --rows=FILE.csv")
    peers = _read(args.json) if args.json and args.json.exists() else {}
    entries = list(modelled(wanted, args.types, args.result))

    def write() -> None:
        if args.json:
            files.write({args.json: (json.dumps([asdict(each) for each in entries], indent=1) + "\n").encode()})

    entries = [replace(entry, peer_us=peers.get(entry.key)) for entry in entries]
    write()
    if args.aiter:
        places = {entry.key: place for place, entry in enumerate(entries)}
        left = [row for row in rows if row.gemm not in peers]
        for done, (row, found) in enumerate(table.in_parallel(table.estimated, args.aiter, left), 1):
            if isinstance(found, table.Fault):
                print(f"{NAME}: {args.rows}:{found.line}: {found.message}: no peer", file=sys.stderr)
                continue
            place = places[row.gemm]
            entries[place] = replace(entries[place], peer_us=round(found.us, 3))
            if done % _WRITTEN == 0:
                write()
            if sys.stderr.isatty():
                print(f"\rpeer's kernels: {done} of {len(left)}", end="", file=sys.stderr)
        write()
    _print(entries)


def _shape(text: str) -> Gemm:
    found = _SHAPE.fullmatch(text)
    if found is None or not all(map(int, found.groups())):
        raise InputError(f"{text}: expected sizes as MxNxK, for example 64x14336x4096")
    m, n, k = map(int, found.groups())
    return Gemm(m, n, k, 0, 0)


def _read(path: Path) -> dict[Gemm, float]:
    """The peer's µs that an earlier run wrote. Raises InputError for anything else."""
    try:
        found = json.loads(path.read_text())
        if not isinstance(found, list):
            raise TypeError(f"expected a list, found {type(found).__name__}")
        entries = [Entry(**entry) for entry in found]
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: no list of {NAME}: {error}: remove it, or write elsewhere") from None
    return {entry.key: entry.peer_us for entry in entries if entry.peer_us is not None}


def modelled(shapes: Iterable[Gemm], types: Sequence[str], result: str) -> Iterator[Entry]:
    """The fastest ukernel of each shape. Raises InputError where none fits."""
    options, size = Options.make(ukernels=FASTEST), _RESULTS[result]
    with ir.Context(), ir.Location.unknown():
        registry = Registry(options.target.arch)
    for gemm in shapes:
        m, n, k = gemm.m, gemm.n, gemm.k
        problem = Problem(m, n, k, (*types, *_SCALES))
        sizes = {"m": m, "n": n, "k": k}
        found = fastest(problem, registry, options, size)
        if not found:
            raise InputError(f"{m}x{n}x{k}: no ukernel with known times fits: expected K to be a multiple of 32")
        best = found[0]
        low, high = best.interval
        bound = times.bound(best.times, best.ukernel.tile, problem, sizes, size, best.order)
        us = round(best.us, 3)
        tile = (gemm.tile_m, gemm.tile_n)
        yield Entry(m, n, k, *tile, best.ukernel.name, us, round(low, 3), round(high, 3), bound)


def _print(entries: Sequence[Entry]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 140)
    if len(entries) <= _SHOWN:
        shown = Table(title="modelled µs on MI355X", title_justify="left")
        for name in ("M × N × K", "ukernel", "µs", "80 % between", "TFLOP/s", "bound by", "peer µs", "peer / ours"):
            shown.add_column(name)
        for entry in entries:
            flops = 2 * entry.m * entry.n * entry.k / entry.ours_us * 1e-6
            peer = (
                ("", "") if entry.peer_us is None else (f"{entry.peer_us:.1f}", f"{entry.peer_us / entry.ours_us:.2f}")
            )
            shown.add_row(
                f"{entry.m} × {entry.n} × {entry.k}", entry.kernel, f"{entry.ours_us:.1f}",
                f"{entry.low:.1f} to {entry.high:.1f}", f"{flops:.0f}", entry.bound, *peer,
            )  # fmt: skip
        console.print(shown)
    ratios = [entry.peer_us / entry.ours_us for entry in entries if entry.peer_us is not None]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        least = sum(ratio >= 1 for ratio in ratios) / len(ratios)
        console.print(
            f"{len(ratios)} beside the peer's kernels in the same model: {mean:.2f} × their speed (geometric mean), at "
            f"least as fast in {least:.0%}, {min(ratios):.2f} × at worst"
        )


_SHOWN = 40
"""More matmuls than these are summed up."""

_WRITTEN = 25
"""After so many of the peer's times the list is written, so that an interrupted run goes on from there."""
