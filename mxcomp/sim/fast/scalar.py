"""Scalar instructions, whose functions are traced in place: with values of 128 bits, which have room for all that the
scalar table computes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir as llvm

from mxcomp.sim.fast import ir
from mxcomp.sim.fast.frame import SCC_SLOT, Frame
from mxcomp.sim.instruction import Instruction, Operand
from mxcomp.sim.semantics import SCALAR


class Exact(ir.Value):
    """A traced integer, shifted as Python does; a condition beside it, or alone, counts as 0 or 1."""

    def lift(self, other: Any) -> Any:
        if isinstance(other, ir.Value):
            return other.to(ir.i128)
        return ir.constant(ir.i128, int(other))

    __rshift__, __rrshift__ = ir.Value.ashr, ir.reflected("ashr")

    def __neg__(self) -> ir.Value:
        return self.of(self.builder.neg(self))

    def compared(self, operator: str, other: Any) -> ir.Value:
        return Condition(self.builder, super().compared(operator, other))

    def select(self, if_true: Any, if_false: Any) -> Any:
        """Returns a choice by the value as a condition (SCC)."""
        return (self != 0).select(if_true, if_false)

    def __bool__(self) -> bool:
        raise TypeError("a branch on a traced value")


class Condition(Exact):
    """A traced comparison."""

    def lift(self, other: Any) -> Any:
        return other

    def select(self, if_true: Any, if_false: Any) -> Any:
        chosen = (exact(self.builder, each) for each in (if_true, if_false))
        return Exact(self.builder, self.builder.select(self, *chosen))


def exact(builder: llvm.IRBuilder, value: Any) -> Exact:
    """Returns a value, a condition or a number as a traced integer; values are not negative."""
    return Exact(builder, Exact(builder, None).lift(value))


def emit_scalar(frame: Frame, i: Instruction) -> None:
    """Emits one row of the scalar table."""
    op, builder = SCALAR[i.mnemonic], frame.builder
    letters = op.src + (op.dst[0] if op.old else "")
    sources = [_read(frame, operand, letter) for operand, letter in zip(i.src, letters, strict=True)]
    results = op.function(*sources)
    values = results if isinstance(results, tuple) else (results,)
    kinds = [ir.i64 if letter in "UE" else ir.i32 for letter in op.dst]
    cut = [exact(builder, value).to(kind) for value, kind in zip(values, kinds, strict=False)]
    for value, letter, operand in zip(cut, op.dst, i.dst, strict=False):
        frame.write(SCC_SLOT if letter == "c" else operand.code, value)
    if op.dst.endswith("!"):
        frame.write(SCC_SLOT, (cut[0] != 0).to(ir.i32))


def _read(frame: Frame, operand: Operand, letter: str) -> Exact:
    value = frame.scalar(operand, {"i": "u", "c": "u"}.get(letter, letter))
    return Exact(frame.builder, value.to(ir.i128, letter in "iI"))
