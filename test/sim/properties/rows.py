"""Rows of the semantics' tables as instructions, and the NumPy engine executing one of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from mxcomp.sim.engine import WaveStart
from mxcomp.sim.fast.frame import MODE_SLOT, SCC_SLOT
from mxcomp.sim.instruction import EXEC, SCC, VGPR0, Instruction, Operand
from mxcomp.sim.numpy.engine import step_of
from mxcomp.sim.numpy.wave import Wave
from mxcomp.sim.semantics.table import ScalarOp, VectorOp, width

MASK_SOURCE, SCALAR_SOURCE, SCALAR_RESULT, MASK_RESULT = 20, 30, 40, 50
RESULT_ROW = 100


def vector_instruction(name: str, op: VectorOp, **changes: Any) -> Instruction:
    """Sources in v0, v2, …, the mask in s20, results in v100 … and s50."""
    sources, row = [], 0
    for letter in op.src:
        if width(letter) == 0:
            continue
        if letter == "M":
            sources.append(Operand(MASK_SOURCE, 2))
        elif letter == "s":
            sources.append(Operand(SCALAR_SOURCE + len(sources)))
        else:
            sources.append(Operand(VGPR0 + row, width(letter)))
            row += max(2, width(letter))
    results, row = [], RESULT_ROW
    for k, letter in enumerate(op.dst):
        if letter in "Ms":
            results.append(Operand(MASK_RESULT if letter == "M" else SCALAR_RESULT, width(letter)))
        elif k and op.swaps:
            results.append(sources[0])
        else:
            results.append(Operand(VGPR0 + row, width(letter)))
            row += width(letter)
    if name.startswith("v_cmpx"):
        results.append(Operand(EXEC, 2))
    if op.old:
        sources.append(results[0]._replace(dwords=1 if op.dst[0] not in "Ud" else 2))
    return Instruction(0, 4, name, "VOP3", tuple(results), tuple(sources), **changes)


def scalar_instruction(name: str, op: ScalarOp) -> Instruction:
    sources = []
    for k, letter in enumerate(op.src):
        fixed = {"c": Operand(SCC), "E": Operand(EXEC, 2)}
        sources.append(fixed.get(letter, Operand(2 * k, width(letter))))
    fixed = {"c": Operand(SCC), "!": Operand(SCC), "E": Operand(EXEC, 2)}
    results = [fixed.get(letter, Operand(SCALAR_RESULT, width(letter))) for letter in op.dst]
    if op.old:
        sources.append(results[0])
    return Instruction(0, 4, name, "SOP2", tuple(results), tuple(sources))


def oracle(i: Instruction, vectors: np.ndarray[Any, Any], scalars: np.ndarray[Any, Any]) -> None:
    """Executes in place, as `Bench.run` does."""
    group: Any = SimpleNamespace(dispatch=SimpleNamespace(entry=0), trial=None)
    wave = Wave(group, 0, WaveStart(tuple(scalars[:128].tolist()), vectors[0], int(scalars[MODE_SLOT]), 0))
    wave.v, wave.scc = vectors, int(scalars[SCC_SLOT])
    with np.errstate(all="ignore"):
        step_of(i)(wave)
    scalars[:128], scalars[SCC_SLOT] = wave.s, wave.scc
