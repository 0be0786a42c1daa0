"""Parameters of the kernel of attention of few queries (`attention_decode.py`)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from iree.compiler import ir

from mxcomp.mlir import build
from mxcomp.ukernels import builder
from mxcomp.ukernels.attention import COLUMNS, Pieces
from mxcomp.ukernels.attention_combine import part_types
from mxcomp.ukernels.attention_memory import Spec, Stored
from mxcomp.ukernels.normalised_rows import row_types
from mxcomp.ukernels.waves import BLOCK, BLOCKS, INNER_ROWS, LANES, SIMDS, STEPS

MOST_ROWS = 2 * COLUMNS
"""The largest number of queries that share a head of keys, which are in registers."""
MOST_SPLITS = LANES
"""The largest number of parts: the combining kernel has a lane for each."""
MOST_WAVES, MOST_NARROW_WAVES = SIMDS, 2 * SIMDS
"""The largest number of parts that a workgroup has all of: a wave for each SIMD, or, of narrow caches, of which a wave
has fewer bytes on their way, two."""
PIECE = 4
"""The number of a row's neighbours in LDS that a thread reads at a time."""


@dataclass(frozen=True)
class Parameters(Spec):
    """The kernel's parameters. Without a type of results it computes parts; else a workgroup has all parts of a head.

    Of packed results each row of an inner tile is that of a sequence.

    Attributes:
        group: Heads of queries that share one of keys.
        splits: Parts of the keys.
        value_scale: What values are multiplied by.
    """

    heads: int
    queries: int
    _: KW_ONLY
    group: int
    splits: int
    value_scale: float = 1.0

    outputs = ()

    @property
    def rows(self) -> int:
        """The number of queries that share a head of keys."""
        return self.group * self.queries

    @property
    def fragments(self) -> int:
        return -(-self.rows // COLUMNS)

    @property
    def stored(self) -> tuple[int, int]:
        """The rows of parts: fragments, and rows of each, which are padded if there are several fragments."""
        return self.fragments, min(self.rows, COLUMNS)

    @property
    def waves(self) -> int:
        return self.splits if self.result else 1

    @property
    def workgroups(self) -> int:
        return self.heads // self.group * self.splits // self.waves

    @property
    def threads(self) -> int:
        return LANES * self.waves

    @property
    def run(self) -> int:
        """The neighbours of a row that a lane has in LDS."""
        return 4 * Pieces.of(self.value_size).width

    @property
    def run_row(self) -> int:
        return self.value_size // self.run * (self.run + PIECE)

    @property
    def lds_bytes(self) -> int:
        """The bytes of LDS of a workgroup: where it has all parts, their rows and two numbers of each."""
        return self.splits * self.rows * (self.run_row + 2) * 4 if self.result else 0

    @property
    def may_pack(self) -> bool:
        """Whether results may be packed: an inner tile of rows, each whole K tiles of several workgroups."""
        is_whole = self.queries == 1 and self.rows * self.value_size % (BLOCK * BLOCKS * STEPS) == 0
        is_whole_inner_tile = self.workgroups % INNER_ROWS == 0 and self.workgroups > INNER_ROWS
        return is_whole and is_whole_inner_tile and self.result in ("bf16", "f16")

    @property
    def may_rotate(self) -> bool:
        """Whether workgroups may compute queries, and the new rows of keys and values, themselves: of one token, whose
        heads follow one another in operands of known sizes."""
        is_plain = self.queries == 1 and self.size == self.value_size and self.pages is None
        is_known = not any(None in stored.sizes for stored in self.operands)
        axes = [("l", "d"), ("l", "v")] * 2
        is_in_order = all(each.has_heads(self.group, of) for each, of in zip(self.caches, axes, strict=False))
        return is_plain and is_known and is_in_order and self.query.has_heads(1, ("d",))

    @property
    def name(self) -> str:
        return f"mx_attention_decode_r{self.rows}_d{self.size}_s{self.splits}_{builder.digest(self)}"

    @property
    def caches(self) -> list[Stored]:
        """Keys and values, and then their scales, if they have any."""
        return [each for each in (self.key, self.value, self.key.scales, self.value.scales) if each]

    @property
    def results(self) -> list[ir.RankedTensorType]:
        """The types of sums, and of the largest score and the sum of powers of each; or of rows, perhaps packed."""
        if self.packed:
            return row_types([self.workgroups // INNER_ROWS], self.rows * self.value_size // BLOCK, INNER_ROWS)
        if self.result:
            return [build.tensor_type([self.workgroups, self.rows * self.value_size], self.result)]
        return part_types(self.workgroups, self.stored, self.value_size)

    @property
    def along(self) -> tuple[int, ...]:
        """The dimension of workgroups; packed rows have K tiles of each row of an inner tile."""
        return (0, 2) if self.packed else (0,)
