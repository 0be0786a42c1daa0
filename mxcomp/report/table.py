"""Prints a report for people: a one-line summary of the matmuls, and a table that fits the terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from os import path
from typing import TextIO

from mxcomp.layout import layout_from
from mxcomp.matching.decision import PLAIN
from mxcomp.profiling.reports import Attention, ScaledMatmul
from mxcomp.support import tables
from mxcomp.support.tables import Column

_TABLE_COLUMNS = 120
"""The width below which a terminal gets a few lines for each matmul in place of a row."""

_DIRECTORIES = re.compile(r"/(?:[^\s:/]+/)+(?=[^\s:/]+:\d+:\d+)")
"""Matches the directories of a file in a location."""

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
"""Matches a part of a module's name that is a number."""

_NAMED = 3
"""The number of ukernels that a summary names."""


def summary(matmuls: Sequence[ScaledMatmul], attentions: Sequence[Attention] = ()) -> str:
    """Returns one line that says how the matmuls, and attention if there is any, were compiled:

    3 scaled matmuls: 2 by ukernels (mx_f4_f4_f32_m64_n128_k512), 1 left to IREE; 7 dispatches; 1 attention: by ukernels
    """
    return "; ".join(filter(None, (_of_matmuls(matmuls), _of_attentions(attentions))))


def _of_attentions(attentions: Sequence[Attention]) -> str:
    if not attentions:
        return ""
    ours = sum(each.ukernel is not None for each in attentions)
    parts = ((ours, "by ukernels"), (len(attentions) - ours, "left to IREE"))
    several = len(attentions) > 1
    text = ", ".join(f"{count} {how}" if several else how for count, how in parts if count)
    return f"{_counted(len(attentions), 'attention', 'attentions')}: {text}"


def _of_matmuls(matmuls: Sequence[ScaledMatmul]) -> str:
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
    """Returns the dispatches of a call: of several versions one runs."""
    return max(0, len(matmul.dispatches) - max(0, len(matmul.versions) - 1))


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _names(ukernels: Sequence[str]) -> str:
    names = list(dict.fromkeys(ukernels))
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def show(matmuls: Sequence[ScaledMatmul], title: str, stream: TextIO, width: int) -> None:
    """Prints matmuls to `stream`, as a table where it is wide enough. Repeated layers are printed once."""
    common, groups = tables.prefix([m.name for m in matmuls if m.name]), _groups(matmuls)
    if width >= _TABLE_COLUMNS:
        rows = [(name.removeprefix(common), *_cells(matmul)) for name, matmul in groups]
        tables.show(stream, _COLUMNS, rows, title, f"modules are those of {common[:-1]}" if common else "", width)
        return
    tables.say(stream, title, width)
    for name, matmul in groups:
        tables.say(stream, name.replace("\n", " "), width)
        for line in _lines(matmul):
            tables.say(stream, line, width, "  ")


def attention_lines(attentions: Sequence[Attention]) -> list[str]:
    """Returns how attention was compiled, with one line for layers that differ only in their numbers."""
    groups = Counter(
        (_NUMBER.sub("*", each.name) if each.name else short_location(each.location), _attention_sizes(each),
         "; ".join(filter(None, (each.ukernel, each.note))) or f"left to IREE: {each.reason}")
        for each in attentions
    )  # fmt: skip
    return [
        f"attention {name}{f' ({count})' if count > 1 else ''}: {sizes}: {became}"
        for (name, sizes, became), count in groups.items()
    ]


def _attention_sizes(attention: Attention) -> str:
    """Returns the sizes of attention: 16 heads, queries 1, keys ?, of 128."""
    heads, queries, keys, size = (
        "?" if each is None else str(each)
        for each in (attention.heads, attention.queries, attention.keys, attention.size)
    )
    values = "" if attention.value_size == attention.size else f", values of {attention.value_size or '?'}"
    return f"{heads} heads, queries {queries}, keys {keys}, of {size}{values}"


def floats_lines(floats: Mapping[str, str]) -> list[str]:
    """Returns why modules stay in floats, with one line for those that differ only in numbers: `layers.*.up (2): the
    filter left it`."""
    groups = Counter((_NUMBER.sub("*", name), reason) for name, reason in floats.items())
    return [
        f"{name or 'the model'}{f' ({count})' if count > 1 else ''}: {reason}"
        for (name, reason), count in groups.items()
    ]


def _groups(matmuls: Sequence[ScaledMatmul]) -> list[tuple[str, ScaledMatmul]]:
    """Returns matmuls with their names; those of layers that differ only in their numbers are grouped."""
    found: dict[tuple[str, ...], list[ScaledMatmul]] = {}
    for number, matmul in enumerate(matmuls):
        alike = _NUMBER.sub("*", matmul.name) if matmul.name else str(number)
        found.setdefault((alike, matmul.location, *_cells(matmul)), []).append(matmul)
    return [(_called(group), group[0]) for group in found.values()]


def _called(group: Sequence[ScaledMatmul]) -> str:
    """Returns the name in the source, if there is one, and the location."""
    name = tables.starred([matmul.name for matmul in group if matmul.name])
    several = f"{name} ({len(group)})" if len(group) > 1 else name
    return "\n".join(filter(None, (several, short_location(group[0].location))))


_COLUMNS = (
    Column("matmul", fold=16),
    Column("M×N×K"),
    Column("types", fold=10),
    Column("tile"),
    Column("ukernel", fold=25),
    Column("dispatches", right=True),
    Column("why", fold=40),
)


def _cells(matmul: ScaledMatmul) -> tuple[str, ...]:
    """Returns the cells of a row without the name."""
    return (
        _sizes(matmul),
        " × ".join(matmul.types[:2]),
        _tile(matmul),
        matmul.ukernel or "-",
        str(_running(matmul)) if matmul.dispatches else "-",
        "; ".join(_remarks(matmul)) or "-",
    )


def _lines(matmul: ScaledMatmul) -> list[str]:
    """Returns lines about one matmul: its sizes, how it is computed, and why not otherwise."""
    tile = f"tile {_tile(matmul)}" if matmul.layout is not None else ""
    dispatches = _counted(_running(matmul), "dispatch", "dispatches") if matmul.dispatches else ""
    lines = (
        "  ".join(filter(None, (_sizes(matmul), " × ".join(matmul.types[:2])))),
        ", ".join(filter(None, (matmul.ukernel or "no ukernel", tile, dispatches))),
        *_remarks(matmul),
    )
    return list(filter(None, lines))


def short_location(location: str) -> str:
    """Returns a location without the directories of its file; other text is unchanged."""
    name, separator, position = location.partition(":")
    return f"{path.basename(name)}{separator}{position.removesuffix(':0')}" if position[:1].isdigit() else location


def _remarks(matmul: ScaledMatmul) -> list[str]:
    remarks = (matmul.note, matmul.reason, matmul.warning, *matmul.unfused)
    return [_DIRECTORIES.sub("", remark) for remark in remarks if remark]


def _sizes(matmul: ScaledMatmul) -> str:
    sizes = "×".join("?" if size is None else str(size) for size in (matmul.m, matmul.n, matmul.k))
    return sizes if matmul.n else ""


def _tile(matmul: ScaledMatmul) -> str:
    """Returns M × N × K of a workgroup's tile."""
    if matmul.layout is None:
        return "-"
    m, n, k = layout_from(matmul.layout).workgroup_tile
    return "×".join(map(str, (n, m, k) if matmul.transposed else (m, n, k)))
