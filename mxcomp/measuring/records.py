"""Records of times: one for each dispatch of a program in one configuration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from mxcomp.errors import InputError
from mxcomp.support import files

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

END_TO_END = "end to end"
"""The name of the record of a whole call: the sum of its dispatches if modelled; the fastest call if measured."""


@dataclass(frozen=True)
class Record:
    """The time of one dispatch, or of a whole call.

    Attributes:
        subject: Sizes as MxNxK with types and result, or a model's file.
        configuration: One of `mxcomp.measuring.configurations`.
        part: What the dispatch does: "matmul", "encode LHS", …, its kernel's name, or END_TO_END.
        kernel: The function; of END_TO_END none.
        source: "modelled" or "measured".
        low, high, bound, flops, unique_bytes: See `mxcomp.measuring.dispatches.Dispatch`.
    """

    subject: str
    configuration: str
    part: str
    kernel: str
    source: str
    us: float
    low: float
    high: float
    bound: str = ""
    flops: float = 0.0
    unique_bytes: float = 0.0


Kind = TypeVar("Kind", bound="DataclassInstance")


def to_json(records: Sequence[DataclassInstance]) -> bytes:
    """Returns a list of objects as JSON."""
    return (json.dumps([asdict(each) for each in records], indent=1) + "\n").encode()


def write(
    records: Sequence[DataclassInstance], kind: type[DataclassInstance], json_file: Path | None, csv_file: Path | None
) -> None:
    """Writes the files that are named, both or neither."""
    results: dict[str | Path, bytes] = {}
    if json_file:
        results[json_file] = to_json(records)
    if csv_file:
        results[csv_file] = to_csv(records, kind)
    files.write(results)


def to_csv(records: Sequence[DataclassInstance], kind: type[DataclassInstance]) -> bytes:
    """Returns CSV: the names of the fields, then a line for each record."""
    return files.table([each.name for each in fields(kind)], map(asdict, records)).encode()


def from_json(path: Path | None, kind: type[Kind], tool: str) -> list[Kind]:
    """Returns the records that `to_json` wrote in an earlier run, if it did. Raises InputError for anything else."""
    if path is None or not path.exists():
        return []
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[kind])  # type: ignore[valid-type]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: no list of {tool}: {error}: remove it, or write elsewhere") from None
