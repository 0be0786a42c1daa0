"""The types with which the tables of this package describe instructions.

A row is a signature and a pure function. Signatures read "results < sources", one letter per operand:

======  ==========================================================================================
u i f   32 bits: unsigned, signed, float
U I d   64 bits: unsigned, signed, float
H S h   16 bits: unsigned, signed, float; op_sel picks the half, a result leaves the other half zero
        (op_sel[3] writes the upper half and keeps the lower)
b       bfloat16, handed over as the float32 it stands for (sources only)
P       two packed 16-bit values as u32 (float constants are float16)
Q       a register pair as a tuple of two u32
w x y   6, 16 or 32 registers as one array uint32[n, 64]
M       one bit per lane in an SGPR pair, handed over as bool
s       a scalar: SGPR or constant, a Python int
m       the MODE register, no operand in the encoding (vector instructions)
c       SCC as 0 or 1 (scalar instructions); as a result ``!`` sets SCC to "the result is not zero"
E       EXEC (scalar instructions)
======  ==========================================================================================

Several results without ``M`` go to consecutive registers. A float result (f, d, h) that is NaN is written as the quiet
NaN without sign and payload, 0x7FC00000, so that engines agree.

Vector functions are elementwise over lanes and use only operators, NumPy ufuncs, ``np.where``, `lookup`, ``.astype``
and ``.view``, and no branch that depends on data. So they work on arrays of any shape, and
on any object that implements NumPy's array protocols: a compiling engine can trace them.

Scalar functions work on exact integers (128 bits signed hold every intermediate value); the result is cut to the
register's width afterwards. Where they choose, they use `select`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.instruction import Instruction

Lanes = NDArray[Any]
"""One value per lane."""

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
i8, i16, i32, i64 = np.int8, np.int16, np.int32, np.int64
f16, f32, f64 = np.float16, np.float32, np.float64

MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1

DTYPES: dict[str, type[np.generic]] = {
    "u": u32, "i": i32, "f": f32, "U": u64, "I": i64, "d": f64, "H": u16, "S": i16, "h": f16, "b": f32,
}  # fmt: skip


_WIDTHS = {"U": 2, "I": 2, "d": 2, "Q": 2, "M": 2, "E": 2, "w": 6, "x": 16, "y": 32, "m": 0, "c": 0, "!": 0}


def width(letter: str) -> int:
    """Returns the number of registers of an operand."""
    return _WIDTHS.get(letter, 1)


@dataclass(frozen=True, slots=True)
class VectorOp:
    """A vector instruction.

    Attributes:
        dst, src: The two sides of the signature.
        function: Lanes in, lanes out (a tuple when there are several results).
        old: The function also gets the old result register: to add to it, or to keep the bits it does not write.
        specialise: The function takes the instruction and returns the lane function (it needs op_sel or the like).
        cross_lane: Lanes see each other: not elementwise, all arrays have 64 lanes, the first argument is EXEC.
        every_lane: EXEC does not matter for what is written.
        swaps: The second result goes to the register of the first source.
        clamped: What the function is with the clamp bit set, for integers, which saturate.
        clamps: The function looks at the clamp bit itself (halves that it packs).
    """

    dst: str
    src: str
    function: Callable[..., Any]
    old: Literal["", "accumulate", "preserve"] = ""
    specialise: bool = False
    cross_lane: bool = False
    every_lane: bool = False
    swaps: bool = False
    clamped: Callable[..., Any] | None = None
    clamps: bool = False

    @property
    def dtype(self) -> str:
        """The type letter of the first result."""
        return self.dst[:1]

    def lane_function(self, instruction: Instruction) -> Callable[..., Any]:
        """Returns the function of lanes that an instruction with its modifiers computes."""
        if self.clamped is not None and instruction.flag("clmp"):
            return self.clamped
        return self.function(instruction) if self.specialise else self.function


@dataclass(frozen=True, slots=True)
class ScalarOp:
    """A scalar instruction; `old` as for vectors."""

    dst: str
    src: str
    function: Callable[..., Any]
    old: bool = False


VectorTable = dict[str, VectorOp]
ScalarTable = dict[str, ScalarOp]


def vector(table: VectorTable, names: str, signature: str, function: Callable[..., Any], **options: Any) -> None:
    """Adds one row for every name."""
    dst, src = signature.split("<")
    for name in names.split():
        table[name] = VectorOp(dst, src, function, **options)


def scalar(table: ScalarTable, names: str, signature: str, function: Callable[..., Any], old: bool = False) -> None:
    dst, src = signature.split("<")
    for name in names.split():
        table[name] = ScalarOp(dst, src, function, old)


def select(condition: Any, if_true: Any, if_false: Any) -> Any:
    """Returns `condition ? a : b` on integers, or on anything that has a method of this name."""
    if isinstance(condition, int):
        return if_true if condition else if_false
    return condition.select(if_true, if_false)


def lookup(values: Lanes, index: Any) -> Any:
    """Returns elements of a constant table, lane by lane. An index that has a method of this name looks them up
    itself."""
    own = getattr(index, "lookup", None)
    return np.take(values, index) if own is None else own(values)
