"""The cost of each instruction on a compute unit, independent of its operands: tables for `replay`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim import banks
from mxcomp.sim.checks.waits import NO_LGKM_WAIT, NO_VECTOR_WAIT, Flight, waitcnt_fields
from mxcomp.sim.instruction import Instruction, Operand
from mxcomp.sim.semantics import VECTOR, mfma, salu

CADENCE = 4
"""The cycles between instructions of a wave: 64 lanes on 16 (CDNA3 ISA, chapter 2), and the length of an MFMA pass."""


class Unit(IntEnum):
    """The execution unit of an instruction."""

    NONE = 0
    SCALAR = 1
    VECTOR = 2
    MATRIX = 3
    LDS = 4
    GLOBAL = 5
    SCALAR_MEMORY = 6
    BARRIER = 7
    FETCH = 8


UNITS = len(Unit)


@dataclass(frozen=True)
class Costs:
    """The costs of a program's instructions: arrays by the names of `_Facts`, and the rows of all in one array.

    Attributes:
        first, reads: Rows of vector registers that instruction i reads, from `first[i]` to `first[i + 1]`.
    """

    columns: dict[str, NDArray[Any]]
    first: NDArray[np.int64]
    reads: NDArray[np.int64]

    @classmethod
    def of(cls, instructions: Sequence[Instruction]) -> Costs:
        facts = [_Facts.of(i) for i in instructions]
        columns: dict[str, NDArray[Any]] = {}
        for each in fields(_Facts):
            if each.name != "reads":
                kind = np.bool_ if isinstance(each.default, bool) else np.int64
                columns[each.name] = np.array([getattr(fact, each.name) for fact in facts], kind)
        first = np.concatenate([[0], np.cumsum([len(fact.reads) for fact in facts], dtype=np.int64)])
        return cls(columns, first, np.array([row for fact in facts for row in fact.reads], np.int64))

    @property
    def unit(self) -> NDArray[np.int64]:
        return self.columns["unit"]

    @property
    def busy(self) -> NDArray[np.int64]:
        return self.columns["busy"]

    def replaced(self, **columns: NDArray[np.int64]) -> Costs:
        return replace(self, columns=self.columns | columns)

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Returns what `replay` takes: the columns in their order, `first` and `reads`."""
        return *self.columns.values(), self.first, self.reads


_TRANSCENDENTAL = ("v_exp", "v_log", "v_rcp", "v_rsq", "v_sqrt", "v_sin", "v_cos")
_PACKED = ("v_pk_fma_f32", "v_pk_mul_f32", "v_pk_add_f32", "v_pk_mov_b32")
_PRIORITIES = 3
"""A mask of the priority bits that a program sets."""
_HALF_RATE = ("_f64", "_i64", "_u64", "_b64", "v_mul_lo_u32", "v_mul_hi")


@dataclass(frozen=True)
class _Facts:
    """The properties of one instruction.

    Attributes:
        unit: `Unit`.
        issue: Cycles until its wave may issue again.
        busy: Cycles that VECTOR or MATRIX is busy.
        vector, lgkm: How many accesses s_waitcnt leaves in flight; 63 and 15: any.
        counts_vector, counts_lgkm: Whether an access is counted by vmcnt and by lgkmcnt.
        direct: Whether data goes to LDS.
        store: Whether data goes to memory.
        reads: Rows of vector registers (0–511) that it reads; a matrix instruction's own accumulator is not among them.
        written, written_end: Rows that a matrix or a vector instruction writes.
        accumulator: First row that a matrix instruction adds to; -1: none.
        is_scaled: Whether a matrix instruction has scales.
        is_packed: Whether it is of packed float32.
        is_slow: Whether it is a transcendental function.
        is_narrow: Whether it moves 8 bytes a lane.
        rows: Rows of banks that an LDS instruction takes.
        priority: What s_setprio gives its wave; -1: it is as it was.
    """

    unit: Unit
    issue: int = CADENCE
    busy: int = CADENCE
    vector: int = NO_VECTOR_WAIT
    lgkm: int = NO_LGKM_WAIT
    counts_vector: bool = False
    counts_lgkm: bool = False
    direct: bool = False
    store: bool = False
    reads: tuple[int, ...] = ()
    written: int = 0
    written_end: int = 0
    accumulator: int = -1
    is_scaled: bool = False
    is_packed: bool = False
    is_slow: bool = False
    is_narrow: bool = False
    rows: int = 0
    priority: int = -1

    @classmethod
    def of(cls, i: Instruction) -> _Facts:
        name, reads = i.mnemonic, _rows(i.src)
        flight = Flight.of(i)
        if flight is not None and i.memory is not None:
            op = i.memory.op
            unit = Unit.GLOBAL if flight.vector else Unit.LDS if op.space == "lds" else Unit.SCALAR_MEMORY
            groups, _ = banks.phases(op.size, op.kind)
            return cls(
                unit, counts_vector=flight.vector, counts_lgkm=flight.lgkm, direct=flight.direct,
                store=op.kind == "store", reads=reads, is_narrow=op.size == 8, rows=len(groups) * op.accesses,
            )  # fmt: skip
        if i.encoding == "MFMA" and (shape := mfma.of(i)) is not None:
            (result,) = i.dst
            return cls(
                Unit.MATRIX, busy=CADENCE * shape.passes, reads=_rows((*i.src[:2], *i.src[3:])),
                written=result.vgpr, written_end=result.vgpr + result.dwords,
                accumulator=i.src[2].vgpr if i.src[2].is_vgpr else -1, is_scaled=shape.scaled,
            )  # fmt: skip
        if name == "s_waitcnt":
            vector, lgkm = waitcnt_fields(i.flag("simm16"))
            return cls(Unit.NONE, vector=vector, lgkm=lgkm)
        if name == "s_nop":
            return cls(Unit.NONE, issue=CADENCE * (i.flag("simm16") + 1))
        if name == "s_setprio":
            return cls(Unit.NONE, priority=i.flag("simm16") & _PRIORITIES)
        if name == "s_barrier":
            return cls(Unit.BARRIER)
        if name in VECTOR:
            slow = 2 if any(part in name for part in _HALF_RATE) else 1
            written = next((operand for operand in i.dst if operand.is_vgpr), None)
            return cls(
                Unit.VECTOR, issue=CADENCE * slow, busy=CADENCE * slow, reads=reads,
                written=0 if written is None else written.vgpr,
                written_end=0 if written is None else written.vgpr + written.dwords,
                is_packed=name in _PACKED, is_slow=name.startswith(_TRANSCENDENTAL),
            )  # fmt: skip
        if name in salu.BRANCHES:
            return cls(Unit.SCALAR, issue=CADENCE * 2)
        return cls(Unit.SCALAR if name.startswith("s_") else Unit.NONE)


def _rows(operands: Sequence[Operand]) -> tuple[int, ...]:
    return tuple(row for each in operands if each.is_vgpr for row in range(each.vgpr, each.vgpr + each.dwords))
