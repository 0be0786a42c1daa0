"""The base of plans that compute two matmuls of one LHS in one dispatch.

Whether that can be is known when consumers are fused: those behind one matmul must be all that reads the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

from iree.compiler import ir

from mxcomp.layout import LHS, LHS_SCALE, RHS, RHS_SCALE
from mxcomp.mlir import graph, notes
from mxcomp.mlir.linalg_ops import indexing_maps
from mxcomp.packing.packer import part_location
from mxcomp.packing.result_tiles import EPILOGUE
from mxcomp.packing.runtime_sizes import TileCounts
from mxcomp.plans.building import Building, Matmul
from mxcomp.plans.plan import Plan, Proposal
from mxcomp.plans.tiled import Tiled


@dataclass(frozen=True)
class Paired(Tiled):
    """A plan of either of two matmuls: `partner` is the index of the other one, `instead` the plan if it cannot be."""

    partner: int = -1
    instead: Plan = field(default_factory=Plan)

    nested: ClassVar[tuple[str, ...]] = ("instead",)

    def build_instead(self, op: ir.Operation, building: Building) -> None:
        """Builds the plan of its own that a matmul would have."""
        plan = replace(self.instead, index=self.index)
        building.plans[self.index or 0] = op, plan
        plan.build(op, building)


@dataclass(frozen=True)
class Joint(Paired):
    """A plan of either of two matmuls in one dispatch."""

    @property
    def apart(self) -> Tiled:
        """The plan of each if they cannot be in one dispatch after all."""
        found = replace(self.instead, index=self.index)
        assert isinstance(found, Tiled)
        return found

    @property
    def joint_kernel(self) -> str:
        """The name of the kernel of both, or of those by ranges of rows."""
        return ", ".join(each.kernel or "" for _, each in self.by_rows or [(None, self)])

    def of_both(self, matmul: Matmul, other: Matmul) -> Sequence[ir.Value]:
        """Returns accumulator tiles of both, in the region of a dispatch."""
        raise NotImplementedError

    def replacement(self, pair: Pair, joined: ir.Value, building: Building) -> ir.Value:
        """Returns what takes the place of the result of `pair`, whose epilogue reads `joined` of the other one."""
        return self.together(pair, joined)

    def together(self, pair: Pair, joined: ir.Value) -> ir.Value:
        """Returns one dispatch of both; the epilogue of the first reads `joined` of the other."""
        matmul, another, other = pair

        def compute(counts: TileCounts) -> ir.Value:
            tiled, other_tiles = self.of_both(matmul, other)
            return self.finished(matmul, tiled, counts, {joined: another.finished(other, other_tiles, counts)})

        return self.cast(matmul, self.dispatch(matmul, compute))

    @classmethod
    def slower(cls, found: Proposal) -> str:
        assert isinstance(found.plan, Joint)
        return (
            f"with matmul {found.plan.partner} in one dispatch, both would take {found.us:.1f} µs, modelled, "
            f"apart {found.instead_us:.1f}"
        )

    def build(self, op: ir.Operation, building: Building) -> None:
        """Builds both when the second one is reached, if they are to be in one dispatch."""
        index = self.index or 0
        pair = None if building.options.reference else joined_in(index, self, building)
        if pair is None:
            building.plans.pop(index, None)
            plan, matmul = self.apart.prepared(op, building)
            if plan == self.apart and not building.options.reference:
                reason = f"not in one dispatch with matmul {self.partner}: what is fused behind does not read both"
                notes.note(op, index, reason)
            plan.finish(matmul, building)
            return
        building.waiting[index] = self.prepared(op, building)
        if self.partner in building.waiting:
            first, joined = pair
            matmuls = building.waiting.pop(first), building.waiting.pop(index + self.partner - first)
            _finish(*matmuls, joined, building)


def operands(matmul: Matmul, other: Matmul) -> list[ir.Value]:
    """Returns elements and scales of the LHS of both, and of the RHS of each."""
    each_rhs = [of.packed[index] for of in (matmul, other) for index in (RHS, RHS_SCALE)]
    return [matmul.packed[LHS], matmul.packed[LHS_SCALE], *each_rhs]


def joined_in(index: int, plan: Joint, building: Building) -> tuple[int, ir.Value] | None:
    """Returns the matmul of a pair into which consumers are fused, and the other's result that they read."""
    op, (other, partner) = building.plans[index][0], building.plans.get(plan.partner, (None, None))
    if type(partner) is not type(plan) or (partner.joint_kernel, partner.partner) != (plan.joint_kernel, index):
        return None
    for first, ops in ((index, (op, other)), (plan.partner, (other, op))):
        if (joined := _joined_result(*ops)) is not None:
            return first, joined
    return None


def _joined_result(op: ir.Operation, other: ir.Operation) -> ir.Value | None:
    """Returns the result of `other` if its only reader is the epilogue of `op`, at the same indices."""
    behind, result = graph.only_user(op), graph.only_user(other)
    if result is not None and EPILOGUE in result.attributes:
        result = graph.only_user(result)
    if behind is None or result is None or EPILOGUE not in behind.attributes:
        return None
    *maps, identity = indexing_maps(behind) or []
    value = result.results[0]
    uses = [(use.owner.operation, use.operand_number) for use in value.uses]
    if not uses or any(user != behind or maps[position] != identity for user, position in uses):
        return None
    return value


def _finish(first: tuple[Tiled, Matmul], second: tuple[Tiled, Matmul], joined: ir.Value, building: Building) -> None:
    """Builds one dispatch for two matmuls; or one for each, if one of them cannot be computed so after all."""
    (plan, matmul), (another, other) = first, second
    if not (isinstance(plan, Joint) and isinstance(another, Joint)):
        for each, of in (second, first):
            each.finish(of, building)
        return
    op = matmul.op
    with op.context, part_location(plan.index, "matmul", op, other.op), ir.InsertionPoint(matmul.unset):
        result = plan.replacement((matmul, another, other), joined, building)
        notes.drop(op, another.index or 0)  # its consumers are fused, into the first
    matmul.unset.results[0].replace_all_uses_with(result)
    matmul.erase()
    other.erase()


Pair: TypeAlias = tuple[Matmul, Joint, Matmul]
"""A matmul with an epilogue that reads another one's result, and that one and its plan."""
