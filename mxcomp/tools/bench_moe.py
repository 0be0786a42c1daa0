"""mxcomp-bench of MoE layers: both grouped matmuls of each line of a table, modelled, beside what the table says."""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from mxcomp import workers
from mxcomp.errors import InputError
from mxcomp.measuring import moe, records

_GROUP = 12
"""Lines that a worker does at a time; after each the list is written: what is killed goes on from there."""
_SHOWN = 40
"""More layers than these are summed up by model."""
_LEFT_OUT = ("aiter", "configurations", "picture", "result", "rows", "subjects")
"""Of the other arguments, those that MoE layers have no use for."""


def run(name: str, args: argparse.Namespace) -> int:
    """Prints and writes entries; the exit code, 1 where no line could be done. Raises InputError."""
    _check(args)
    path: Path = args.moe
    rows, faults = moe.read(path)
    before = records.from_json(args.json, moe.Entry, name) if args.json and args.json.exists() else []
    known = {entry.layer: entry for entry in before}
    found = {row.line: moe.beside(known[row.layer], row) for row in rows if row.layer in known}
    left = [row for row in rows if row.line not in found]
    for group in _modelled(left, args.jobs):
        for row, made in group:
            if isinstance(made, moe.Fault):
                faults.append(made)
            else:
                found[row.line] = made
        _write(args, found)
        _progress(len(found) + len(faults), len(rows))
    for fault in sorted(faults, key=lambda each: each.line):
        print(f"{name}: {path}:{fault.line}: {fault.message}: left out", file=sys.stderr)
    if not found:
        raise InputError(f"{path}: no layer to time: expected a line with {','.join((*moe.SIZES, *moe.TYPES))}")
    _write(args, found)
    _print([found[line] for line in sorted(found)])
    return 0


def _check(args: argparse.Namespace) -> None:
    """Raises InputError for arguments that do not go with --moe."""
    if args.device != "sim":
        raise InputError("--moe with --device=hip: grouped matmuls are modelled only, expected --device=sim")
    if given := [name for name in _LEFT_OUT if getattr(args, name)]:
        shown = ", ".join(name if name == "subjects" else f"--{name}" for name in given)
        raise InputError(f"--moe with {shown}: expected --json, --csv and --jobs only")


def _modelled(rows: Sequence[moe.Row], jobs: int | None) -> Iterable[list[tuple[moe.Row, moe.Entry | moe.Fault]]]:
    if not rows:
        return
    groups = [rows[start : start + _GROUP] for start in range(0, len(rows), _GROUP)]
    with workers.pool(jobs, fresh=True) as executor:
        yield from executor.map(moe.modelled, groups)


def _write(args: argparse.Namespace, found: dict[int, moe.Entry]) -> None:
    records.write([found[line] for line in sorted(found)], moe.Entry, args.json, args.csv)


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        print(f"\rlayers: {done} of {of}", end="\n" * (done >= of), file=sys.stderr)


def _print(entries: Sequence[moe.Entry]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 140)
    if len(entries) <= _SHOWN:
        shown = Table(title="modelled µs on MI355X, without routing", title_justify="left")
        for name in (
            "layer",
            "types",
            "tokens",
            "BM",
            "gemm1",
            "gemm2",
            "80 % between",
            "bound by",
            "table's",
            "peer's",
        ):
            shown.add_column(name)
        for each in entries:
            others = ("" if us is None else f"{us:.1f}" for us in (each.published_us, each.peer_us))
            shown.add_row(
                f"{each.model} {each.model_dim} × {each.inter_dim}, {each.top_k} of {each.experts}",
                f"{each.a_type} × {each.w_type}", str(each.tokens), str(each.block_m),
                f"{each.ours_us_gemm1:.1f}", f"{each.ours_us_gemm2:.1f}", f"{each.low:.1f} to {each.high:.1f}",
                each.bound, *others,
            )  # fmt: skip
        console.print(shown)
    for title, column in (("the table's times", "published_us"), ("a peer's kernels in the same model", "peer_us")):
        by_model: dict[str, list[float]] = defaultdict(list)
        for each in entries:
            if (us := getattr(each, column)) is not None:
                by_model[each.model or "all"].append(us / each.ours_us)
        for model, ratios in sorted(by_model.items()):
            console.print(f"{model}: {_summary(ratios)}, beside {title}")


def _summary(ratios: Sequence[float]) -> str:
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    least = sum(ratio >= 1 for ratio in ratios) / len(ratios)
    return (
        f"{len(ratios)} layers, {mean:.2f} × the speed (geometric mean), at least as fast in {least:.0%}, "
        f"{min(ratios):.2f} × at worst"
    )
