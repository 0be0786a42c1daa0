"""What became of every scaled matmul: collected from the IR between phases, printed as JSON or as a table."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

from iree.compiler import ir

from mxcomp.layout import layout_entries, layout_from
from mxcomp.matching.canonical import is_canonical, problem_of
from mxcomp.matching.decision import PLAIN, decision_of
from mxcomp.mlir import graph, notes
from mxcomp.mlir.graph import location_name, location_text
from mxcomp.report import kernel_operands
from mxcomp.report.kernel_operands import KernelOperands
from mxcomp.weights.manifest import Manifest

_FOLDERS = re.compile(r"(?<![^\s(])/(?:[^/\s:]+/)+(?=[^/\s:]+:\d)")
"""Folders in front of the file of a location, which leave no room for anything else in a table."""
_NO_COLUMN = re.compile(r"(?<=:)(\d+):0\b")
"""The column 0 of locations in Python files."""
_DISPATCH_NAME = re.compile(r'"mxcomp\.(?P<index>\d+)\.(?P<part>\w+)"')


@dataclass
class ScaledMatmul:
    """One scaled matmul. Sizes are in elements, None where dynamic; `reason` says why something was not done, `note`
    how a choice was made. `name` is what the source calls it: of PyTorch, the module in the model.

    `transposed`: RHS is multiplied in the place of LHS, in a layout of N × M. `unfused` says why operations around it
    have a dispatch of their own. `kernel` multiplies it, perhaps other matmuls too; `stored` says where that finds the
    operands.
    """

    location: str
    index: int | None = None
    m: int | None = None
    n: int | None = None
    k: int | None = None
    types: list[str] = field(default_factory=list)
    operands: str = PLAIN
    layout: dict[str, Any] | None = None
    transposed: bool = False
    ukernel: str | None = None
    reason: str | None = None
    warning: str | None = None
    unfused: list[str] = field(default_factory=list)
    dispatches: list[str] = field(default_factory=list)
    kernel: str | None = None
    stored: KernelOperands | None = None
    note: str | None = None
    name: str | None = None


@dataclass
class Report:
    """The scaled matmuls of a module in order, for one target."""

    target: str
    matmuls: list[ScaledMatmul] = field(default_factory=list)
    manifest: Manifest | None = None
    """What the program reads, if it was compiled with packed parameters."""
    left_out: list[str] = field(default_factory=list)
    """Lines of a tuned table that are not used: where, why, and what to do."""

    def collect(self, module: ir.Operation) -> None:
        """Adds every marked matmul below `module`: what recognise and encode decided, before it is materialised."""
        self.left_out += notes.take_warnings(module)
        for op in graph.walk(module):
            decision = decision_of(op)
            if decision is None:
                continue
            matmul = ScaledMatmul(
                location_text(op.location),
                name=location_name(op.location) or None,
                index=decision.index,
                operands=decision.operands,
                layout=None if decision.layout is None else layout_entries(decision.layout),
                transposed=decision.transposed,
                ukernel=decision.ukernel,
                note=decision.note,
                reason=decision.reason,
                warning=decision.warning,
            )
            if is_canonical(op):
                problem = problem_of(op)
                matmul.m, matmul.n, matmul.k, matmul.types = problem.m, problem.n, problem.k, list(problem.types)
            self.matmuls.append(matmul)

    def add_unfused(self, module: ir.Operation) -> None:
        """Adds what passes noted on `module`, and takes it from there."""
        reasons = notes.take(module)
        for matmul in self.matmuls:
            matmul.unfused = reasons.get(-1 if matmul.index is None else matmul.index, [])

    def add_dispatches(self, module: ir.Operation) -> None:
        """Adds the dispatches of each matmul, from their locations, in a module at IREE's flow phase."""
        ours = {matmul.index: matmul for matmul in self.matmuls if matmul.operands != PLAIN}
        plain = {(matmul.location, matmul.name): matmul for matmul in self.matmuls if matmul.operands == PLAIN}
        for op in graph.walk(module):
            if op.name != "flow.dispatch":
                continue
            if found := _DISPATCH_NAME.search(str(op.location)):
                matmul, part = ours[int(found["index"])], found["part"]
            elif (place := (location_text(op.location), location_name(op.location) or None)) in plain:
                matmul, part = plain[place], "matmul"
            else:
                continue
            matmul.dispatches.append(part)
            if part == "matmul":
                matmul.kernel = _entry_point(op)

    def add_operands(self, module: ir.Operation) -> None:
        """Adds where kernels find their operands, from a module at IREE's phase `executable-sources`."""
        kernels = {matmul.kernel for matmul in self.matmuls if matmul.kernel is not None}
        found = kernel_operands.find(module, kernels)
        for matmul in self.matmuls:
            matmul.stored = found.get(matmul.kernel or "")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What users ought to know, one line each."""
        return tuple(f"{m.location}: warning: {m.warning}" for m in self.matmuls if m.warning)

    def to_json(self) -> str:
        entries = asdict(self)
        for name in ("manifest", "left_out"):
            if not entries[name]:
                del entries[name]
        return json.dumps(entries, indent=2)

    def print(self, stream: TextIO) -> None:
        """A table for people."""
        from rich.console import Console
        from rich.table import Table

        table = Table(title=f"scaled matmuls for {self.target}", title_justify="left")
        for column in ("location", "M × N × K", "types", "tile", "ukernel", "dispatches", "why not"):
            table.add_column(column, overflow="fold")
        for matmul in self.matmuls:
            sizes = " × ".join("?" if size is None else str(size) for size in (matmul.m, matmul.n, matmul.k))
            remarks = "; ".join(
                remark for remark in (matmul.note, matmul.reason, matmul.warning, *matmul.unfused) if remark
            )
            table.add_row(
                _shortened("\n".join(filter(None, (matmul.name, matmul.location)))),
                sizes if matmul.n else "",
                " × ".join(matmul.types[:2]),
                _tile_text(matmul),
                matmul.ukernel or "-",
                str(len(matmul.dispatches)) if matmul.dispatches else "-",
                _shortened(remarks) or "-",
            )
        console = Console(file=stream, width=None if stream.isatty() else 140)
        console.print(table)
        for line in self.left_out:
            console.print(f"warning: {line}", markup=False, highlight=False)


def _shortened(text: str) -> str:
    """Locations in a text as they fit a table."""
    return _NO_COLUMN.sub(r"\1", _FOLDERS.sub("", text))


def _entry_point(dispatch: ir.Operation) -> str:
    """The function that a `flow.dispatch` calls, in whatever executable."""
    (symbol,) = ir.ArrayAttr(dispatch.attributes["entry_points"])
    return str(ir.SymbolRefAttr(symbol).value[-1])


def _tile_text(matmul: ScaledMatmul) -> str:
    """M × N × K of a workgroup's tile."""
    if matmul.layout is None:
        return "-"
    m, n, k = layout_from(matmul.layout).workgroup_tile
    return "×".join(map(str, (n, m, k) if matmul.transposed else (m, n, k)))
