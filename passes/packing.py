"""The packed operands of scaled matmuls, each packed once, however many matmuls take it.

Stored operands are packed by `pack`, those that are quantised on the way by `quantise`; `parameters` may be packed.
"""

from __future__ import annotations

from collections.abc import Hashable

from iree.compiler import ir

from mxcomp import build
from mxcomp.layout import ACC, LHS_SCALE, OPERAND_NAMES, DataTiledLayout, TileSwizzle
from mxcomp.options import Options
from mxcomp.passes import pack, parameters, producers, quantise
from mxcomp.passes.extents import Extents
from mxcomp.passes.stored import GATHER, is_gathered, storage


def part_location(entries: dict, name: str, op: ir.Operation) -> ir.Location:
    """A location that names the part of a matmul; the report finds dispatches by it."""
    return ir.Location.name(f"mxcomp.{entries['index']}.{name}", childLoc=op.location)


class Packer:
    """Packs operands; remembers what they were packed from, and how."""

    def __init__(self, options: Options) -> None:
        self._regions = not options.reference
        self._parameters = options.packed_parameters
        self._packed: dict[Hashable, tuple[ir.Value, ...]] = {}

    def operands(
        self, op: ir.Operation, sources: list[ir.Value], layout: DataTiledLayout, extents: Extents, entries: dict
    ) -> list[ir.Value]:
        """The four packed operands of `op`, at the insertion point."""
        packed: dict[int, ir.Value] = {}
        for index in range(ACC):
            if index in packed:
                continue
            together = self._together(index, sources)
            key = (op.parent, op.block, *(_identity(sources[i], _swizzle(layout, i, sources)) for i in together))
            if key not in self._packed:
                self._packed[key] = self._pack(op, together, sources, layout, extents, entries)
            packed |= zip(together, self._packed[key], strict=True)
        return [packed[index] for index in range(ACC)]

    def _together(self, index: int, sources: list[ir.Value]) -> tuple[int, ...]:
        """Elements and scales, if both are computed on the way; what is stored is packed by itself."""
        scale = index + LHS_SCALE
        computed = scale < ACC and producers.find(sources[index], sources[scale]) is not None
        return (index, scale) if computed else (index,)

    def _pack(
        self,
        op: ir.Operation,
        together: tuple[int, ...],
        sources: list[ir.Value],
        layout: DataTiledLayout,
        extents: Extents,
        entries: dict,
    ) -> tuple[ir.Value, ...]:
        index, *scale = together
        dynamic = extents.of(index)
        with part_location(entries, f"{'quantise' if scale else 'pack'}_{OPERAND_NAMES[index]}", op):
            if not scale:
                ready = parameters.load_packed(sources[index], layout, index) if self._parameters else None
                return (ready or pack.pack(sources[index], layout, index, dynamic, self._regions),)
            producer = producers.find(sources[index], sources[scale[0]])
            assert producer is not None
            return quantise.pack(producer, layout, index, sources[index], dynamic.rows, self._regions)


def _swizzle(layout: DataTiledLayout, index: int, sources: list[ir.Value]) -> TileSwizzle:
    element = str(ir.RankedTensorType(sources[index].type).element_type)
    return layout.packing(index, element if index < LHS_SCALE else None)


def _identity(source: ir.Value, swizzle: TileSwizzle) -> Hashable:
    """What a packed operand depends on: where its bytes are, how they are taken, and where they go."""
    gather = build.producer(source) if is_gathered(source) else None
    places = str(gather.attributes[GATHER]) if gather is not None else ""
    return storage(source), str(source.type), places, swizzle
