"""What instructions do through which lanes see each other, on lists of 64 lanes."""

from __future__ import annotations

from functools import partial

from properties.bench import Function, Table, rows

TABLE: Table = {}
_add = partial(rows, TABLE, whole=True)

Values = list[int]

_add("v_readfirstlane_b32", "u32<u32", lambda active, a: a[active.index(True) if any(active) else 0])
_add("v_readlane_b32", "u32<u32 sgpr", lambda active, a, lane: a[lane[0] % 64])


def _write_lane(active: list[bool], value: Values, lane: Values, old: Values) -> Values:
    return [value[0] if k == lane[0] % 64 else x for k, x in enumerate(old)]


_add("v_writelane_b32", "u32<sgpr sgpr u32", _write_lane, every_lane=True)


def _swap(rows_: int) -> Function:
    """Source lane p ↔ result lane p + rows, for p in the even groups of `rows` lanes (AMD's loop)."""

    def swap(active: list[bool], source: Values, old: Values) -> tuple[Values, Values]:
        result, given = list(old), list(source)
        for first in range(0, 64, 2 * rows_):
            for lane in range(first, first + rows_):
                given[lane], result[lane + rows_] = old[lane + rows_], source[lane]
        return result, given

    return swap


for _rows in (16, 32):
    _add(f"v_permlane{_rows}_swap_b32", "u32 u32<u32 u32", _swap(_rows), every_lane=True)

# -- DPP: for each control value, the lane that a lane reads, None if there is none


def _quad(lane: int, *order: int) -> int:
    return lane // 4 * 4 + order[lane % 4]


def _shifted(lane: int, by: int) -> int | None:
    """Within the row of 16."""
    return lane + by if 0 <= lane % 16 + by < 16 else None


DPP: dict[int, Function] = {
    0xE4: lambda lane: lane,
    0x1B: lambda lane: _quad(lane, 3, 2, 1, 0),
    0x4E: lambda lane: _quad(lane, 2, 3, 0, 1),
    0x00: lambda lane: _quad(lane, 0, 0, 0, 0),
    0x130: lambda lane: lane + 1 if lane < 63 else None,
    0x134: lambda lane: (lane + 1) % 64,
    0x138: lambda lane: lane - 1 if lane > 0 else None,
    0x13C: lambda lane: (lane - 1) % 64,
    0x140: lambda lane: lane // 16 * 16 + 15 - lane % 16,
    0x141: lambda lane: lane // 8 * 8 + 7 - lane % 8,
    0x142: lambda lane: lane // 16 * 16 - 1 if lane >= 16 else None,
    0x143: lambda lane: 31 if lane >= 32 else None,
}
for _n in range(1, 16):
    DPP[0x100 + _n] = lambda lane, n=_n: _shifted(lane, n)
    DPP[0x110 + _n] = lambda lane, n=_n: _shifted(lane, -n)
    DPP[0x120 + _n] = lambda lane, n=_n: lane // 16 * 16 + (lane - n) % 16
for _n in range(16):
    DPP[0x150 + _n] = lambda lane, n=_n: lane // 16 * 16 + n
"""row_shl takes from higher lanes, row_shr from lower ones."""
