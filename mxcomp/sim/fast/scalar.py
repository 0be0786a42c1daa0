"""Scalar instructions, whose functions are traced in place."""

from __future__ import annotations

from mxcomp.sim.fast import exact, ir
from mxcomp.sim.fast.frame import SCC_SLOT, Frame
from mxcomp.sim.instruction import Instruction, Operand
from mxcomp.sim.semantics import SCALAR


def emit_scalar(frame: Frame, i: Instruction) -> None:
    """Emits one row of the scalar table."""
    op, builder = SCALAR[i.mnemonic], frame.builder
    letters = op.src + (op.dst[0] if op.old else "")
    sources = [_read(frame, operand, letter) for operand, letter in zip(i.src, letters, strict=True)]
    results = op.function(*sources)
    if not isinstance(results, tuple):
        results = (results,)
    values = [exact.lift(builder, result).value for result in results]
    cut = [
        builder.trunc(value, ir.i64 if letter in "UE" else ir.i32)
        for value, letter in zip(values, op.dst, strict=False)
    ]
    for value, letter, operand in zip(cut, op.dst, i.dst, strict=False):
        frame.write(SCC_SLOT if letter == "c" else operand.code, value)
    if op.dst.endswith("!"):
        nonzero = builder.icmp_unsigned("!=", cut[0], ir.constant(cut[0].type, 0))
        frame.write(SCC_SLOT, builder.zext(nonzero, ir.i32))


def _read(frame: Frame, operand: Operand, letter: str) -> exact.Exact:
    unsigned = {"i": "u", "I": "I", "c": "u"}.get(letter, letter)
    value = frame.scalar(operand, unsigned)
    extend = frame.builder.sext if letter in "iI" else frame.builder.zext
    return exact.Exact(frame.builder, extend(value, ir.i128))
