"""What plans over packed operands have in common: entries that say where tiles lie, and what is built of them.

    %p = flow.dispatch.region { … pack … }
    %r = flow.dispatch.region {
      iree_codegen.inner_tiled ins(%p, …) {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_…", tensor>}
      … fused consumers …
      linalg.transpose, tensor.collapse_shape, tensor.extract_slice
    }

A plan that differs in a step has a method of its own for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp.layout import ACC, LHS, LHS_SCALE, RHS, DataTiledLayout, layout_entries
from mxcomp.layout.problem import Problem, flipped
from mxcomp.matching import activations, gathers
from mxcomp.matching.activations import Activations
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.decision import DATA_TILED
from mxcomp.mlir import build, notes
from mxcomp.options import Options
from mxcomp.packing import expert_tiles, reference_tiles, result_tiles, stored_operand
from mxcomp.packing.packer import Packing, part_location
from mxcomp.packing.result_tiles import EPILOGUE, SKIPS, UNROLL, ResultTiles
from mxcomp.packing.runtime_sizes import RuntimeSizes, TileCounts, guarded
from mxcomp.plans.building import Building, Matmul
from mxcomp.plans.plan import Launched, Plan
from mxcomp.registry import Registry
from mxcomp.selection import times


@dataclass(frozen=True)
class Tiled(Launched):
    """Entries that say where tiles lie.

    Attributes:
        layout: Where the tiles of operands lie.
        transposed: RHS is multiplied in the place of LHS; `layout` and limits are those of N × M.
        gathered: Operands that the kernel reads through expert ids (`mxcomp.matching.gathers`).
        skips: Where these are negative it computes nothing, for nothing reads its result there.
    """

    plan: str = DATA_TILED
    layout: DataTiledLayout = field(default_factory=DataTiledLayout)
    transposed: bool = False
    gathered: tuple[int, ...] = ()
    skips: bool = False

    operands: ClassVar[str] = DATA_TILED
    loops_in_front: ClassVar[bool] = False
    """Whether its dispatch begins with loops, of which IREE drops those that run once."""

    def bounded(self, problem: Problem, options: Options, padding: tuple[int, int, int] | None = None) -> Plan:
        return super().bounded(problem, options, padding or self.layout.workgroup_tile)

    def cost(self, problem: Problem, result_bytes: int, registry: Registry) -> float | None:
        ukernel = None if self.ukernel is None else registry[self.ukernel]
        known = None if ukernel is None else times.of(ukernel)
        if ukernel is None or known is None:
            return None
        sizes = {axis: size or 0 for axis, size in problem.sizes.items()}
        return times.modelled(known, ukernel.tile, problem, sizes, result_bytes, order=self.order)

    def reported(self) -> dict[str, Any]:
        return super().reported() | {"layout": layout_entries(self.layout), "transposed": self.transposed}

    @property
    def packs(self) -> Sequence[int]:
        """Operands that are packed."""
        return range(ACC)

    @property
    def packing(self) -> Packing:
        """How operands are packed, whose layout knows nothing of results."""
        return Packing(self.index, replace(self.layout, lane_columns=False), self.transposed)

    @property
    def marks(self) -> tuple[str, ...]:
        return (SKIPS,) * self.skips

    def place(self, operand: int) -> int:
        """As which operand one of the matmul is multiplied."""
        return flipped(range(ACC))[operand] if self.transposed else operand

    # What is built, in order.

    def build(self, op: ir.Operation, building: Building) -> None:
        plan, matmul = self.prepared(op, building)
        plan.finish(matmul, building)

    def prepared(self, op: ir.Operation, building: Building) -> tuple[Tiled, Matmul]:
        """What can be built after all that fusion has made around it, and the matmul with its operands packed."""
        problem, epilogue, unset = problem_of(op), None, _user(op)
        if EPILOGUE in unset.attributes:
            epilogue, unset = unset, _user(unset)
        sources = [operand.owner.operation.operands[0] for operand in op.operands]
        through = {self.place(index): gathers.find(sources[index]) for index in self.gathered}
        read_through = {index: gather for index, gather in through.items() if gather is not None}
        if self.transposed:
            problem, sources = problem.flipped, list(flipped(sources))
        with op.context, op.location, ir.InsertionPoint(op):
            sizes = guarded(sources, problem, self.limits)
            plan, found = self.settled(op, sources, problem, building)
            sizes = plan.padded(sizes)
            stored = [
                read_through[i].stored(source) if i in read_through else source for i, source in enumerate(sources)
            ]
            packed = building.packer.operands(op, stored, plan.packing, sizes, plan.packs)
            ids = {index: gather.ids for index, gather in read_through.items()}
            building.sources += [*sources, *stored]
            return plan, plan.taking(Matmul(op, unset, epilogue, sizes, packed, ids, found), stored)

    def settled(
        self, op: ir.Operation, sources: list[ir.Value], problem: Problem, building: Building
    ) -> tuple[Tiled, Activations | None]:
        """The plan that is built, and what its kernel quantises; if it is not this one, why is noted."""
        if building.options.reference or self.apart == self:
            return self.apart, None
        found = activations.find(sources[LHS], sources[LHS_SCALE], problem)
        if not isinstance(found, str):
            narrowed = self.of_bits(found.bits)
            if narrowed not in (self, self.apart):
                notes.note(op, self.index or 0, f"fused, activations are {found.type}: {narrowed.kernel}")
            if narrowed != self.apart:
                return narrowed, found
            found = f"none of its size takes {found.type}"
        notes.note(op, self.index or 0, f"LHS is not quantised by the ukernel: {found}")
        return self.apart, None

    @property
    def apart(self) -> Tiled:
        """The plan with LHS packed where its kernel, or that of a version, would quantise it."""
        return self

    def of_bits(self, bits: int) -> Tiled:
        """The plan for activations of so many bits, which fusion may have changed."""
        return self

    def padded(self, sizes: RuntimeSizes) -> RuntimeSizes:
        """The sizes, with what rows are padded to where that is not the layout's to say."""
        return sizes

    def taking(self, matmul: Matmul, stored: list[ir.Value]) -> Matmul:
        """The matmul with operands as the kernel takes them, also those that are not packed."""
        return matmul

    def finish(self, matmul: Matmul, building: Building) -> None:
        """Puts dispatches in the place of a matmul."""
        with matmul.op.context, part_location(self.index, "matmul", matmul.op), ir.InsertionPoint(matmul.unset):
            result = self.in_place(matmul) if building.options.reference else self.result(matmul)
        matmul.unset.results[0].replace_all_uses_with(result)
        matmul.erase()

    def in_place(self, matmul: Matmul) -> ir.Value:
        """The result by the mathematical meaning of tiles, not in a dispatch of its own: for other targets."""
        tiles, counts = self.tiles(matmul), TileCounts(matmul.sizes, self.layout)
        acc = tiles.zeros(counts.of(ACC))
        tiled = reference_tiles.inner_tiles(matmul.packed, acc, matmul.problem, self.layout, counts)
        tiled = self.finished(matmul, tiled, counts)
        return self.cast(matmul, result_tiles.unpack(tiled, tiles, counts.of(ACC), matmul.sizes.rows_and_columns))

    def result(self, matmul: Matmul) -> ir.Value:
        """The result of dispatches of its own: [(batch,) M, N]."""
        return self.cast(matmul, self.dispatch(matmul))

    def dispatch(self, matmul: Matmul) -> ir.Value:
        """Of inner tiles, epilogue and unpacking: [(batch,) M, N], sizes perhaps hidden."""
        limits = self.hidden(matmul)
        tiles, known = self.tiles(matmul), [limit for limit in limits if limit is not None]
        with build.dispatch_region([tiles.type(matmul.element, limits)], known) as region:
            counts = self.counts(matmul)
            tiled = self.accumulated(matmul, counts, UNROLL if matmul.epilogue is not None else {})
            tiled = self.finished(matmul, tiled, counts)
            region.returned = [result_tiles.unpack(tiled, tiles, counts.of(ACC), limits)]
        return region.results[0]

    def tiles(self, matmul: Matmul) -> ResultTiles:
        """The shape of the result in tiles."""
        at = len(matmul.problem.batch)
        columns = None if self.layout.units is None else build.static_sizes(matmul.packed[RHS])[at]
        return ResultTiles(matmul.problem, self.layout, self.transposed, columns)

    def counts(self, matmul: Matmul) -> TileCounts:
        """How many tiles there are in its dispatch."""
        return TileCounts(matmul.sizes, self.layout)

    def hidden(self, matmul: Matmul) -> list[ir.Value | None]:
        """M and N of the result where they are values."""
        return result_tiles.hidden_limits(self.tiles(matmul), matmul.sizes, self.loops_in_front)

    def accumulated(self, matmul: Matmul, counts: TileCounts, llvm_func_attrs: dict[str, str]) -> ir.Value:
        """Accumulator tiles of the hardware, in the region of a dispatch."""
        elements = self.elements(matmul, counts)
        for index, ids in matmul.ids.items():
            elements[index] = expert_tiles.gathered(elements[index], ids)
        acc = self.tiles(matmul).zeros(counts.of(ACC))
        return result_tiles.accumulate(elements, acc, matmul.problem, self.layout, self, llvm_func_attrs)

    def elements(self, matmul: Matmul, counts: TileCounts) -> list[ir.Value]:
        """Operands as elements of MX types, in the region of a dispatch."""
        each = enumerate(matmul.packed)
        return [stored_operand.elements(value, matmul.problem.types[i], counts.of(i)) for i, value in each]

    def finished(
        self, matmul: Matmul, tiled: ir.Value, counts: TileCounts, beside: Mapping[ir.Value, ir.Value] | None = None
    ) -> ir.Value:
        """Accumulator tiles behind the epilogue, if there is one, which may read tiles `beside` them."""
        epilogue, tiles = matmul.epilogue, self.tiles(matmul)
        if epilogue is None:
            return tiled
        return result_tiles.with_epilogue(tiled, epilogue, tiles, matmul.sizes, counts.of(ACC), beside or {})

    def cast(self, matmul: Matmul, value: ir.Value) -> ir.Value:
        """A result with sizes that were hidden from IREE, as its users know it."""
        plain = self.tiles(matmul).type(matmul.element)
        return value if value.type == plain else tensor.CastOp(plain, value).result


def _user(op: ir.Operation) -> ir.Operation:
    """The only operation that uses a result."""
    return next(iter(op.results[0].uses)).owner.operation
