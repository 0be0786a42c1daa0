"""Packs operands of scaled matmuls, each once, however many matmuls use it.

Stored operands are packed by `stored_operand`, those quantised in the program by `quantised_operand`; parameters may be
packed already (`parameter_operand`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from iree.compiler import ir

from mxcomp.layout import ACC, LHS, LHS_SCALE, OPERAND_NAMES, RHS, RHS_SCALE, DataTiledLayout
from mxcomp.layout.problem import flipped
from mxcomp.matching import activations, blocks, quantiser
from mxcomp.matching.activations import Activations
from mxcomp.matching.blocks import Blocks
from mxcomp.matching.quantiser import Producer
from mxcomp.matching.storage import source_and_map, storage
from mxcomp.mlir import build, notes
from mxcomp.options import Options
from mxcomp.packing import joined_operand, normalised_operand, parameter_operand, quantised_operand, stored_operand
from mxcomp.packing.runtime_sizes import RuntimeSizes


@dataclass(frozen=True)
class Packing:
    """The parameters by which operands of a matmul are packed.

    Attributes:
        index: Its number.
        layout: Where tiles lie.
        transposed: RHS is multiplied in the place of LHS.
        rows: The inner tiles of rows that LHS is padded to, besides what the layout says, and up to how many rows.
    """

    index: int | None
    layout: DataTiledLayout
    transposed: bool = False
    rows: tuple[tuple[int, int | None], ...] = ()

    def name(self, index: int) -> str:
        """Returns the name of an operand as it is multiplied."""
        return (flipped(OPERAND_NAMES) if self.transposed else OPERAND_NAMES)[index]


def part_location(index: int | None, name: str, *ops: ir.Operation) -> ir.Location:
    """Returns a location that names a part of a matmul by its number, computed for `ops`. The report finds dispatches
    by it."""
    below = ops[0].location if len(ops) == 1 else ir.Location.fused([op.location for op in ops])
    return ir.Location.name(f"mxcomp.{index}.{name}", childLoc=below)


class Packer:
    """Packs operands, and caches them by their sources and packing."""

    def __init__(self, options: Options) -> None:
        self._regions = not options.reference
        self._parameters = options.packed_parameters
        self._packed: dict[Hashable, tuple[ir.Value, ...]] = {}

    def operands(
        self,
        op: ir.Operation,
        sources: list[ir.Value],
        packing: Packing,
        sizes: RuntimeSizes,
        wanted: Sequence[int] = range(ACC),
    ) -> list[ir.Value]:
        """Returns the packed operands of `op` that are wanted, at the insertion point.

        `sources` and `sizes` as they are multiplied.
        """
        packed = dict[int, ir.Value]()
        for index in wanted:
            if index in packed:
                continue
            computed = self._computed(index, sources)
            together = (index,) if computed is None else (index, index + LHS_SCALE)
            key = (*_key(op, together, sources, packing.layout), packing.rows if index in (LHS, LHS_SCALE) else ())
            if key not in self._packed:
                name = f"{'pack' if computed is None else 'quantise'}_{packing.name(index)}"
                with part_location(packing.index, name, op):
                    if computed is None:
                        self._packed[key] = (self._stored(op, index, sources[index], packing, sizes),)
                    else:
                        self._packed[key] = _quantised(index, computed, sources, packing, sizes)
            packed |= zip(together, self._packed[key], strict=True)
        return [packed[index] for index in wanted]

    def provide(
        self,
        op: ir.Operation,
        together: tuple[int, ...],
        sources: Sequence[ir.Value],
        packing: Packing,
        packed: tuple[ir.Value, ...],
    ) -> None:
        """Sets packed operands of `op` that exist already."""
        self._packed[*_key(op, together, sources, packing.layout), packing.rows] = packed

    def _computed(self, index: int, sources: list[ir.Value]) -> _Computed | None:
        """Returns what computes an operand and its scales, which are then packed together; None if they are stored.

        Without regions, which is to check packing, operands are packed as they are computed elsewhere.
        """
        scale = index + LHS_SCALE
        return _computed(sources[index], sources[scale]) if self._regions and scale < ACC else None

    def _stored(
        self, op: ir.Operation, index: int, source: ir.Value, packing: Packing, sizes: RuntimeSizes
    ) -> ir.Value:
        """Returns an operand that is in memory: weights of several matmuls are packed each by itself, parameters may be
        packed already."""
        layout, parts, own = packing.layout, list[ir.Value](), packing.layout
        if self._regions and index in (RHS, RHS_SCALE):
            parts, own = joined_operand.parts(source, layout)
        if parts:
            alone = replace(packing, layout=own)
            return joined_operand.packed([self._stored(op, index, part, alone, sizes) for part in parts], layout)
        ready = parameter_operand.load_packed(source, layout, index) if self._parameters else None
        if isinstance(ready, str):
            notes.note(op, packing.index or 0, f"{packing.name(index)} is not read packed: {ready}")
        elif ready is not None:
            return ready
        return stored_operand.pack(source, layout, index, sizes.of(index), self._regions)


def _quantised(
    index: int, computed: _Computed, sources: list[ir.Value], packing: Packing, sizes: RuntimeSizes
) -> tuple[ir.Value, ...]:
    """Returns an operand and its scales, by the kernel of what makes them if that can pack."""
    producer, source, of = computed
    if index == LHS and of is None:
        found = activations.find(sources[LHS], sources[LHS_SCALE], sizes.problem, True)
        if isinstance(found, Activations) and normalised_operand.fits(found, packing.layout, sizes):
            return normalised_operand.pack(found, packing.layout, sizes, packing.rows)
    return quantised_operand.pack(producer, packing.layout, index, source, sizes.of(index), of)


_Computed: TypeAlias = tuple[Producer, ir.Value, Blocks | None]
"""The computation of elements and scales, the elements that it computes, and, of a batch, the blocks of their rows."""


def _computed(elements: ir.Value, scales: ir.Value) -> _Computed | None:
    """Returns the computation of elements and scales, if they are not stored."""
    of = blocks.find(elements, scales)
    matrix = (elements, scales) if of is None else (of.elements, of.scales)
    producer = quantiser.find(*matrix)
    return None if producer is None else (producer, matrix[0], of)


def _key(
    op: ir.Operation, together: tuple[int, ...], sources: Sequence[ir.Value], layout: DataTiledLayout
) -> tuple[Hashable, ...]:
    return op.parent, op.block, *(_identity(sources[index], index, layout) for index in together)


def _identity(source: ir.Value, index: int, layout: DataTiledLayout) -> Hashable:
    """Returns a cache key: the source of an operand's bytes, how they are accessed, and the packed layout.

    Bytes and the type that they are source_and_map as say where elements lie, unless several sizes are dynamic.
    """
    element = str(ir.RankedTensorType(source.type).element_type)
    view, access_map = source_and_map(source)
    one_view = build.static_sizes(view).count(None) <= 1
    where = (storage(source), str(view.type)) if one_view else view
    return where, str(source.type), str(access_map), layout.packing(index, element if index < LHS_SCALE else None)
