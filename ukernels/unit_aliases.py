"""What the aliases of bodies over units stand for: `mx_shared`, and what `quantising` and its like have for few rows.

A unit is 16 rows by 512 along K of an operand, packed as four fragments of 16x16x128 MFMA, with a lane's four scales
together. A half unit is 256 along K: its elements lie as in a unit, its scales two by two. All instances take operands
packed in the same units, or the same half ones, so that packed data fits any of them.

!lhs_vec_ty = vector<4x2x1x16xi8>    LHS fragments in a lane's registers: steps in K, units, loads, bytes
#units_m = 2 : index                 a trip count of the body: arith.constant #units_m
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from mxcomp.formats import BLOCK_SIZE, element_format
from mxcomp.layout import ACC, LHS, OPERAND_NAMES, RHS, DataTiledLayout
from mxcomp.ukernels.aliases import DYNAMIC, LANES, UNIT_PIECES, Pieces, buffer, i64_array, shaped
from mxcomp.ukernels.rings import COPIED_SCALES, LEAST_STAGES, Rings
from mxcomp.ukernels.waves import BEYOND, STEPS, Share, Waves

_COPIES_BESIDE, _READ_ROWS_BESIDE = 2, 3
"""Where two workgroups share a compute unit: copies in a row of MFMA, and rows in which the next step's RHS is read."""


@dataclass(frozen=True)
class UnitAliases:
    """The aliases for a layout over units, the element types of LHS and RHS, and waves."""

    layout: DataTiledLayout
    elements: tuple[str, str]
    waves: Waves

    def lines(self) -> Iterator[str]:
        """Their definitions."""
        for name, kind in self._types():
            yield f"!{name}_ty = {kind}"
        for name, size in self._sizes():
            yield f"#{name} = {size} : index"
        lhs, rhs = self.elements[::-1] if self.layout.lane_columns else self.elements
        mfma = f"intrinsic = {self.layout.intrinsic}, lhs_elem_type = {lhs}, rhs_elem_type = {rhs}, acc_elem_type = f32"
        yield f"#mfma = #iree_gpu.scaled_mma_layout<{mfma}>"
        if self.shares_operands:
            yield f"#stages_after_first = {self.stages - 2} : i16"
            yield f"#stages_after_next = {self.stages - 3} : i16"
            yield f"#shares_unit = {str(self.waves.beside > 1).lower()}"
            for side, name in enumerate(("lhs", "rhs")):
                yield f"#{name}_is_even = {str(self.rings.is_even(side)).lower()}"
                yield f"#{name}_scales_are_even = {str(self.rings.scales_are_even(side)).lower()}"
        else:
            yield f"#has_others = {str(self.waves.k > 1).lower()}"
            yield f"#values_sizes = [{self.share.values}]"
        lane, acc = self._lane, self._acc
        # Where operands are shared, a lane has all of its values, and the rows and columns of its wave.
        parts = [DYNAMIC if size < whole else 0 for size, whole in zip(lane[4:], acc[4:], strict=True)]
        parts = parts if self.shares_operands else [DYNAMIC] * len(parts)
        yield f"#acc_lane_offsets = {i64_array([0, 0, DYNAMIC, DYNAMIC, *parts])}"
        yield f"#acc_lane_sizes = {i64_array(lane)}"

    @property
    def units(self) -> tuple[int, int]:
        return self.layout.units or (1, 1)

    @property
    def steps(self) -> int:
        """MFMA along K of a K tile."""
        return self.layout.intrinsics_k

    @property
    def shares_operands(self) -> bool:
        """Whether waves stand side by side, and share operands in LDS; else they split K, or there is one."""
        return self.waves.m * self.waves.n > 1

    @property
    def share(self) -> Share:
        return Share(*self.units, self.waves.k)

    @property
    def rings(self) -> Rings:
        return Rings(self.units, self.steps, (self._bytes(LHS), self._bytes(RHS)), self.waves)

    @property
    def stages(self) -> int:
        """Steps in K that LDS holds, where operands go through it."""
        return self.rings.stages

    @property
    def fits(self) -> bool:
        """Whether LDS has room for the steps that are shared."""
        return self.stages >= LEAST_STAGES

    @property
    def _lane(self) -> tuple[int, ...]:
        """What a lane stores of the packed tile of the result."""
        if not self.shares_operands:
            return 1, 1, self.share.rows, self.share.columns, 1, 1, self.share.values
        *outer, _, _, inner = self._acc[4:]
        return 1, 1, *self._fragments, *outer, 1, 1, inner

    @property
    def _acc(self) -> tuple[int, ...]:
        """The packed tile of the result: units, and of each values, lanes that have them, and values in one piece."""
        return (1, 1, *(size or 1 for size in self.layout.swizzle(ACC).packed_shape))

    @property
    def acc_rank(self) -> int:
        return len(self._acc)

    def _bytes(self, operand: int) -> int:
        """Bytes of a fragment in a lane."""
        return element_format(self.elements[operand]).block_bytes

    def _sizes(self) -> Iterator[tuple[str, int]]:
        units_m, units_n = self.units
        yield from (("units_m", units_m), ("units_n", units_n), ("waves", self.waves.count))
        yield from (("threads", LANES * self.waves.count), ("steps", self.steps))
        for operand, side in ((LHS, "lhs"), (RHS, "rhs")):
            pieces = UNIT_PIECES[self._bytes(operand)]
            yield f"{side}_beyond", -(-BEYOND // (self.steps * self._bytes(operand) * LANES))
            yield f"{side}_load_pieces", pieces.count
            yield from ((f"{side}_load_lane", pieces.read), (f"{side}_load_step", _load_step(pieces)))
        if self.shares_operands:
            yield from self._sharing_sizes()
        else:
            share = self.share
            yield from (("share", share.rows * share.columns), ("share_rows", share.rows))
            yield from (("share_columns", share.columns), ("share_values", share.values))
            yield from (("shares_in_fragment", 4 // share.values), ("shares_in_row", units_n // share.columns))

    def _sharing_sizes(self) -> Iterator[tuple[str, int]]:
        """Of a body whose waves share operands in LDS: the turns of copies and reads in the rows of a step."""
        rows, columns = self._fragments
        if rows < 2 or self.stages < LEAST_STAGES:
            raise ValueError(f"{self.units} units of {self.elements} do not fit {self.waves}")
        pieces = [UNIT_PIECES[self._bytes(side)] for side in (LHS, RHS)]
        each = [-(-count * piece.count // self.waves.count) for count, piece in zip(self.units, pieces, strict=True)]
        barrier_row = self.waves.meet
        in_row = -(-sum(each) // (rows - barrier_row))
        first_read_row = max(barrier_row, rows - columns)
        if self.waves.beside > 1:  # found by replays: later reads take registers for less time
            in_row, first_read_row = max(in_row, _COPIES_BESIDE), max(barrier_row, rows - _READ_ROWS_BESIDE)
        yield from (("waves_n", self.waves.n), ("rows", rows), ("last_row", rows - 1), ("columns", columns))
        loops = min(self.waves.beside, 2)
        yield from (("loops", loops), ("last_loop", loops - 1))
        yield from (("stages", self.stages), ("stages_ahead", self.stages - 1))
        yield from (("barrier_row", barrier_row), ("copies_in_row", in_row))
        slots = self.rings.scale_slots
        yield from (("scale_unit", LANES * self.steps), ("scale_slots", slots), ("scale_step", self._scale_step))
        yield from (
            ("scale_span", self.rings.scale_span),
            ("scale_lanes", LANES // self.rings.scale_span),
            ("last_step", self.steps - 1),
        )
        yield "scale_copy_bytes", LANES * COPIED_SCALES
        yield "last_copy_row", barrier_row + (sum(each) - 1) // in_row
        yield from (("first_read_row", first_read_row), ("read_rows", rows - first_read_row))
        for side, name in enumerate(("lhs", "rhs")):
            piece, size, units = pieces[side], self._bytes(side), self.units[side]
            yield f"{name}_unit", LANES * size
            yield from ((f"{name}_copies", each[side]), (f"{name}_all_copies", units * piece.count))
            yield from ((f"{name}_copy_pieces", piece.count), (f"{name}_copy_bytes", piece.size * LANES))
            yield from ((f"{name}_copy_step", piece.step), (f"{name}_copy_lane", piece.lane))
            yield from ((f"{name}_reads", size // piece.read), (f"{name}_read_lane", piece.read))
            yield f"{name}_read_step", piece.read * LANES
            copies = self.rings.scale_copies(side)
            yield from ((f"{name}_scale_copies", -(-copies // self.waves.count)), (f"{name}_units", units))
            yield f"{name}_all_scale_copies", copies

    @property
    def _scale_step(self) -> int:
        """The step in which scales of a later K tile are loaded, where what is replaced has been read by all.

        With one place for them they were read last in the step before the first: in the second they have been used.
        """
        return 1 if self.waves.beside > 1 else min(self.rings.scale_slots, 2) - 1

    @property
    def _fragments(self) -> tuple[int, int]:
        """Fragments of the result that a wave has, along M and N."""
        return self.units[LHS] // self.waves.m, self.units[RHS] // self.waves.n

    def _types(self) -> Iterator[tuple[str, str]]:
        layout, units = self.layout, self.units
        for operand, name in enumerate(OPERAND_NAMES[:ACC]):
            is_elements = operand in (LHS, RHS)
            element = self.elements[operand] if is_elements else "f8E8M0FNU"
            taken = layout.multiplied_shape(operand, layout.packed_shape(operand, (units[operand % 2], None)))
            taken = (1, *taken[1:])
            in_bytes = (*taken[:-1], self._bytes(operand)) if is_elements else taken
            flat = (self.steps, LANES * self._bytes(operand)) if is_elements else (LANES * self.steps,)
            yield name, shaped("tensor", taken, element)
            yield f"{name}_byte", shaped("tensor", in_bytes, "i8")
            yield f"{name}_packed", buffer(in_bytes)
            yield f"{name}_buffer", buffer((units[operand % 2], None, *flat))
        for operand in (LHS, RHS):
            name, count, pieces = OPERAND_NAMES[operand], self._fragments[operand], UNIT_PIECES[self._bytes(operand)]
            yield f"{name}_load", shaped("vector", (pieces.size,), "i8")
            yield f"{name}_loads", shaped("vector", (pieces.count, pieces.size), "i8")
            yield f"{name}_bytes", shaped("vector", (self._bytes(operand),), "i8")
            yield f"{name}_fragment", shaped("vector", (BLOCK_SIZE,), self.elements[operand])
            yield f"{name}_vec", shaped("vector", (self.steps, count, pieces.count, pieces.size), "i8")
            yield f"{name}_scale_bytes", shaped("vector", (count, max(STEPS, self.steps)), "i8")
            yield f"{name}_scale_vec", shaped("vector", (count, max(STEPS, self.steps)), "f8E8M0FNU")
            if self.shares_operands:
                yield from self._sharing_types(operand)
        yield "lane_scales", shaped("vector", (self.steps,), "i8")
        lane = self._lane
        yield "acc", shaped("tensor", self._acc, "f32")
        yield "acc_lane", shaped("tensor", lane, "f32")
        yield "acc_lane_vec", shaped("vector", lane, "f32")
        yield "acc_vec", shaped("vector", (*self._fragments, self.layout.shape.acc_inner), "f32")
        if not self.shares_operands:
            yield "parts", local((self.waves.k, prod(units), LANES, 4), "f32")
            yield "values", shaped("vector", (self.share.values,), "f32")
            yield "sum", shaped("vector", (self.share.rows * self.share.columns, self.share.values), "f32")

    def _sharing_types(self, operand: int) -> Iterator[tuple[str, str]]:
        """Of LHS or RHS where waves share it in LDS."""
        name, size = OPERAND_NAMES[operand], self._bytes(operand)
        pieces = UNIT_PIECES[size]
        reads = (size // pieces.read, pieces.read)
        yield f"{name}_ring", local((self.stages, self.rings.stage_bytes(operand)), "i8")
        yield f"{name}_scale_tiles", local((self.rings.scale_slots, self.rings.scale_bytes(operand)), "i8")
        yield f"{name}_copy", shaped("vector", (pieces.size,), "i8")
        yield f"{name}_read", shaped("vector", (pieces.read,), "i8")
        yield f"{name}_read_vec", shaped("vector", reads, "i8")
        yield f"{name}_columns", shaped("vector", (self._fragments[RHS], *reads), "i8")


def _load_step(pieces: Pieces) -> int:
    """From one load of a lane into registers to its next: inside of what lies together, or half of a fragment on."""
    return pieces.step if pieces.read == pieces.size else pieces.size


def local(shape: Sequence[int], element: str) -> str:
    """A buffer in LDS."""
    return f"{shaped('memref', shape, element)[:-1]}, #gpu.address_space<workgroup>>"
