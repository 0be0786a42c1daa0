"""A report for people: one line of what became of the matmuls, and a table that fits the terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from os import path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mxcomp.layout import layout_from
from mxcomp.matching.decision import PLAIN

if TYPE_CHECKING:
    from mxcomp.report.report import Report, ScaledMatmul

_FILE_COLUMNS = 140
"""Width where the output is no terminal."""

_TABLE_COLUMNS = 120
"""A terminal narrower than this gets a few lines for each matmul in place of a row."""

_DIRECTORIES = re.compile(r"/(?:[^\s:/]+/)+(?=[^\s:/]+:\d+:\d+)")
"""Those of a file in a text that names a place in it."""

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
"""A part of a module's name that is a number."""

_NAMED = 3
"""Ukernels that a summary names."""


def summary(matmuls: Sequence[ScaledMatmul]) -> str:
    """What became of the matmuls, in one line:

    3 scaled matmuls: 2 by ukernels (mx_f4_f4_f32_m64_n128_k512), 1 left to IREE; 7 dispatches
    """
    if not matmuls:
        return "no scaled matmul in the module"
    ukernels = [matmul.ukernel for matmul in matmuls if matmul.ukernel]
    plain = sum(matmul.operands == PLAIN for matmul in matmuls)
    parts = (
        (len(ukernels), f"by ukernels ({_names(ukernels)})"),
        (len(matmuls) - len(ukernels) - plain, "in a layout of ours by IREE's code generation"),
        (plain, "left to IREE"),
    )
    text = ", ".join(f"{count} {how}" for count, how in parts if count)
    dispatches = sum(_running(matmul) for matmul in matmuls)
    behind = f"; {_counted(dispatches, 'dispatch', 'dispatches')}" if dispatches else ""
    return f"{_counted(len(matmuls), 'scaled matmul', 'scaled matmuls')}: {text}{behind}"


def _running(matmul: ScaledMatmul) -> int:
    """Dispatches of a call: of several versions one runs."""
    return len(matmul.dispatches) - max(0, len(matmul.versions) - 1)


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _names(ukernels: Sequence[str]) -> str:
    names = list(dict.fromkeys(ukernels))
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def show(report: Report, stream: TextIO, width: int | None = None) -> None:
    """Prints the report to `stream`, as wide as its terminal is, or as `width` says."""
    console = Console(file=stream, width=width or (None if stream.isatty() else _FILE_COLUMNS))
    title = f"scaled matmuls for {report.target}"
    if console.width >= _TABLE_COLUMNS:
        console.print(_table(report.matmuls, title))
    else:
        console.print(title, style="italic", highlight=False)
        for matmul in report.matmuls:
            console.print(_entry(matmul))
    for line in (*filter(None, (report.retreat,)), *report.left_out):
        console.print(f"warning: {line}", markup=False, highlight=False)
    for line in floats_lines(report.floats):
        console.print(f"in floats: {line}", markup=False, highlight=False)


def floats_lines(floats: Mapping[str, str]) -> list[str]:
    """Why modules are in floats; one line for those that differ in numbers: `layers.*.up (2): the filter left it`."""
    groups = Counter((_NUMBER.sub("*", name), reason) for name, reason in floats.items())
    return [
        f"{name or 'the model'}{f' ({count})' if count > 1 else ''}: {reason}"
        for (name, reason), count in groups.items()
    ]


def _table(matmuls: Sequence[ScaledMatmul], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("location", "M × N × K", "types", "tile", "ukernel", "dispatches", "why"):
        table.add_column(column, overflow="fold", no_wrap=column == "ukernel")
    for matmul in matmuls:
        table.add_row(
            Text("\n".join(_names_of(matmul))),
            _sizes(matmul),
            " × ".join(matmul.types[:2]),
            _tile(matmul),
            matmul.ukernel or "-",
            str(_running(matmul)) if matmul.dispatches else "-",
            Text("; ".join(_remarks(matmul)) or "-"),
        )
    return table


def _entry(matmul: ScaledMatmul) -> Text:
    """Lines of one matmul: where it is, what it is, how it is computed, and why not otherwise."""
    tile = f"tile {_tile(matmul)}" if matmul.layout is not None else ""
    dispatches = _counted(_running(matmul), "dispatch", "dispatches") if matmul.dispatches else ""
    how = (matmul.ukernel or "no ukernel", tile, dispatches)
    lines = (
        "  ".join(filter(None, (_sizes(matmul), " × ".join(matmul.types[:2])))),
        ", ".join(filter(None, how)),
        *_remarks(matmul),
    )
    return Text("\n  ".join((" ".join(_names_of(matmul)), *filter(None, lines))))


def _names_of(matmul: ScaledMatmul) -> list[str]:
    """What the source calls it, if it does, and where it is."""
    return [*filter(None, (matmul.name, place(matmul.location)))]


def place(location: str) -> str:
    """A location without the directories of its file; what is no file stays as it is."""
    name, separator, position = location.partition(":")
    return f"{path.basename(name)}{separator}{position.removesuffix(':0')}" if position[:1].isdigit() else location


def _remarks(matmul: ScaledMatmul) -> list[str]:
    remarks = (matmul.note, matmul.reason, matmul.warning, *matmul.unfused)
    return [_DIRECTORIES.sub("", remark) for remark in remarks if remark]


def _sizes(matmul: ScaledMatmul) -> str:
    sizes = " × ".join("?" if size is None else str(size) for size in (matmul.m, matmul.n, matmul.k))
    return sizes if matmul.n else ""


def _tile(matmul: ScaledMatmul) -> str:
    """M × N × K of a workgroup's tile."""
    if matmul.layout is None:
        return "-"
    m, n, k = layout_from(matmul.layout).workgroup_tile
    return "×".join(map(str, (n, m, k) if matmul.transposed else (m, n, k)))
