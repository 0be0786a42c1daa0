"""Parameters of the kernel of attention of many queries (`attention_prefill.py`)."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

from iree.compiler import ir

from mxcomp.layout.order import HeadOrder
from mxcomp.mlir import build
from mxcomp.ukernels import builder
from mxcomp.ukernels.attention_memory import LANE, Spec, Stored, Subscript
from mxcomp.ukernels.attention_prefill_rows import DEPTH, GROUPS, ROWS, STEP, Staged
from mxcomp.ukernels.attention_turns import STAGGERED
from mxcomp.ukernels.brought import CODE_BYTES
from mxcomp.ukernels.builder import Index
from mxcomp.ukernels.waves import BLOCK, INNER_ROWS, LANES

_SLOTS, _LEAST_SLOTS = 4, 2
"""The number of steps that LDS has for those: copies are waited for a whole step later; and the least for others."""


@dataclass(frozen=True)
class Parameters(Spec):
    """The kernel's parameters. Packed results are in inner tiles of queries: the heads of a query are blocks of a row.

    Attributes:
        waves: Of a workgroup, two or more, each with 32 queries.
        splits: Of the waves so many have the same queries, and take steps of keys in turns.
        xcds, room: Of the GPU: dies, each with an L2 of its own, and bytes of LDS.
    """

    _: KW_ONLY
    waves: int
    splits: int = 1
    xcds: int
    room: int

    along = 0, 1

    @property
    def threads(self) -> int:
        return self.waves * LANES

    @property
    def llvm_func_attrs(self) -> dict[str, str]:
        """Attributes of the function for LLVM: two of 8 waves share the registers of a SIMD."""
        return {"amdgpu-waves-per-eu": "2"} if self.waves == STAGGERED else {}

    @property
    def scales_late(self) -> bool:
        """Whether scores are scaled when the reference is subtracted, as nothing else is done with them."""
        is_same = self.reach is None or not self.reach.blind_sees_all
        return self.mask is None and self.cap is None and self.scale > 0 and is_same

    @property
    def may_split(self) -> bool:
        """Whether two waves may share keys: each has half of a value's fragments, and of what a query is copied by."""
        is_even = self.size % (2 * DEPTH) == 0 and self.value_size % (2 * ROWS) == 0
        return is_even and (self.keys is None or self.keys > STEP)

    @property
    def is_staggered(self) -> bool:
        """Whether waves are two on each SIMD, of which one is a phase behind."""
        return self.waves == STAGGERED and self.splits == 1

    @property
    def tile(self) -> int:
        return self.waves // self.splits * ROWS

    @property
    def span(self) -> int:
        """The number of keys of a round: a step for each of the waves that share queries."""
        return self.splits * STEP

    @property
    def known_heads(self) -> int:
        """The number of heads, or of those of each batch where the number of batches is dynamic."""
        strides = (each.stride for each in self.query.subscripts if each.axis == "n" and each.extent is None)
        return next(strides, 1) if self.heads is None else self.heads

    @property
    def workgroups(self) -> int | None:
        """The number of workgroups; None if the program knows it."""
        tiles = build.tiles(self.queries, self.tile)
        return None if self.heads is None or tiles is None else self.heads * tiles

    @property
    def staged(self) -> tuple[Staged, Staged]:
        sizes = (self.size, 1), (self.value_size, ROWS // LANE)
        key, value = (Staged(size // LANE, together, self.waves, self.span) for size, together in sizes)
        return key, value

    def order(self, tiles: Index) -> HeadOrder:
        """Returns the order in which workgroups take tiles, of which a head has so many."""
        stored = self.key, self.value
        strides = [each.stride for operand in stored for each in operand.subscripts if each.axis == "n"]
        shared = math.gcd(self.known_heads, *strides)
        return HeadOrder(math.gcd(self.known_heads // shared, self.xcds), shared, tiles)

    @property
    def slots(self) -> int:
        """The number of rounds of which LDS has keys and values: fewer than wanted where it has no room for them."""
        wanted = _SLOTS // self.splits
        return wanted if self._lds_bytes(wanted) <= self.room else _LEAST_SLOTS

    @property
    def has_room(self) -> bool:
        """Whether LDS has room for the rounds that it needs: staggered waves need all of them."""
        return self.lds_bytes <= self.room and (not self.is_staggered or self.slots == _SLOTS)

    @property
    def lds_bytes(self) -> int:
        return self._lds_bytes(self.slots)

    def _lds_bytes(self, slots: int) -> int:
        """Returns the bytes of LDS of so many rounds, with unused copies behind the last row of each.

        Waves that share keys have two numbers of each lane there, too.
        """
        staged = slots * sum(each.elements for each in self.staged) * self.key.element_bytes
        return staged + (self.threads * 2 * 4 if self.splits > 1 else 0)

    @property
    def first_keys(self) -> int:
        """The number of rounds whose keys are copied before values, which are where queries were."""
        return self.slots if self.is_staggered else 2

    @property
    def depths(self) -> int:
        """The number of matrix instructions along the size of a key."""
        return self.size // DEPTH

    @property
    def sums(self) -> int:
        """The number of fragments of a value, of which the last may be half empty."""
        return -(-self.value_size // ROWS)

    @property
    def name(self) -> str:
        causal = "" if self.reach is None else "_causal"
        return f"mx_attention_prefill_m{self.tile}_d{self.size}{causal}_{builder.digest(self)}"

    @property
    def counted(self) -> str:
        """The axes whose sizes, beside a dynamic number of heads, are those of operands that nothing reads."""
        pairs = zip("tl", (self.queries, self.keys), strict=True)
        return "".join(axis for axis, size in pairs if size is None and self.heads is None)

    @property
    def operands(self) -> list[Stored]:
        return [*super().operands, *(Stored("i8", (None,), (Subscript(axis, 1, None),)) for axis in self.counted)]

    @property
    def row(self) -> list[int]:
        """The shape of a row of the result: several times the part of each group of lanes."""
        return [self.value_size // (GROUPS * LANE), GROUPS, LANE]

    @property
    def dynamic(self) -> str:
        """The axes of the result whose sizes the program knows."""
        return "".join(axis for axis, size in (("n", self.heads), ("t", self.queries)) if size is None)

    @property
    def tiled(self) -> list[int]:
        """The sizes of a workgroup's part along the first dimensions of the result."""
        return [1, self.tile // INNER_ROWS if self.packed else self.tile]

    @property
    def may_pack(self) -> bool:
        """Whether results may be packed: two groups of lanes have whole blocks of each query."""
        return self.heads is not None and self.result in ("bf16", "f16") and self.value_size % (GROUPS * BLOCK) == 0

    @property
    def blocks(self) -> int:
        return self.value_size // BLOCK

    @property
    def results(self) -> list[ir.RankedTensorType]:
        """The types of rows of each head; or of elements and scales in inner tiles, as many as who reads them says."""
        if not self.packed:
            return [build.tensor_type([self.heads, self.queries, *self.row], self.result)]
        return self.of_inner_tiles(None)

    def of_inner_tiles(self, count: int | None) -> list[ir.RankedTensorType]:
        """Returns the types of packed results with so many inner tiles of queries."""
        rows = self.heads, count, INNER_ROWS * self.blocks
        return [build.tensor_type([*rows[:-1], rows[-1] * size], "i8") for size in (CODE_BYTES, 1)]

    @property
    def outputs(self) -> list[Stored]:
        sizes = None if self.heads is None else 1, self.known_heads, self.queries, self.value_size
        return [Stored(self.result, sizes, tuple(Subscript(axis, 1, None) for axis in "nhtv"))]
