"""Lines of a tuned table: CSV that names the ukernel of each problem, and the source of its time.

    version,arch,lhs,rhs,lhs_scale,rhs_scale,acc,batch,m,n,k,result,kernel,split_k,order,source,us,margin,use
    0.1.0,gfx950,f4E2M1FN,f4E2M1FN,f8E8M0FNU,f8E8M0FNU,f32,,64,8192,8192,bf16,mx_…_m64_n32_k512,1,,modelled,11.6,0.07,1

docs/howto/tuning.md says what each column means.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxcomp.errors import InputError
from mxcomp.layout.problem import Problem
from mxcomp.support import files
from mxcomp.support.lines import table
from mxcomp.support.version import __version__

TYPES = ("lhs", "rhs", "lhs_scale", "rhs_scale", "acc")
SIZES = ("m", "n", "k")
COLUMNS = (
    "version", "arch", *TYPES, "batch", *SIZES, "result", "kernel", "split_k", "order", "source", "us", "margin", "use",
)  # fmt: skip
MODELLED, MEASURED = "modelled", "measured"
RESULTS = ("f32", "bf16", "f16")
"""The element types of stored results."""
ANY, DYNAMIC = "", "?"
"""Matches a result of any type; a dynamic size."""


@dataclass(frozen=True)
class Key:
    """The key of a line: a problem on a target, by name, and the element type of the stored result, or ANY."""

    target: str
    problem: Problem
    result: str = ANY


@dataclass(frozen=True)
class Line:
    """One line.

    Attributes:
        kernel: Name of the ukernel.
        split_k: Workgroups that share a tile's K; order: how workgroups are numbered. Kernels of today know 1 and "".
        source: MODELLED or MEASURED.
        us: Microseconds of the matmul dispatch.
        margin: How much longer the second best takes, as a part of `us`; None where there was no other.
        use: Whether the line decides; one that does not is a note.
        version: Of mxcomp, whose ukernels were compared.
        number: Its place in the file, from 1; 0 for a line that is in none.
    """

    key: Key
    kernel: str
    source: str
    us: float
    margin: float | None = None
    use: bool = True
    split_k: int = 1
    order: str = ""
    version: str = __version__
    number: int = 0

    def __str__(self) -> str:
        return f"tuned table line {self.number}: {self.source} {self.us:.1f} µs"

    @property
    def fields(self) -> dict[str, str]:
        """Returns the values by column, as they are written."""
        problem = self.key.problem
        sizes = {axis: DYNAMIC if size is None else str(size) for axis, size in problem.sizes.items()}
        return {
            "version": self.version, "arch": self.key.target, **dict(zip(TYPES, problem.types, strict=True)),
            "batch": "x".join(map(str, problem.batch)), **sizes, "result": self.key.result, "kernel": self.kernel,
            "split_k": str(self.split_k), "order": self.order, "source": self.source, "us": f"{self.us:.3f}",
            "margin": "" if self.margin is None else f"{self.margin:.4f}", "use": str(int(self.use)),
        }  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """An error in a line, and what to do."""

    path: Path
    number: int
    message: str

    @property
    def text(self) -> str:
        return f"{self.path}:{self.number}: {self.message}"

    def __str__(self) -> str:
        return f"{self.text}: the line is left out"


def read(path: Path) -> tuple[list[Line], list[Fault]]:
    """Returns the valid lines, and errors of the others. Raises InputError for a file that is no text."""
    try:
        with table(path) as (names, rows):
            if missing := [name for name in COLUMNS if name not in names]:
                columns = f"no column {', '.join(missing)}: expected {','.join(COLUMNS)}: nothing of the table is used"
                return [], [Fault(path, 1, columns)]
            found = [_line(path, rows.line_num, row) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"tuned table {path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return [each for each in found if isinstance(each, Line)], [each for each in found if isinstance(each, Fault)]


def text(lines: Iterable[Line]) -> str:
    """Returns the whole file."""
    return files.table(COLUMNS, (line.fields for line in lines))


def _line(path: Path, number: int, row: Mapping[str | None, str | list[str] | None]) -> Line | Fault:
    if None in row or None in row.values():
        return Fault(path, number, f"expected {len(COLUMNS)} fields as in the first line")
    fields = {name: str(row[name]).strip() for name in COLUMNS}
    if fields["version"] != __version__:  # its fields may have other meanings
        return Fault(
            path, number, f"made by mxcomp {fields['version']}, this is {__version__}: run mxcomp-tune --force"
        )
    found = dict[str, Any]()
    for name, (parse, expected) in _PARSERS.items():
        try:
            found[name] = parse(fields[name])
        except ValueError:
            return Fault(path, number, f"{name} is '{fields[name]}': expected {expected}")
    types, (m, n, k) = tuple(fields[name] for name in TYPES), (found[name] for name in SIZES)
    key = Key(fields["arch"], Problem(m, n, k, types, found["batch"]), fields["result"])
    decided = {name: found[name] for name in ("us", "margin", "use", "split_k")}
    return Line(key, fields["kernel"], fields["source"], order=fields["order"], number=number, **decided)


def _size(text: str) -> int | None:
    return None if text == DYNAMIC else _count(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError
    return int(text)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


def _margin(text: str) -> float | None:
    return None if not text else float(text)


def _batch(text: str) -> tuple[int, ...]:
    return tuple(_count(size) for size in text.split("x")) if text else ()


def _one_of(*values: str) -> Callable[[str], int]:
    return values.index


_PARSERS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    **dict.fromkeys(SIZES, (_size, "a positive whole number, or ? where it is dynamic")),
    "batch": (_batch, "nothing, or sizes as 8 or 2x8"),
    "result": (_one_of(ANY, *RESULTS), f"one of {', '.join(RESULTS)}, or nothing for any"),
    "split_k": (_count, "1"),
    "source": (_one_of(MODELLED, MEASURED), f"{MODELLED} or {MEASURED}"),
    "us": (_positive, "microseconds"),
    "margin": (_margin, "nothing, or a number such as 0.04"),
    "use": (lambda text: bool(_one_of("0", "1")(text)), "1, or 0 for a line that decides nothing"),
}
"""Parsers of fields that are not any text, which raise ValueError, and what is expected."""
