"""Sparse matrix instructions v_smfmac_*: A has two of every four elements along K, selected by an index.

D ← A × B + D, for the 8-bit floats of gfx950's shapes 16×16×128 and 32×32×64 (CDNA4 ISA, chapter 7; the layout is
the one that AMD's fpsan verified on an MI350: ROCm's monorepo, tests of amdgcn_smfmac).

**Layout.** Lane l = dim·g + r: A row or B column r. Of A it holds 16 elements, in pairs n = 0 … 7: pair n is what is
there of the four elements of group q along K, and the n-th four bits of the lane's index are their two places among
the four, two bits each. Bits of q, lowest first, are those of (n, g) in `_GROUPS`. Of B it holds 32 elements: element e
belongs to K = 8·(e / 8)·groups + 8g + e mod 8.

**Accumulation** as for other floats: products in float64, in order of the elements of A along K, C last, rounded once.
"""

from __future__ import annotations

import numpy as np

from mxcomp.sim.semantics.table import Lanes, f64, u32

SHAPES = {(16, 128), (32, 64)}
"""Rows and K of the implemented instructions."""

PAIRS = 8
"""The number of pairs of elements of A in a lane."""

_GROUPS = {16: ("n0", "n2", "g0", "n1", "g1"), 32: ("n0", "n2", "n1", "g0")}


def group_numbers(dim: int) -> Lanes:
    """Returns the group q of each pair, int[groups of lanes, 8]."""
    lane, pair = np.meshgrid(np.arange(64 // dim), np.arange(PAIRS), indexing="ij")
    bits = {"n": pair, "g": lane}
    return sum((bits[name[0]] >> int(name[1]) & 1) << k for k, name in enumerate(_GROUPS[dim]))  # type: ignore[return-value]


def multiply(a: Lanes, b: Lanes, index: Lanes, dim: int) -> Lanes:
    """Returns float64[dim, dim] of elements float64[64, 16] and [64, 32] in register order, and uint32[64]."""
    groups = 64 // dim
    q = group_numbers(dim)
    values = np.zeros((dim, groups * PAIRS, 2), f64)
    places = np.zeros((dim, groups * PAIRS, 2), np.int64)
    lanes = a.reshape(groups, dim, PAIRS, 2)
    fields = np.broadcast_to(index, 64).reshape(groups, dim, 1) >> (4 * np.arange(PAIRS, dtype=u32)) & 15
    for g in range(groups):
        values[:, q[g]] = lanes[g]
        places[:, q[g]] = np.stack((fields[g] & 3, fields[g] >> 2), -1) + 4 * q[g][None, :, None]
    dense = b.reshape(groups, dim, 4, 8).transpose(2, 0, 3, 1).reshape(-1, dim)  # [K, column]
    products = values.reshape(dim, -1, 1) * dense[places.reshape(dim, -1)]
    return np.add.reduce(products.transpose(1, 0, 2), axis=0)
