"""The kernel that sorts slots by expert: `sort_slots.mlir.in`, one workgroup, whose LDS holds all tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from math import ceil

from mxcomp.ukernels.waves import LANES

BODY = "sort_slots.mlir.in"
_MOST_THREADS = 1024
_MOST_SLOTS = 4096
"""Of more, dispatches of many workgroups take less time, modelled."""
_MOST_BYTES = 128 * 1024
"""Of LDS for the tables."""


@dataclass(frozen=True)
class Sorting:
    """`slots` that go to `experts`, into at most `blocks` blocks of `block_m` rows."""

    slots: int
    experts: int
    block_m: int
    blocks: int

    @property
    def fits(self) -> bool:
        """Whether one workgroup has a lane for each expert, and room for all tables."""
        has_lanes = self.experts <= _MOST_THREADS and self.slots <= _MOST_SLOTS
        return has_lanes and self.size * 4 <= _MOST_BYTES

    @property
    def name(self) -> str:
        return f"mx_sort_slots_s{self.slots}_e{self.experts}_b{self.blocks}_m{self.block_m}"

    @property
    def loaded(self) -> int:
        """How many ids the kernel takes: IREE would drop a dimension of size 1, and with it what names the kernel."""
        return max(self.slots, 2)

    @property
    def threads(self) -> int:
        return _up(min(max(self.slots, self.experts), _MOST_THREADS), LANES)

    @property
    def starts(self) -> tuple[int, int, int, int]:
        """Where tables begin: the row of each slot, the slot of each row, the expert of each block, valid blocks."""
        rows = self.blocks * self.block_m
        return 0, self.slots, self.slots + rows, self.slots + rows + self.blocks

    @property
    def size(self) -> int:
        """Of all tables, with what fills the last lane's piece up."""
        return _up(self.starts[-1] + 1, self.threads)

    def text(self) -> str:
        """The kernel's module, without comments."""
        body = (
            (resources.files("mxcomp") / "ukernels" / "gfx950" / BODY).read_text().replace("@ukernel", f"@{self.name}")
        )
        code = (line for line in body.splitlines() if not line.lstrip().startswith("//"))
        return "\n".join([*self._lines(), *code])

    def _lines(self) -> Iterator[str]:
        _, rows_at, blocks_at, valid_at = self.starts
        chunk = self.size // self.threads
        sizes = {
            "threads": self.threads, "waves": ceil(min(self.slots, self.threads) / LANES),
            "rounds": ceil(self.slots / self.threads), "slots": self.slots, "experts": self.experts,
            "doublings": (self.experts - 1).bit_length(), "block_m": self.block_m, "round_up": self.block_m - 1,
            "rows": blocks_at - rows_at,
            "rows_at": rows_at, "blocks_at": blocks_at, "valid_at": valid_at, "chunk": chunk,
        }  # fmt: skip
        yield from (f"#{name} = {size} : index" for name, size in sizes.items())
        yield f"#piece_sizes = array<i64: {chunk}>"
        yield f"!ids_ty = {shaped('tensor', [self.loaded], 'i32')}"
        where = "strided<[1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>"
        yield f"!ids_buffer_ty = {shaped('memref', [self.loaded], 'i32')[:-1]}, {where}>"
        yield f"!tables_ty = {shaped('tensor', [self.size], 'i32')}"
        yield f"!piece_ty = {shaped('tensor', [chunk], 'i32')}"
        yield f"!piece_vec_ty = {shaped('vector', [chunk], 'i32')}"
        for name, size in (("of_slots", self.threads), ("of_experts", self.experts), ("tables_local", self.size)):
            yield f"!{name}_ty = {shaped('memref', [size], 'i32')[:-1]}, #gpu.address_space<workgroup>>"


def _up(number: int, step: int) -> int:
    return ceil(number / step) * step


def shaped(kind: str, shape: Iterable[int | None], element: str) -> str:
    return f"{kind}<{'x'.join('?' if size is None else str(size) for size in shape)}x{element}>"
