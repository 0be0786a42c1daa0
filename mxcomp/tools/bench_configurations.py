"""mxcomp-bench --configurations: times every dispatch of programs that are compiled in several ways."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import as_completed
from contextlib import nullcontext
from pathlib import Path

from mxcomp.errors import InputError
from mxcomp.layout.problem import SCALES_AND_RESULT, Problem
from mxcomp.measuring import pictures, records
from mxcomp.measuring.comparison import AITER, Failed, Task, timed
from mxcomp.measuring.configurations import CONFIGURATIONS, PARTS
from mxcomp.measuring.records import END_TO_END, Record
from mxcomp.measuring.subject import Subject
from mxcomp.mlir.session import read_source
from mxcomp.selection.tuned_lines import MEASURED, MODELLED
from mxcomp.sim.timing.pictures import roofline
from mxcomp.support import files, tables, workers
from mxcomp.support.progress import tracked
from mxcomp.support.tables import Column
from mxcomp.tools import shapes

_SOURCES = {"sim": MODELLED, "hip": MEASURED}
_FP4 = ["f4E2M1FN"] * 2
_NAME_COLUMNS = 16
"""The width to which a kernel's name may be folded."""
_MS = 1000.0
"""The number of µs from which on tables show ms."""


def run(name: str, args: argparse.Namespace) -> int:
    """Prints and writes records; returns 1 where a configuration could not be timed. Raises InputError."""
    if args.rows:
        raise InputError("--configurations and --rows: expected sizes or models: one takes minutes")
    if not args.subjects:
        raise InputError("nothing to time: expected MxNxK or model.mlir")
    tasks = [task for subject in args.subjects for task in _tasks(subject, args)]
    order = [_key(task, args) for task in tasks]
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in records.from_json(args.json, Record, name):
        found.setdefault((record.subject, record.configuration, record.source), []).append(record)
    left = [task for task in tasks if _key(task, args) not in found]
    failed = False
    jobs = args.jobs or (1 if args.device == "hip" else None)
    with workers.pool(jobs, fresh=True) if left else nullcontext() as executor:
        futures = [] if executor is None else [executor.submit(timed, task) for task in left]
        for future in tracked(as_completed(futures), "configurations", total=len(futures)):
            outcome = future.result()
            if isinstance(outcome, Failed):
                task, failed = outcome.task, True
                print(f"{name}: {task.name}, {task.configuration}: not timed: {outcome.reason}", file=sys.stderr)
            else:
                found[outcome[0].subject, outcome[0].configuration, outcome[0].source] = outcome
                records.write([each for listed in found.values() for each in listed], Record, args.json, args.csv)
    for title in dict.fromkeys(task.name for task in tasks):
        shown = [record for key in order if key[0] == title for record in found.get(key, ())]
        if shown:
            _print(title, shown)
            _draw(args, title, shown)
    return int(failed)


def _key(task: Task, args: argparse.Namespace) -> tuple[str, str, str]:
    return task.name, task.configuration, MODELLED if task.configuration == AITER else _SOURCES[args.device]


def _tasks(subject: str, args: argparse.Namespace) -> list[Task]:
    """Returns a task for each configuration, and the peer's after ours where it has a kernel."""
    matmul, name = None, subject
    if Path(subject).suffix or not subject[:1].isdigit():
        if args.result or args.types != _FP4:
            raise InputError(f"{subject}: --types and --result are for sizes: a model has its own")
        source, _ = read_source(Path(subject))
    else:
        result = args.result or "f32"
        matmul = Subject(Problem(*shapes.sizes(subject), (*args.types, *SCALES_AND_RESULT)), result)
        if matmul.sizes[2] % 32:
            raise InputError(f"{subject}: expected K to be a multiple of 32")
        source, name = matmul.source().encode(), f"{subject} {' × '.join(args.types)} → {result}"
    tasks = [Task(name, source, each, args.device, matmul) for each in CONFIGURATIONS]
    if args.aiter and matmul is not None and args.types == _FP4:
        tasks.append(Task(name, source, AITER, args.device, matmul, args.aiter))
    return tasks


def _print(title: str, shown: Sequence[Record]) -> None:
    """Prints parts in rows, configurations in columns."""
    names = list(dict.fromkeys(each.configuration for each in shown))
    present = dict.fromkeys(each.part for each in shown)
    parts = [*(part for part in PARTS if part in present), *(p for p in present if p not in (*PARTS, END_TO_END))]
    sources = {each.configuration: each.source for each in shown}
    only = set(sources.values())
    heads = [name if len(only) == 1 else f"{name}, {sources[name]}" for name in names]
    columns = [Column("dispatch", fold=_NAME_COLUMNS), *(Column(head, right=True) for head in heads)]
    by_place: dict[tuple[str, str], list[Record]] = {}
    for each in shown:
        by_place.setdefault((each.part, each.configuration), []).append(each)
    common = tables.prefix([part for part in parts if part not in PARTS], "_")
    rows = [
        (part.removeprefix(common), *(_text(by_place.get((part, name), ())) for name in names))
        for part in [*parts, END_TO_END]
    ]
    below = f"kernels' names begin with {common}" if common else ""
    tables.show(sys.stdout, columns, rows, f"{title}, {' and '.join(sorted(only))}", below)


def _text(found: Sequence[Record]) -> str:
    """Returns µs of a part, as text, of all dispatches of the same kernel."""
    us = sum(each.us for each in found)
    return "" if not found else f"{us / _MS:.2f} ms" if us >= _MS else f"{us:.1f} µs"


def _draw(args: argparse.Namespace, title: str, shown: Sequence[Record]) -> None:
    if not args.picture:
        return
    stem = Path(title.split(" ")[0]).stem
    points = [
        (f"{each.configuration}: {each.part}", each.flops, each.unique_bytes, each.us)
        for each in shown
        if each.unique_bytes and each.part != END_TO_END
    ]
    results: dict[str | Path, bytes] = {args.picture / f"{stem}-bars.png": pictures.bars(shown)}
    if points:
        results[args.picture / f"{stem}-roofline.png"] = roofline(points)
    files.write(results)
