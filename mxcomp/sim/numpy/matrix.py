"""Matrix instructions."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from mxcomp.sim.instruction import Instruction, Operand
from mxcomp.sim.numpy.operands import register_read
from mxcomp.sim.numpy.wave import Lanes, Step, Wave
from mxcomp.sim.semantics import mfma, sparse
from mxcomp.sim.semantics.constants import constant_bits
from mxcomp.sim.semantics.table import u8, u32

_Source = Callable[[Wave], Lanes]


def matrix_step(i: Instruction) -> Step:
    """Returns the step of D = A × B + C; EXEC is ignored."""
    shape = mfma.of(i)
    assert shape is not None
    c = _accumulator(i.src[2], shape)
    row, count = i.dst[0].vgpr, shape.result_registers
    product = _sparse(i, shape) if shape.sparse else _dense(i, shape)

    def step(w: Wave) -> None:
        lanes = mfma.to_lanes(product(w), shape.dim)
        w.v[row : row + count] = mfma.accumulate(lanes, c(w), shape)

    return step


def _dense(i: Instruction, shape: mfma.Mfma) -> _Source:
    a, b = (_operand(operand, kind, shape) for operand, kind in zip(i.src[:2], (shape.a, shape.b), strict=True))
    return _scaled(i, shape, a, b) if shape.blocks else lambda w: mfma.multiply(a(w), b(w))


def _sparse(i: Instruction, shape: mfma.Mfma) -> _Source:
    (a, b), index = i.src[:2], register_read(i.src[3])

    def elements(w: Wave, operand: Operand, kind: str) -> Lanes:
        return mfma.elements(w.v[operand.vgpr : operand.vgpr + operand.dwords], kind, 4 * operand.dwords)

    return lambda w: sparse.multiply(elements(w, a, shape.a), elements(w, b, shape.b), index(w), shape.dim)


def _scaled(i: Instruction, shape: mfma.Mfma, a: _Source, b: _Source) -> _Source:
    if not shape.scaled:
        ones = np.ones((shape.dim, shape.k // 32))
        return lambda w: mfma.multiply_blocks(a(w), b(w), ones, ones, shape.is_exact)
    shift_a, shift_b = mfma.scale_shifts(i)
    read_a, read_b = (register_read(operand) for operand in i.src[3:5])

    def product(w: Wave) -> Lanes:
        scale_a = mfma.scales((read_a(w) >> shift_a).astype(u8), shape)
        scale_b = mfma.scales((read_b(w) >> shift_b).astype(u8), shape)
        return mfma.multiply_blocks(a(w), b(w), scale_a, scale_b, shape.is_exact)

    return product


def _accumulator(operand: Operand, shape: mfma.Mfma) -> _Source:
    """Returns C: registers, or a constant in every element."""
    if operand.is_vgpr:
        row, count = operand.vgpr, shape.result_registers
        return lambda w: w.v[row : row + count]
    constant = constant_bits(operand.code, operand.literal, "u" if shape.is_integer else "f")
    if constant is not None:
        value = np.array([constant], u32)
        return lambda w: value
    code = operand.code
    return lambda w: np.array([w.s[code]], u32)


def _operand(operand: Operand, kind: str, shape: mfma.Mfma) -> _Source:
    row, count = operand.vgpr, operand.dwords
    return lambda w: _decoded(w.v[row : row + count].tobytes(), kind, shape)


@lru_cache(maxsize=256)
def _decoded(registers: bytes, kind: str, shape: mfma.Mfma) -> Lanes:
    """Returns an operand's elements. They are cached, as adjacent matrix instructions share them."""
    return mfma.matrix(np.frombuffer(registers, u32).reshape(-1, 64), kind, shape)
