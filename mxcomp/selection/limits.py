"""Limits of the dynamic sizes of a matmul, within which all addresses of a kernel lie in its buffers."""

from __future__ import annotations

from mxcomp.formats import element_format
from mxcomp.layout.problem import Problem
from mxcomp.ukernels.weight_only import ACTIVATION_BYTES, ACTIVATIONS

_ACCUMULATOR_BYTES = 4
_MAX_K = 65536
"""The limit of a dynamic K together with a dynamic M or N: IREE must be able to prove that operands fit."""


def limits(problem: Problem, tile: tuple[int, int, int], max_bytes: int) -> dict[str, int] | None:
    """Returns the largest M, N and K, in whole tiles, for which padded operands and the result take `max_bytes`.

    Keys are the dynamic ones of m, n and k. None if static sizes alone take more. The result of a dynamic M and N is
    checked at run time (`mxcomp.packing.runtime_sizes`).
    """
    steps = dict(zip("mnk", tile, strict=True))
    least = {axis: size or 1 for axis, size in problem.sizes.items()}
    padded = {axis: _up(least[axis], step) for axis, step in steps.items()}
    matrices = {axis: problem.stored_matrices(operand) for operand, axis in enumerate("mn")}
    bits = {axis: _bits(kind) for axis, kind in zip("mn", problem.types, strict=False)}
    found: dict[str, int] = {}

    if problem.k is None:
        column = max(-(-matrices[axis] * padded[axis] * bits[axis] // 8) for axis in "mn")
        found["k"] = _down(max_bytes // column, steps["k"])
        if None in (problem.m, problem.n):
            found["k"] = padded["k"] = min(found["k"], _down(_MAX_K, steps["k"]))
    for axis, other in ("mn", "nm"):
        operand_row = matrices[axis] * padded["k"] * bits[axis] // 8
        row = max(operand_row, problem.matrices * _ACCUMULATOR_BYTES * least[other])
        found[axis] = _down(max_bytes // row, steps[axis]) if row else 0

    if any(found[axis] < padded[axis] for axis in found):
        return None
    return {axis: found[axis] for axis in problem.dynamic}


def _bits(kind: str) -> int:
    """Returns the bits of an element; operands may be unquantised activations."""
    return 8 * ACTIVATION_BYTES if kind == ACTIVATIONS else element_format(kind).bits


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _down(size: int, step: int) -> int:
    return size // step * step
