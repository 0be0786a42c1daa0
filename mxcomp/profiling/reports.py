"""Reads reports of mxcomp-compile where programs run: what they say of scaled matmuls, and of launches."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from mxcomp.errors import InputError
from mxcomp.profiling.launches import Launch
from mxcomp.support import files

Number: TypeAlias = int | list[int]
"""A number, or the ordinals of the push constants that contain it, the low 32 bits first."""


@dataclass
class StoredOperand:
    """An operand in memory: `shape` counts elements of the MLIR type `type`, packed as they are multiplied."""

    operand: str
    binding: int
    offset: Number
    shape: list[Number]
    type: str


@dataclass
class KernelOperands:
    """The known operands of one kernel's matmul; `rows` is M, or None where it is not known."""

    operands: list[StoredOperand] = field(default_factory=list)
    rows: Number | None = None


@dataclass
class KernelVersion:
    """The kernel for up to `max_m` rows of a matmul with a dynamic M (None: all larger M); entries as of the matmul."""

    max_m: int | None
    ukernel: str
    layout: dict[str, Any]
    order: str | None = None
    kernel: str | None = None
    stored: KernelOperands | None = None


@dataclass
class ScaledMatmul:
    """One scaled matmul. Sizes are in elements, None where dynamic; `reason` says why something was not done, `note`
    how a choice was made. `name` is its name in the source; with PyTorch, the module in the model.

    `order` is that in which workgroups take tiles, None where IREE decides. `transposed`: RHS is multiplied in the
    place of LHS, in a layout of N × M. `unfused` says why operations around it have a dispatch of their own.
    `kernels` are those of `dispatches`; `kernel` is the one that multiplies it, perhaps other matmuls too, and
    `stored` says where that finds the operands. With `versions` the last of them is what all entries are about.
    """

    location: str
    index: int | None = None
    m: int | None = None
    n: int | None = None
    k: int | None = None
    types: list[str] = field(default_factory=list)
    operands: str = field(kw_only=True)
    layout: dict[str, Any] | None = None
    order: str | None = None
    transposed: bool = False
    ukernel: str | None = None
    reason: str | None = None
    warning: str | None = None
    unfused: list[str] = field(default_factory=list)
    dispatches: list[str] = field(default_factory=list)
    kernel: str | None = None
    stored: KernelOperands | None = None
    note: str | None = None
    versions: list[KernelVersion] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    name: str | None = None


@dataclass
class Attention:
    """One attention that was kept as a single operation. Sizes are None where dynamic; `heads` are those of queries, in
    all batches.

    `ukernel` is the kernel of ours that computes it, `reason` why it is left to IREE's, `note` why another dispatch
    reads keys or values first.
    """

    location: str
    name: str | None = None
    heads: int | None = None
    queries: int | None = None
    keys: int | None = None
    size: int | None = None
    value_size: int | None = None
    ukernel: str | None = None
    reason: str | None = None
    note: str = ""


class Reported(msgspec.Struct):
    """The fields of a report that are read."""

    matmuls: list[ScaledMatmul]
    launches: list[Launch]


def read(report: str | Path) -> Reported:
    """Returns what a report of mxcomp-compile says. Raises InputError."""
    try:
        return msgspec.json.decode(files.read(report), type=Reported)
    except (ValueError, RecursionError):
        raise InputError(
            f"{report} is no report of this version of mxcomp: mxcomp-compile --report={report} writes one"
        ) from None
