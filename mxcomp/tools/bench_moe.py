"""mxcomp-bench of MoE layers: models both grouped matmuls of each line of a table, next to the table's own times."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from mxcomp.errors import InputError
from mxcomp.measuring import moe, records
from mxcomp.support import tables, workers
from mxcomp.support.lines import Fault
from mxcomp.support.progress import Bar
from mxcomp.support.tables import Column
from mxcomp.tools import common

_GROUP = 12
"""The number of lines that a worker does at a time; the list is written after each group, so that a killed run can be
resumed."""
_SHOWN = 40
"""The number of layers above which they are summed up by model."""
_LEFT_OUT = ("aiter", "configurations", "picture", "result", "rows", "subjects")
"""The arguments that have no meaning for MoE layers."""


def run(name: str, args: argparse.Namespace) -> int:
    """Prints and writes entries; returns the exit code, 1 where no line could be done. Raises InputError."""
    common.check_modelled(args, "--moe", "grouped matmuls", _LEFT_OUT, "--json, --csv and --jobs")
    path: Path = args.moe
    rows, faults = moe.read(path)
    before = records.from_json(args.json, moe.Entry, name)
    known = {entry.layer: entry for entry in before}
    found = {row.line: moe.with_published(known[row.layer], row) for row in rows if row.layer in known}
    left = [row for row in rows if row.line not in found]
    with Bar("layers", len(left)) as bar:
        for group in _modelled(left, args.jobs):
            for row, made in group:
                if isinstance(made, Fault):
                    faults.append(made)
                else:
                    found[row.line] = made
                bar.advance()
            _write(args, found)
    for fault in sorted(faults, key=lambda each: each.line):
        print(f"{name}: {path}:{fault.line}: {fault.message}: left out", file=sys.stderr)
    if not found:
        raise InputError(f"{path}: no layer to time: expected a line with {','.join((*moe.SIZES, *moe.TYPES))}")
    _write(args, found)
    _print([found[line] for line in sorted(found)])
    return 0


def _modelled(rows: Sequence[moe.Row], jobs: int | None) -> Iterable[list[tuple[moe.Row, moe.Entry | Fault]]]:
    if not rows:
        return
    groups = [rows[start : start + _GROUP] for start in range(0, len(rows), _GROUP)]
    with workers.pool(jobs, fresh=True) as executor:
        yield from executor.map(moe.modelled, groups)


def _write(args: argparse.Namespace, found: dict[int, moe.Entry]) -> None:
    records.write([found[line] for line in sorted(found)], moe.Entry, args.json, args.csv)


def _us(us: float | None) -> str:
    return "" if us is None else f"{us:.1f}"


_COLUMNS = (
    Column(
        "layer", fold=20, text=lambda e: f"{e.model} {e.model_dim} × {e.inter_dim}, {e.top_k} of {e.experts}".strip()
    ),
    Column("types", fold=9, text=lambda e: f"{e.a_type} × {e.w_type}"),
    Column("tokens", right=True, text=lambda e: str(e.tokens)),
    Column("BM", right=True, optional=True, text=lambda e: str(e.block_m)),
    Column("gemm1", right=True, text=lambda e: _us(e.ours_us_gemm1)),
    Column("gemm2", right=True, text=lambda e: _us(e.ours_us_gemm2)),
    Column("80 % between", right=True, optional=True, text=lambda e: f"{e.low:.1f} to {e.high:.1f}"),
    Column("bound by", text=lambda e: e.bound),
    Column("table's", right=True, text=lambda e: _us(e.published_us)),
    Column("peer's", right=True, text=lambda e: _us(e.peer_us)),
)


def _print(entries: Sequence[moe.Entry]) -> None:
    if len(entries) <= _SHOWN:
        tables.show(sys.stdout, _COLUMNS, tables.rows(_COLUMNS, entries), "modelled µs on MI355X, without routing")
    for title, column in (("the table's times", "published_us"), ("a peer's kernels in the same model", "peer_us")):
        by_model: dict[str, list[float]] = defaultdict(list)
        for each in entries:
            if (us := getattr(each, column)) is not None:
                by_model[each.model or "all"].append(us / each.ours_us)
        for model, ratios in sorted(by_model.items()):
            said = common.compared(ratios, "the speed")
            tables.say(sys.stdout, f"{model}: {len(ratios)} layers, {said}, compared with {title}")
