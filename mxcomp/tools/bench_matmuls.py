"""mxcomp-bench of matmul dispatches: times the fastest ukernel for each size, next to AITER's kernel."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from iree.compiler import ir

from mxcomp.errors import InputError
from mxcomp.formats import MX_BLOCK, mx_format
from mxcomp.layout.problem import SCALES_AND_RESULT, Problem
from mxcomp.measuring import pictures, records
from mxcomp.measuring.subject import RESULT_BYTES
from mxcomp.options import FASTEST, Options
from mxcomp.registry import Registry
from mxcomp.selection import split_k, times
from mxcomp.selection.ranking import fastest
from mxcomp.selection.tuned_lines import MEASURED, MODELLED, Key
from mxcomp.sim.timing import rows as table
from mxcomp.sim.timing.aiter import Gemm
from mxcomp.sim.timing.parameters import parameters_of
from mxcomp.sim.timing.pictures import roofline
from mxcomp.support import files, tables, workers
from mxcomp.support.lines import Fault
from mxcomp.support.progress import tracked
from mxcomp.support.tables import Column
from mxcomp.target import DEFAULT
from mxcomp.tools import common, shapes
from mxcomp.tuning import Failure, Settings, tune

_SHOWN = 40
"""The number of matmuls above which they are summed up."""
_WRITTEN = 25
"""The number of the peer's times after which the list is written, so that a killed run can be resumed."""
_ROOFLINE = 12
"""The number of matmuls up to which a picture names each."""


@dataclass(frozen=True)
class Entry:
    """One matmul: sizes, our kernel and its µs; the peer's tile, 0 where none is named, and its modelled µs.

    Measured times have neither an interval nor a bound. Where K is in `parts`, what adds them up is counted.
    """

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
    source: str = MODELLED
    parts: int = 1

    @property
    def key(self) -> Gemm:
        return Gemm(self.m, self.n, self.k, self.tile_m, self.tile_n)

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.n * self.k


def run(name: str, args: argparse.Namespace) -> int:
    """Prints and writes entries; returns the exit code. Raises InputError."""
    wanted = [Gemm(*shapes.sizes(text), 0, 0) for text in args.subjects]
    rows: list[table.Row] = []
    if args.rows:
        rows, faults, _ = table.read(args.rows)
        for fault in faults:
            print(f"{name}: {args.rows}:{fault.line}: {fault.message}: left out", file=sys.stderr)
        wanted += [row.gemm for row in rows]
    if not wanted:
        raise InputError("nothing to time: expected MxNxK or --rows=FILE.csv")
    result = args.result or "bf16"
    before = records.from_json(args.json, Entry, name)
    peers = {entry.key: entry.peer_us for entry in before if entry.peer_us is not None}
    entries = list(modelled(wanted, args.types, result))
    if args.device == "hip":
        entries = _measured(name, entries, before, args, result)
    entries = [replace(entry, peer_us=peers.get(entry.key)) for entry in entries]
    _write(args, entries)
    if args.aiter:
        _add_peers(name, args, [row for row in rows if row.gemm not in peers], entries)
    _print(entries)
    _draw(args, entries)
    return 0


def modelled(wanted: Iterable[Gemm], types: Sequence[str], result: str) -> Iterator[Entry]:
    """Returns the fastest ukernel of each size, perhaps with split K. Raises InputError where none fits."""
    options, size = Options.make(ukernels=FASTEST), RESULT_BYTES[result]
    with ir.Context(), ir.Location.unknown():
        registry = Registry(options.target)
    for gemm in wanted:
        m, n, k = gemm.m, gemm.n, gemm.k
        problem = Problem(m, n, k, (*types, *SCALES_AND_RESULT))
        found = fastest(problem, registry, size)
        if not found:
            raise InputError(f"{m}x{n}x{k}: no ukernel with known times fits: expected K to be a multiple of 32")
        best = found[0]
        low, high = best.interval
        bound = times.bound(best.times, best.ukernel.tile, times.Matmul(problem, size), best.order)
        entry = Entry(
            m, n, k, gemm.tile_m, gemm.tile_n, best.ukernel.name,
            round(best.us, 3), round(low, 3), round(high, 3), bound,
        )  # fmt: skip
        split = split_k.faster(problem, best, registry, options, size)
        yield entry if split is None else _in_parts(entry, split)


def _in_parts(entry: Entry, split: split_k.Split) -> Entry:
    """Returns the fastest ukernel with split K."""
    low, high = parameters_of(split.candidate.ukernel.target).interval(split.us)
    return replace(
        entry, kernel=split.candidate.ukernel.name, parts=split.parts,
        ours_us=round(split.us, 3), low=round(low, 3), high=round(high, 3),
    )  # fmt: skip


def _measured(
    name: str, entries: Sequence[Entry], before: Sequence[Entry], args: argparse.Namespace, result: str
) -> list[Entry]:
    """Times the same kernels on the GPU; kernels with wrong results are named, and left out."""
    wanted = {(entry.key, entry.kernel): entry for entry in entries}
    found = {(each.key, each.kernel): each for each in before if each.source == MEASURED}
    left = [key for key in wanted if key not in found]
    types = (*args.types, *SCALES_AND_RESULT)
    keys = [Key(DEFAULT, Problem(gemm.m, gemm.n, gemm.k, types), result) for gemm, _ in left]
    with workers.pool(args.jobs or 1, fresh=True) if left else nullcontext() as executor:
        for key, outcome in zip(left, tune(keys, Settings("hip", 1), executor), strict=True):
            if isinstance(outcome, Failure):
                gemm, _ = key
                print(f"{name}: {gemm.m}x{gemm.n}x{gemm.k}: left out: {outcome.reason}", file=sys.stderr)
            else:
                us = round(outcome.us, 3)
                found[key] = replace(wanted[key], ours_us=us, low=us, high=us, bound="", source=MEASURED)
                _write(args, [found[each] for each in wanted if each in found])
    return [found[each] for each in wanted if each in found]


def _add_peers(name: str, args: argparse.Namespace, left: Sequence[table.Row], entries: list[Entry]) -> None:
    indices = {entry.key: index for index, entry in enumerate(entries)}
    try:
        timed = table.in_parallel(table.estimated, args.aiter, left, args.jobs)
        for done, (row, found) in enumerate(tracked(timed, "peer's kernels", total=len(left)), 1):
            if isinstance(found, Fault):
                print(f"{name}: {args.rows}:{found.line}: {found.message}: no peer", file=sys.stderr)
            elif (index := indices.get(row.gemm)) is not None:
                entries[index] = replace(entries[index], peer_us=round(found.us, 3))
            if done % _WRITTEN == 0:
                _write(args, entries)
    finally:  # after an interrupt too
        _write(args, entries)


def _write(args: argparse.Namespace, entries: Sequence[Entry]) -> None:
    records.write(entries, Entry, args.json, args.csv)


def _draw(args: argparse.Namespace, entries: Sequence[Entry]) -> None:
    """Draws speed over size, and the roofline of the largest if times are modelled."""
    if not args.picture or not entries:
        return
    ours = [(each.flops, each.ours_us) for each in entries]
    peers = [(each.flops, each.peer_us) for each in entries if each.peer_us is not None]
    speed = pictures.speed({"ours": ours, "peer, modelled": peers}, entries[0].source)
    results: dict[str | Path, bytes] = {args.picture / "speed.png": speed}
    if entries[0].source == MODELLED:
        size = RESULT_BYTES[args.result or "bf16"]
        results[args.picture / "roofline.png"] = roofline(
            [
                (f"{each.m}×{each.n}×{each.k}", each.flops, _bytes(each, args.types, size), each.ours_us)
                for each in sorted(entries, key=lambda each: -each.flops)[:_ROOFLINE]
            ]
        )
    files.write(results)


def _bytes(entry: Entry, types: Sequence[str], size: int) -> float:
    """Returns the bytes of operands with their scales, and of the result, each once."""
    lhs, rhs = (mx_format(kind).block_bytes + 1 for kind in types)
    return (entry.m * lhs + entry.n * rhs) * entry.k / MX_BLOCK + entry.m * entry.n * size


_COLUMNS = (
    Column("M×N×K", text=lambda e: f"{e.m}×{e.n}×{e.k}"),
    Column("ukernel", fold=24, text=lambda e: e.kernel if e.parts == 1 else f"{e.kernel}, K in {e.parts}"),
    Column("µs", right=True, text=lambda e: f"{e.ours_us:.1f}"),
    Column(
        "80 % between", right=True, optional=True,
        text=lambda e: f"{e.low:.1f} to {e.high:.1f}" if e.source == MODELLED else "",
    ),
    Column("TFLOP/s", right=True, text=lambda e: f"{e.flops / e.ours_us * 1e-6:.0f}"),
    Column("bound by", text=lambda e: e.bound),
    Column("peer µs", right=True, text=lambda e: "" if e.peer_us is None else f"{e.peer_us:.1f}"),
    Column("peer / ours", right=True, text=lambda e: "" if e.peer_us is None else f"{e.peer_us / e.ours_us:.2f}"),
)  # fmt: skip


def _print(entries: Sequence[Entry]) -> None:
    if len(entries) <= _SHOWN:
        source = next((entry.source for entry in entries), MODELLED)
        title = f"{source} µs on MI355X" if source == MODELLED else "measured µs"
        tables.show(sys.stdout, _COLUMNS, tables.rows(_COLUMNS, entries), title)
    ratios = [entry.peer_us / entry.ours_us for entry in entries if entry.peer_us is not None]
    if ratios:
        said = common.compared(ratios, "their speed")
        tables.say(sys.stdout, f"{len(ratios)} against the peer's kernels in the same model: {said}")
