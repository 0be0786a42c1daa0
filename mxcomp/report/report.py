"""Reports how every scaled matmul and attention was compiled: collected from the IR between phases, printed as JSON or
table."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

import msgspec
from iree.compiler import ir

from mxcomp.errors import InputError
from mxcomp.layout import layout_entries
from mxcomp.matching.canonical import is_canonical, problem_of
from mxcomp.matching.decision import PLAIN
from mxcomp.mlir import dispatches, graph, notes
from mxcomp.mlir.dispatches import DISPATCH
from mxcomp.mlir.graph import location_name, location_text
from mxcomp.plans import plans_below
from mxcomp.profiling.launches import Launch
from mxcomp.profiling.reports import Attention, KernelVersion, ScaledMatmul
from mxcomp.report import kernel_operands, table
from mxcomp.support import tables
from mxcomp.weights.manifest import Manifest

_KERNEL = re.compile(r"\bmx_\w+")
"""Matches the ukernel that the note of a matmul names: one that quantises or dequantises its operands itself."""

_DISPATCH_NAME = re.compile(r'"mxcomp\.(?P<index>\d+)\.(?P<part>\w+)"')


@dataclass
class Report:
    """The scaled matmuls of a module in order, for one target."""

    target: str
    matmuls: list[ScaledMatmul] = field(default_factory=list)
    manifest: Manifest | None = None
    """The parameters that the program reads, if it was compiled with packed parameters."""
    left_out: list[str] = field(default_factory=list)
    """Lines of a tuned table that are not used: where, why, and what to do."""
    fallback: str | None = None
    """The reason for a fallback, and what the program is instead (`mxcomp.fallback`)."""
    floats: dict[str, str] = field(default_factory=dict)
    """Modules of a PyTorch model whose weights stay floats, by name, and the reasons
    (`mxcomp.torch.left_in_floats`)."""
    attentions: list[Attention] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    """The launch sites of the program in order, by which profiles name dispatches."""

    def collect(self, module: ir.Operation) -> None:
        """Adds every marked matmul below `module`: what recognise and encode decided, before it is materialised."""
        self.left_out += notes.take_warnings(module)
        for op, plan in plans_below(module):
            matmul = ScaledMatmul(
                location_text(op.location),
                name=location_name(op.location) or None,
                index=plan.index,
                note=plan.note,
                reason=plan.reason,
                warning=plan.warning,
                **plan.reported(),
                versions=[
                    KernelVersion(max_m, each.kernel or "", layout_entries(each.layout), str(each.order))
                    for max_m, each in plan.by_rows
                ],
            )
            if is_canonical(op):
                problem = problem_of(op)
                matmul.m, matmul.n, matmul.k, matmul.types = problem.m, problem.n, problem.k, list(problem.types)
            self.matmuls.append(matmul)

    def add_unfused(self, module: ir.Operation) -> None:
        """Adds the notes of passes on `module`, about matmuls and attention, and removes them."""
        self.attentions = [Attention(**each) for each in notes.take_attentions(module)]
        reasons = notes.take(module)
        for matmul in self.matmuls:
            matmul.unfused = reasons.get(-1 if matmul.index is None else matmul.index, [])

    def take_alone(self) -> None:
        """Says that nothing is quantised in our dispatches, for compilations that see matmuls alone (plugins)."""
        for matmul in self.matmuls:
            quantised = [part for part in matmul.dispatches if part.startswith("quantise_")]
            named = _KERNEL.findall(matmul.note or "")
            if not quantised and not named:
                continue
            if matmul.ukernel in named:
                matmul.operands, matmul.layout, matmul.order, matmul.ukernel = PLAIN, None, None, None
                matmul.reason = "activations are not quantised, which takes mxcomp-compile"
            matmul.note = "taken apart from what quantises its operands, which mxcomp-compile does in its dispatches"
            matmul.dispatches, matmul.kernels = [], []
            matmul.kernel = matmul.stored = None

    def add_dispatches(self, module: ir.Operation) -> None:
        """Adds the dispatches of each matmul, from their locations, in a module at IREE's flow phase."""
        ours = {matmul.index: matmul for matmul in self.matmuls if matmul.operands != PLAIN}
        plain = {(matmul.location, matmul.name): matmul for matmul in self.matmuls if matmul.operands == PLAIN}
        for op in graph.walk(module, bodies=False):
            if op.name != DISPATCH:
                continue
            found = _DISPATCH_NAME.search(str(op.location))
            if found and int(found["index"]) in ours:  # others are of a compilation before
                matmul, part = ours[int(found["index"])], found["part"]
            elif (key := (location_text(op.location), location_name(op.location) or None)) in plain:
                matmul, part = plain[key], "matmul"
            else:
                continue
            matmul.dispatches.append(part)
            matmul.kernels.append(dispatches.entry_point(op).function)
            if part == "matmul":
                matmul.kernel = matmul.kernels[-1]
            for version in matmul.versions:
                if part == ("matmul" if version.max_m is None else f"matmul_up_to_{version.max_m}"):
                    version.kernel = matmul.kernels[-1]

    def add_operands(self, module: ir.Operation) -> None:
        """Adds where kernels find their operands, from a module at IREE's phase `executable-sources`."""
        found = kernel_operands.find(module, {part.kernel for part in self.parts if part.kernel is not None})
        for part in self.parts:
            part.stored = found.get(part.kernel or "")

    @property
    def parts(self) -> list[ScaledMatmul | KernelVersion]:
        """The matmuls, and the versions of each for ranges of M: what has a kernel."""
        return [*self.matmuls, *(version for matmul in self.matmuls for version in matmul.versions)]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Returns warnings for users, one line each."""
        fallback = [f"warning: {self.fallback}"] if self.fallback else []
        return (*fallback, *(f"{m.location}: warning: {m.warning}" for m in self.matmuls if m.warning))

    @staticmethod
    def from_json(text: str | bytes, name: str = "report") -> Report:
        """Inverts `to_json`. Raises InputError where the text is no report of this version of mxcomp."""
        try:
            entries = msgspec.json.decode(text, type=dict[str, Any])
            manifest = entries.pop("manifest", None)
            report = msgspec.convert(entries, Report)
            report.manifest = None if manifest is None else Manifest.from_entries(manifest, name)
            return report
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{name} is no report of this version of mxcomp ({error}): mxcomp-compile --report={name} writes one"
            ) from None

    def to_json(self) -> str:
        entries = asdict(self) | {"manifest": self.manifest and self.manifest.entries()}
        for name in ("manifest", "left_out", "fallback", "floats", "attentions"):
            if not entries[name]:
                del entries[name]
        return json.dumps(entries, indent=2)

    def summary(self) -> str:
        """Returns one line that says how the matmuls, and attention, were compiled."""
        return table.summary(self.matmuls, self.attentions)

    def print(self, stream: TextIO, width: int | None = None) -> None:
        """Prints a table for people, as wide as the terminal; without one, `width` or 140 columns."""
        width = width or tables.width_of(stream)
        table.show(self.matmuls, f"scaled matmuls for {self.target}", stream, width)
        warnings = (f"warning: {line}" for line in (*filter(None, (self.fallback,)), *self.left_out))
        floats = (f"in floats: {line}" for line in table.floats_lines(self.floats))
        for line in (*table.attention_lines(self.attentions), *warnings, *floats):
            tables.say(stream, line, width)
