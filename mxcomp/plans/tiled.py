"""The base of plans over packed operands: entries about the layout of tiles, and the steps of building them.

    %p = flow.dispatch.region { … pack … }
    %r = flow.dispatch.region {
      iree_codegen.inner_tiled ins(%p, …) {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_…", tensor>}
      … fused consumers …
      linalg.transpose, tensor.collapse_shape, tensor.extract_slice
    }

Plans override the methods of the steps in which they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    """A plan with entries about the layout of tiles.

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
    reads_far: ClassVar[bool] = False
    """Whether its kernel reads what is gathered where that exceeds a buffer, if it is stored packed."""
    loops_in_front: ClassVar[bool] = False
    """Whether its dispatch begins with loops, of which IREE drops those of a single iteration."""

    def bounded(self, problem: Problem, options: Options, padding: tuple[int, int, int] | None = None) -> Plan:
        return super().bounded(problem, options, padding or self.layout.workgroup_tile)

    def cost(self, problem: Problem, result_bytes: int, registry: Registry) -> float:
        ukernel = None if self.ukernel is None else registry[self.ukernel]
        known = None if ukernel is None else times.of(ukernel)
        if ukernel is None or known is None:
            return times.UNKNOWN
        return times.modelled(known, ukernel.tile, times.Matmul(problem, result_bytes), self.order)

    def reported(self) -> dict[str, Any]:
        return super().reported() | {"layout": layout_entries(self.layout), "transposed": self.transposed}

    @property
    def packs(self) -> Sequence[int]:
        """The operands that are packed."""
        return range(ACC)

    @property
    def packing(self) -> Packing:
        """The packing of operands, whose layout is independent of results."""
        return Packing(self.index, replace(self.layout, lane_columns=False), self.transposed)

    @property
    def marks(self) -> tuple[str, ...]:
        return (SKIPS,) * self.skips

    def multiplied_as(self, operand: int) -> int:
        """Returns the operand as which one of the matmul is multiplied."""
        return flipped(range(ACC))[operand] if self.transposed else operand

    # The steps of building, in order.

    def build(self, op: ir.Operation, building: Building) -> None:
        plan, matmul = self.prepared(op, building)
        plan.finish(matmul, building)

    def prepared(self, op: ir.Operation, building: Building) -> tuple[Tiled, Matmul]:
        """Returns the plan that can still be built after fusions around it, and the matmul with its operands packed."""
        problem, epilogue, unset = problem_of(op), None, _user(op)
        if EPILOGUE in unset.attributes:
            epilogue, unset = unset, _user(unset)
        sources = [operand.owner.operation.operands[0] for operand in op.operands]
        through = {self.multiplied_as(index): gathers.find(sources[index]) for index in self.gathered}
        read_through = {index: gather for index, gather in through.items() if gather is not None}
        if self.transposed:
            problem, sources = problem.flipped, list(flipped(sources))
        with op.context, op.location, ir.InsertionPoint(op):
            sizes = guarded(sources, problem, self.limits)
            plan, found = self.resolved(op, sources, problem, building)
            sizes = plan.padded(sizes)
            stored = [
                read_through[i].stored(source) if i in read_through else source for i, source in enumerate(sources)
            ]
            packed = building.packer.operands(op, stored, plan.packing, sizes, plan.packs)
            ids = {index: gather.ids for index, gather in read_through.items()}
            building.sources += [*sources, *stored]
            target = building.options.target
            return plan, plan.taking(Matmul(target, op, unset, epilogue, sizes, packed, ids, found), stored)

    def resolved(
        self, op: ir.Operation, sources: list[ir.Value], problem: Problem, building: Building
    ) -> tuple[Tiled, Activations | None]:
        """Returns the plan that is built, and the activations that its kernel quantises. If it is another one, notes
        why."""
        if building.options.reference or self.unfused == self:
            return self.unfused, None
        found = activations.find(sources[LHS], sources[LHS_SCALE], problem)
        if not isinstance(found, str):
            narrowed = self.of_bits(found.bits)
            if narrowed not in (self, self.unfused):
                notes.note(op, self.index or 0, f"fused, activations are {found.type}: {narrowed.kernel}")
            if narrowed != self.unfused:
                return narrowed, found
            found = f"none of its size takes {found.type}"
        notes.note(op, self.index or 0, f"LHS is not quantised by the ukernel: {found}")
        return self.unfused, None

    @property
    def unfused(self) -> Tiled:
        """The plan with LHS packed, instead of quantised by its kernel or that of a version."""
        return self

    def of_bits(self, bits: int) -> Tiled:
        """Returns the plan for activations of so many bits, which fusion may have changed."""
        return self

    def padded(self, sizes: RuntimeSizes) -> RuntimeSizes:
        """Returns the sizes, with the padding of rows where the layout does not determine it."""
        return sizes

    def taking(self, matmul: Matmul, stored: list[ir.Value]) -> Matmul:
        """Returns the matmul with operands as the kernel takes them, including unpacked ones."""
        return matmul

    def finish(self, matmul: Matmul, building: Building) -> None:
        """Replaces a matmul by dispatches."""
        with matmul.op.context, part_location(self.index, "matmul", matmul.op), ir.InsertionPoint(matmul.unset):
            result = self.in_place(matmul) if building.options.reference else self.result(matmul)
        matmul.unset.results[0].replace_all_uses_with(result)
        matmul.erase()

    def in_place(self, matmul: Matmul) -> ir.Value:
        """Returns the result by the mathematical definition of tiles, not in a separate dispatch: for other targets."""
        tiles, counts = self.tiles(matmul), TileCounts(matmul.sizes, self.layout)
        acc = tiles.zeros(counts.of(ACC))
        tiled = reference_tiles.inner_tiles(matmul.packed, acc, matmul.problem, self.layout, counts)
        tiled = self.finished(matmul, tiled, counts)
        return self.cast(matmul, result_tiles.unpack(tiled, tiles, counts.of(ACC), matmul.sizes.rows_and_columns))

    def result(self, matmul: Matmul) -> ir.Value:
        """Returns the result of separate dispatches: [(batch,) M, N]."""
        return self.cast(matmul, self.dispatch(matmul))

    def dispatch(self, matmul: Matmul, compute: Callable[[TileCounts], ir.Value] | None = None) -> ir.Value:
        """Returns the dispatch of inner tiles, epilogue and unpacking: [(batch,) M, N], sizes perhaps hidden.

        `compute` returns tiles after the epilogue, where they are not `computed`.
        """
        limits = self.hidden(matmul)
        tiles, known = self.tiles(matmul), [limit for limit in limits if limit is not None]
        with build.dispatch_region([tiles.type(matmul.element, limits)], known) as region:
            counts = self.counts(matmul)
            tiled = self.computed(matmul, counts) if compute is None else compute(counts)
            region.returned = [result_tiles.unpack(tiled, tiles, counts.of(ACC), limits)]
        return region.results[0]

    def computed(self, matmul: Matmul, counts: TileCounts) -> ir.Value:
        """Returns accumulator tiles after the epilogue."""
        tiled = self.accumulated(matmul, counts, UNROLL if matmul.epilogue is not None else {})
        return self.finished(matmul, tiled, counts)

    def tiles(self, matmul: Matmul) -> ResultTiles:
        """Returns the shape of the result in tiles."""
        at = len(matmul.problem.batch)
        columns = None if self.layout.inner_tiles is None else build.static_sizes(matmul.packed[RHS])[at]
        return ResultTiles(matmul.problem, self.layout, self.transposed, columns)

    def counts(self, matmul: Matmul) -> TileCounts:
        """Returns the numbers of tiles in its dispatch."""
        return TileCounts(matmul.sizes, self.layout)

    def hidden(self, matmul: Matmul) -> list[ir.Value | None]:
        """Returns M and N of the result where they are values."""
        return result_tiles.hidden_limits(self.tiles(matmul), matmul.sizes, self.loops_in_front)

    def accumulated(self, matmul: Matmul, counts: TileCounts, llvm_func_attrs: dict[str, str]) -> ir.Value:
        """Returns accumulator tiles of the hardware, in the region of a dispatch."""
        elements = self.elements(matmul, counts)
        for index, ids in matmul.ids.items():
            elements[index] = expert_tiles.gathered(elements[index], ids)
        acc = self.tiles(matmul).zeros(counts.of(ACC))
        return result_tiles.accumulate(elements, acc, matmul.problem, self.layout, self, llvm_func_attrs)

    def elements(self, matmul: Matmul, counts: TileCounts) -> list[ir.Value]:
        """Returns the operands as elements of MX types, in the region of a dispatch."""
        each = enumerate(matmul.packed)
        return [stored_operand.elements(value, matmul.problem.types[i], counts.of(i)) for i, value in each]

    def finished(
        self, matmul: Matmul, tiled: ir.Value, counts: TileCounts, others: Mapping[ir.Value, ir.Value] | None = None
    ) -> ir.Value:
        """Returns accumulator tiles after the epilogue, if there is one, which may read tiles `others`."""
        epilogue, tiles = matmul.epilogue, self.tiles(matmul)
        if epilogue is None:
            return tiled
        return result_tiles.with_epilogue(tiled, epilogue, tiles, matmul.sizes, counts.of(ACC), others or {})

    def cast(self, matmul: Matmul, value: ir.Value) -> ir.Value:
        """Returns a result whose sizes were hidden from IREE, with the type that its users expect."""
        plain = self.tiles(matmul).type(matmul.element)
        return value if value.type == plain else tensor.CastOp(plain, value).result


def _user(op: ir.Operation) -> ir.Operation:
    """Returns the only operation that uses a result."""
    return next(iter(op.results[0].uses)).owner.operation
