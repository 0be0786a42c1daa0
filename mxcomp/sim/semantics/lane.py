"""Instructions and modifiers that exchange values between lanes (CDNA4 ISA: DPP, VOP1–VOP3, DS permutes)."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from mxcomp.sim.semantics.table import Lanes, VectorTable, u32, vector

TABLE: VectorTable = {}
_add = partial(vector, TABLE, cross_lane=True)

LANES = np.arange(64)


def mask_of(lanes: Lanes) -> int:
    """Returns bool[64] as a 64-bit mask."""
    return int(np.packbits(lanes, bitorder="little").view(np.uint64)[0])


def _first_lane(active: Lanes, a: Lanes) -> int:
    """Returns the lowest active lane, or lane 0 if there is none."""
    return int(a[int(np.argmax(active))])


def _read_lane(active: Lanes, a: Lanes, lane: int) -> int:
    return int(a[lane & 63])


def _write_lane(active: Lanes, value: int, lane: int, old: Lanes) -> Lanes:
    return np.where(lane & 63 == LANES, u32(value), old)


def _swap_rows(rows: int) -> Any:
    """Exchanges the odd groups of `rows` lanes of the result register with the even groups of the source."""
    odd = (LANES & rows) != 0

    def swap(active: Lanes, source: Lanes, old: Lanes) -> tuple[Lanes, Lanes]:
        return np.where(odd, source[LANES ^ rows], old), np.where(odd, source, old[LANES ^ rows])

    return swap


_add("v_readfirstlane_b32", "s<u", _first_lane)
_add("v_readlane_b32", "s<us", _read_lane)
_add("v_writelane_b32", "u<ss", _write_lane, old="preserve", every_lane=True)
for _rows in (16, 32):
    _name = f"v_permlane{_rows}_swap_b32"
    _add(_name, "uu<u", _swap_rows(_rows), old="accumulate", swaps=True, every_lane=True)
vector(TABLE, "v_swap_b32", "uu<u", lambda a, old: (a, old), old="accumulate", swaps=True)


@cache
def dpp_lanes(control: int) -> tuple[Lanes, Lanes] | None:
    """Returns the source lane of each lane, and whether it exists; None for a reserved control value."""
    row, at = LANES & ~15, LANES & 15
    every = np.ones(64, bool)
    amount = control & 15
    if control < 0x100:  # quad_perm: two bits per lane
        return LANES & ~3 | control >> 2 * (LANES & 3) & 3, every
    if 0x101 <= control <= 0x10F:  # row_shl
        return row | (at + amount & 15), at + amount < 16
    if 0x111 <= control <= 0x11F:  # row_shr
        return row | (at - amount & 15), at >= amount
    if 0x121 <= control <= 0x12F:  # row_ror
        return row | (at - amount & 15), every
    if 0x150 <= control <= 0x15F:  # row_newbcast
        return row | amount, every
    rest = {
        0x130: (LANES + 1 & 63, LANES < 63),  # wave_shl
        0x134: (LANES + 1 & 63, every),  # wave_rol
        0x138: (LANES - 1 & 63, LANES > 0),  # wave_shr
        0x13C: (LANES - 1 & 63, every),  # wave_ror
        0x140: (row | 15 - at, every),  # row_mirror
        0x141: (LANES & ~7 | 7 - (LANES & 7), every),  # row_half_mirror
        0x142: (np.maximum(row - 1, 0), LANES >= 16),  # row_bcast15
        0x143: (np.full(64, 31), LANES >= 32),  # row_bcast31
    }
    return rest.get(control)


@cache
def dpp_written(row_mask: int, bank_mask: int) -> Lanes:
    """Returns the lanes whose row (of 16) and bank (of 4 within the row) are enabled."""
    return (row_mask >> (LANES >> 4) & 1 & bank_mask >> (LANES >> 2 & 3)).astype(bool)


@cache
def swizzle_lanes(offset: int) -> Lanes | None:
    """Returns the source lane of each lane of ds_swizzle_b32: a quad permutation, or and-or-xor masks within 32 lanes;
    None: not implemented."""
    if offset & 0x8000:
        return None if offset & 0x6000 else LANES & ~3 | offset >> 2 * (LANES & 3) & 3
    and_mask, or_mask, xor_mask = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    return LANES & 32 | (LANES & and_mask | or_mask) ^ xor_mask


def pull(active: Lanes, source: Lanes, values: Lanes) -> Lanes:
    """Returns each lane's value from lane `source`; inactive lanes give 0 (ds_swizzle, ds_bpermute)."""
    return np.where(active[source], values[source], u32(0))


def push(active: Lanes, target: Lanes, values: Lanes) -> Lanes:
    """Sends each active lane's value to lane `target`. The highest lane wins, lanes without a sender get 0
    (ds_permute)."""
    result = np.zeros(64, u32)
    result[target[active]] = values[active]
    return result
