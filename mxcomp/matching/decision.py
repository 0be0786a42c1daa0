"""What has been decided about a scaled matmul: one record, which its operation carries from pass to pass.

    linalg.generic {…, mxcomp.scaled_matmul = {index = 0, operands = "data_tiled", layout = {…}, ukernel = "mx_…", …}}

mxcomp-recognise marks matmuls with an empty record, or with the reason why they are left to IREE; mxcomp-encode
decides on the others; what comes later reads, and decides nothing again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from iree.compiler import ir

from mxcomp.layout import ACC, DataTiledLayout, layout_entries, layout_from
from mxcomp.layout.order import PLAIN_ORDER, Order
from mxcomp.mlir import attributes, graph
from mxcomp.problem import flipped

SCALED_MATMUL = "mxcomp.scaled_matmul"
"""The attribute that marks every scaled matmul and holds the entries of its `Decision`."""

VERSIONS = "mxcomp.versions"
"""On what chooses among results of versions, each in a dispatch, of which only the chosen one need run."""

PLAIN, DATA_TILED, ROW_MAJOR = "plain", "data_tiled", "row_major"
"""How a kernel takes its operands: as IREE pleases, packed into a layout of ours, or as they are stored."""


@dataclass(frozen=True)
class Version:
    """The kernel for a range of a dynamic M; entries as those of `Decision`.

    Attributes:
        max_m: The most rows that it is for; None for the last.
        quantising: As of `Decision`: it needs no packed LHS.
    """

    max_m: int | None
    layout: DataTiledLayout
    ukernel: str
    order: Order
    workgroup_size: tuple[int, ...]
    llvm_func_attrs: Mapping[str, str]
    quantising: str | None = None

    @property
    def units(self) -> tuple[int, int]:
        """Units of rows and of columns that a workgroup takes: of rows LHS is padded to whole multiples of them."""
        assert self.layout.units is not None
        return self.layout.units


@dataclass(frozen=True)
class Decision:
    """How one scaled matmul is computed; an entry that has its default was not decided, or has no meaning here.

    Attributes:
        index: Its number among the recognised matmuls of the module; None where it was not recognised.
        operands: PLAIN, DATA_TILED or ROW_MAJOR.
        layout: Where the tiles of data-tiled operands lie.
        tile: A workgroup's (M, N, K) of row-major operands, in elements.
        transposed: RHS is multiplied in the place of LHS; `layout`, `tile` and limits are those of N × M.
        requantised_for: The index of the matmul whose LHS is quantised from this result in its tile.
        ukernel: The name of the code that computes a tile; None: IREE generates it.
        versions: Kernels by ranges of a dynamic M, ascending; the last is what the decision says by itself.
        gathered: Operands that the kernel reads through expert ids (`mxcomp.matching.gathers`).
        skips: Where these are negative it computes nothing, for nothing reads its result there.
        lhs_in_rows: It reads what is multiplied as LHS where it is stored, and only the other operands are packed.
        parts: Of K, each multiplied by workgroups of its own; a dispatch behind adds them up.
        quantising: That of another, which takes the same RHS, and quantises LHS of activations itself.
        paired: That of another, which does so for two matrices of one activation at once.
        paired_with: The index of the other matmul.
        order: In which workgroups take tiles of data-tiled operands.
        workgroup_size: Threads in x, y and z.
        llvm_func_attrs: What LLVM is told of the kernel's function.
        max_m, max_n, max_k: The largest dynamic sizes in elements that buffers allow, as they are multiplied.
        max_bytes: The largest result whose M and N are dynamic.
        note: How a choice was made.
        reason: Why something was not done.
        warning: What users ought to know.
    """

    index: int | None = None
    operands: str = PLAIN
    layout: DataTiledLayout | None = None
    tile: tuple[int, ...] = ()
    transposed: bool = False
    requantised_for: int | None = None
    gathered: tuple[int, ...] = ()
    skips: bool = False
    lhs_in_rows: bool = False
    parts: int = 1
    ukernel: str | None = None
    versions: tuple[Version, ...] = ()
    quantising: str | None = None
    paired: str | None = None
    paired_with: int | None = None
    order: Order = PLAIN_ORDER
    workgroup_size: tuple[int, ...] = ()
    llvm_func_attrs: Mapping[str, str] = field(default_factory=dict)
    max_m: int | None = None
    max_n: int | None = None
    max_k: int | None = None
    max_bytes: int | None = None
    note: str | None = None
    reason: str | None = None
    warning: str | None = None

    @property
    def is_ours(self) -> bool:
        """Whether passes of ours build its dispatch."""
        return self.operands != PLAIN

    @property
    def packing(self) -> DataTiledLayout | None:
        """The layout of packed operands. With versions it has single units of rows, and columns for each of them."""
        if self.layout is None:
            return None
        if not self.versions:
            return replace(self.layout, lane_columns=False)  # which is of results alone
        return self.layout.packed((1, max(version.units[1] for version in self.versions)))

    def place(self, operand: int) -> int:
        """As which operand one of the matmul is multiplied."""
        return flipped(range(ACC))[operand] if self.transposed else operand

    def of(self, version: Version) -> Decision:
        """The same with the kernel of a version alone."""
        return replace(
            self,
            layout=version.layout,
            ukernel=version.ukernel,
            versions=(),
            quantising=version.quantising,
            order=version.order,
            workgroup_size=version.workgroup_size,
            llvm_func_attrs=version.llvm_func_attrs,
        )

    def to_attr(self) -> ir.DictAttr:
        """The entries that differ from their defaults, in the current context."""
        nothing, entries = Decision(), {}
        for name in (each.name for each in fields(self)):
            value = getattr(self, name)
            if value != getattr(nothing, name):
                entries[name] = _entry(value)
        return ir.DictAttr(attributes.from_python(entries))

    @staticmethod
    def from_attr(attribute: ir.Attribute) -> Decision:
        """Inverse of `to_attr`. Raises ValueError and TypeError for what is no decision."""
        entries = _read(attributes.to_python(attribute))
        for name in ("tile", "gathered", "workgroup_size"):
            entries[name] = tuple(entries.get(name, ()))
        entries["versions"] = tuple(Version(**{"max_m": None, **_read(each)}) for each in entries.get("versions", ()))
        return Decision(**entries)


def _entry(value: Any) -> Any:
    """An entry as attributes have it; what is None is left out."""
    match value:
        case Order():
            return asdict(value)
        case DataTiledLayout():
            return layout_entries(value)
        case Version():
            entries = {each.name: getattr(value, each.name) for each in fields(value)}
            return {name: _entry(entry) for name, entry in entries.items() if entry is not None}
        case tuple():
            return [_entry(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value


def _read(entries: dict[str, Any]) -> dict[str, Any]:
    """Entries of a decision or a version, from those of attributes."""
    found = dict(entries)
    if "layout" in found:
        found["layout"] = layout_from(found["layout"])
    if "order" in found:
        found["order"] = Order(**found["order"])
    if "workgroup_size" in found:
        found["workgroup_size"] = tuple(found["workgroup_size"])
    return found


def decision_of(op: ir.Operation) -> Decision | None:
    """The decision that an operation carries; None if it is no scaled matmul."""
    return Decision.from_attr(op.attributes[SCALED_MATMUL]) if SCALED_MATMUL in op.attributes else None


def left_to_iree(module: ir.Operation) -> list[tuple[ir.Operation, Decision]]:
    """The scaled matmuls below `module` of which IREE builds the dispatches."""
    decisions = [(op, decision_of(op)) for op in graph.walk(module, bodies=False)]
    return [(op, decision) for op, decision in decisions if decision is not None and not decision.is_ours]


def is_recognised(op: ir.Operation) -> bool:
    """Whether recognition gave an operation the canonical form, and nothing has been decided on it yet."""
    return decision_of(op) == Decision()


def decide(op: ir.Operation, decision: Decision) -> None:
    """Marks an operation as a scaled matmul of which this was decided."""
    with op.context:
        op.attributes[SCALED_MATMUL] = decision.to_attr()
