"""Parameters of the kernel of attention of MX operands (`attention_mx.py`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

from iree.compiler import ir

from mxcomp.formats import E8M0, element_format
from mxcomp.layout.inner_tiles import BLOCK, LANES
from mxcomp.layout.order import HeadOrder
from mxcomp.mlir import build
from mxcomp.target import Target
from mxcomp.ukernels import builder, standing
from mxcomp.ukernels.attention_mx_rows import GROUPS, INTRINSIC, MFMA, ROWS, STEP, Staged

NEIGHBOURS = 16
"""The number of neighbouring elements of a value that a lane has."""
SIZES = GROUPS * NEIGHBOURS
"""Values are a multiple of so many."""
_MOST_SLOTS = 4
"""The most steps that LDS holds."""


@dataclass(frozen=True)
class Parameters(standing.Plain):
    """The kernel's parameters.

    Attributes:
        heads: Of queries, in all batches.
        queries: Of each head.
        shared: Heads of queries, one behind the other, that share keys.
        size, value_size: Of a query or key, and of a value.
        keys, stored_keys: Those that queries see, and those in memory, which may be more: whole blocks.
        scale: Of scores, times log2(e).
        is_causal: Whether query t sees keys up to t only.
        elements: Types of queries and keys, of values, and of weights.
        waves: Of a workgroup.
        columns: Fragments of a wave's queries, which share keys and values in registers.
        splits: Parts of the keys, each of a workgroup of its own.
        result: The type of results.
        xcds, room: Of the GPU: dies, each with an L2 of its own, and bytes of LDS.
        units: The number by which scores differ whose powers of 2 differ by 2.
        offset: What weights' codes are relative to if they are scores (`mxcomp.ir.attention`); else 0.
    """

    heads: int
    queries: int
    shared: int
    size: int
    value_size: int
    keys: int
    stored_keys: int
    scale: float
    is_causal: bool
    elements: tuple[str, str, str]
    waves: int
    columns: int
    splits: int
    result: str
    xcds: int
    room: int
    units: int = 1
    offset: int = 0

    @property
    def tiles(self) -> int:
        """The number of workgroups of a head."""
        return -(-self.queries // self.tile)

    @property
    def workgroups(self) -> int:
        return self.heads * self.tiles * self.splits

    @property
    def threads(self) -> int:
        return self.waves * LANES

    @property
    def tile(self) -> int:
        """The number of queries of a workgroup."""
        return self.waves * self.columns * ROWS

    def split(self, cus: int, most: int) -> Self:
        """Returns the kernel with keys in up to so many parts.

        They are shared out if a workgroup has all queries that share them, and workgroups are fewer than compute units.
        """
        wanted = 1 if self.tiles > 1 else max(1, min(most, cus // self.workgroups, self.steps))
        return replace(self, splits=-(-self.steps // -(-self.steps // wanted)))

    @property
    def order(self) -> HeadOrder:
        return HeadOrder(math.gcd(self.heads // self.shared, self.xcds), self.shared, self.tiles)

    def missing(self, target: Target) -> str:
        """Returns the matrix instruction that a GPU lacks for one of the products, or the LDS; "" if it has all."""
        qk, value, weights = self.elements
        scales = [E8M0.mlir_type] * 2
        lacking = (target.lacks_instruction(INTRINSIC, (*pair, *scales)) for pair in ((qk, qk), (value, weights)))
        return next(filter(None, lacking), "") or target.lacks_lds(self.lds_bytes)

    @property
    def is_folded(self) -> bool:
        """Whether scores are powers of 2 as the matrix instruction adds them."""
        return self.scale == 1.0

    @property
    def steps(self) -> int:
        return -(-self.keys // STEP)

    @property
    def stored_steps(self) -> int:
        return -(-self.stored_keys // STEP)

    @property
    def name(self) -> str:
        causal = "_causal" if self.is_causal else f"_s{self.splits}" if self.splits > 1 else ""
        kinds = "_".join(f"f{element_format(kind).bits}" for kind in self.elements) + ("_linear" if self.offset else "")
        return f"mx_attention_{kinds}_m{self.tile}_d{self.size}{causal}_{builder.digest(self)}"

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        """The inputs as bytes: elements and scales of queries, keys and values, whose scales are in `row_order`."""
        rows, key_heads = self.heads * self.queries, self.heads // self.shared
        sizes = [rows * self.key_bytes, rows * self.size // BLOCK]
        for each in self.staged:
            sizes += [key_heads * each.head_rows * each.stored_bytes, key_heads * self.stored_steps * each.scale_bytes]
        return [build.tensor_type([size], "i8") for size in sizes]

    @property
    def lds_bytes(self) -> int:
        return self.slots * self._step_bytes

    @property
    def _step_bytes(self) -> int:
        return sum(each.bytes + each.scale_room for each in self.staged)

    @property
    def slots(self) -> int:
        """The number of steps for which LDS has room: copies may take all but two steps of the time."""
        return max(2, min(_MOST_SLOTS, self.room // self._step_bytes))

    @property
    def key_bytes(self) -> int:
        return self.size * element_format(self.elements[0]).bits // 8

    @property
    def staged(self) -> tuple[Staged, Staged]:
        qk, v, weights = self.elements
        depths, value_bytes = -(-self.size // STEP), self.stored_keys * element_format(v).bits // 8
        keys = Staged(qk, STEP, depths, key_unit(weights), self.stored_keys, self.key_bytes, False, self.waves)
        return keys, Staged(v, self.value_size, 1, NEIGHBOURS, self.value_size, value_bytes, True, self.waves)

    @property
    def results(self) -> list[ir.RankedTensorType]:
        """The types of rows of each wave's fragments, in order.

        Of parts they are sums, followed by what these are relative to, and the sum of weights.
        """
        rows, row = [self.workgroups, self.waves, self.columns, ROWS], [self.value_size // SIZES, GROUPS, NEIGHBOURS]
        if self.splits == 1:
            return [build.tensor_type([*rows, *row], self.result)]
        return [build.tensor_type([*rows, *of_row], "f32") for of_row in (row, [2])]


def key_unit(weights: str) -> int:
    """Returns the number of neighbouring keys of which a lane has weights: a block or half of one."""
    return MFMA.lane_unit(weights)
