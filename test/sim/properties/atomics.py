"""What atomics leave in memory, from the old value and the operand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mxcomp.sim.semantics.memory import ATOMICS
from properties import exact
from properties.exact import to_bits, to_float
from properties.values import decode, encode, random_bits, size

Function = Callable[[Any, Any], Any]


def _halves(kind: str) -> Function:
    """Sums of both 16-bit parts."""

    def add(old: int, x: int) -> int:
        sums = (exact.add(*(to_float(w >> k & 0xFFFF, kind) for w in (old, x))) for k in (0, 16))
        return sum(to_bits(total, kind) << 16 * k for k, total in enumerate(sums))

    return add


TABLE: dict[str, tuple[str, Function]] = {
    "swap": ("u", lambda old, x: x),
    "cmpswap": ("u", lambda old, x: x),
    "add": ("u", lambda old, x: old + x),
    "sub": ("u", lambda old, x: old - x),
    "rsub": ("u", lambda old, x: x - old),
    "and": ("u", lambda old, x: old - (old & ~x)),
    "or": ("u", lambda old, x: old + (x & ~old)),
    "xor": ("u", lambda old, x: (old | x) - (old & x)),
    "umin": ("u", min),
    "umax": ("u", max),
    "smin": ("i", min),
    "smax": ("i", max),
    "inc": ("u", lambda old, x: 0 if old >= x else old + 1),
    "dec": ("u", lambda old, x: x if old == 0 or old > x else old - 1),
    "add_f32": ("f32", exact.add),
    "min_f32": ("f32", exact.lesser),
    "max_f32": ("f32", exact.greater),
    "add_f64": ("f64", exact.add),
    "min_f64": ("f64", exact.lesser),
    "max_f64": ("f64", exact.greater),
    "pk_add_f16": ("u32", _halves("f16")),
    "pk_add_bf16": ("u32", _halves("bf16")),
}
"""Type ("u" and "i": 32 and 64 bits) and function."""


def check_atomic(name: str, kind: str, function: Function) -> str | None:
    rng = np.random.default_rng(list(name.encode()))
    for width in ("32", "64") if len(kind) == 1 else ("",):
        typed = kind + width
        pairs = zip(random_bits(rng, typed, 300), random_bits(rng, typed, 300), strict=True)
        for old, x in pairs:
            with np.errstate(all="ignore"):
                got = ATOMICS[name](old, x, size(typed) // 8) & (1 << size(typed)) - 1
            wanted = encode(function(decode(old, typed), decode(x, typed)), typed)
            if got != wanted:
                return f"{name} {typed}: {got:#x}, not {wanted:#x}, from {old:#x}, {x:#x}"
    return None
