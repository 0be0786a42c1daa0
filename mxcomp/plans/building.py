"""The state of building plans: packed operands of all matmuls of a module, and the values of one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iree.compiler import ir

from mxcomp.errors import InternalError
from mxcomp.layout.problem import Problem
from mxcomp.matching.activations import Activations
from mxcomp.matching.decision import Decision
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.options import Options
from mxcomp.packing.packer import Packer
from mxcomp.packing.runtime_sizes import RuntimeSizes
from mxcomp.target import Target


@dataclass(frozen=True)
class Matmul:
    """A matmul as it is multiplied.

    Attributes:
        target: What it is compiled for.
        op: What it is before, encoded.
        unset: Behind it, what takes its encoding away.
        epilogue: Fused consumers between them.
        packed: The operands of its kernel.
        ids: Of operands that are packed for all experts, which each matrix of the batch takes.
        activations: What a kernel takes that quantises the LHS itself.
        of_norm: Vectors of a norm that it computes in front of that.
        in_tiles: Whether these are in tiles along M.
    """

    target: Target
    op: ir.Operation
    unset: ir.Operation
    epilogue: ir.Operation | None
    sizes: RuntimeSizes
    packed: list[ir.Value]
    ids: Mapping[int, ir.Value]
    activations: Activations | None = None
    of_norm: Sequence[ir.Value] = ()
    in_tiles: bool = False

    @property
    def problem(self) -> Problem:
        return self.sizes.problem

    @property
    def element(self) -> str:
        """The type of an element of the result."""
        return str(build.element(self.unset.results[0]))

    def erase(self) -> None:
        """Erases the operations that are replaced."""
        encodings = [operand.owner.operation for operand in self.op.operands]
        for dead in (self.unset, *([self.epilogue] if self.epilogue else []), self.op, *encodings):
            graph.erase_dead(dead)


_GONE = "mxcomp.gone"
"""The attribute of a placeholder for a requantised result, until all that was computed from it is erased."""


@dataclass
class Building:
    """A module while its matmuls become dispatches; `plans` are those of all that are not built yet, by numbers."""

    module: ir.Operation
    options: Options
    plans: dict[int, tuple[ir.Operation, Decision]]
    packer: Packer = field(init=False)
    waiting: dict[int, tuple[Any, Matmul]] = field(default_factory=dict)
    """The plans of matmuls that are built together with another one, and their packed operands, by number."""
    sources: list[ir.Value] = field(default_factory=list)
    """The sources of packed operands, which the packer uses as keys; they are erased at the end."""

    def __post_init__(self) -> None:
        self.packer = Packer(self.options)

    def gone(self, result: ir.Value, sizes: Sequence[ir.Value] = ()) -> ir.Value:
        """Returns an operand of operations that are dead when all matmuls are built; `sizes` are its dynamic ones."""
        placeholder = build.empty(ir.RankedTensorType(result.type), sizes)
        placeholder.owner.attributes[_GONE] = ir.UnitAttr.get()
        return placeholder

    def finish(self) -> None:
        """Erases what nothing reads any more. Raises InternalError if something reads an erased value."""
        ops = list(graph.walk(self.module, bodies=False))
        for dim in [op for op in ops if op.name == "tensor.dim"] if any(_GONE in op.attributes for op in ops) else []:
            linalg_ops.ask_init(dim)
        graph.erase_unused(self.sources)
        for op in [op for op in graph.walk(self.module, bodies=False) if _GONE in op.attributes]:
            if users := [use.owner.operation for use in op.results[0].uses]:
                where = f"{users[0].name} at {graph.location_text(users[0].location)}"
                raise InternalError(f"{where} reads a result that is re-quantised in its tile")
            op.erase()
