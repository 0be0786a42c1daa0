"""Vector instructions: operand fetch, the table's function, modifiers, and the write under EXEC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mxcomp.sim.instruction import Dpp, Instruction, Operand
from mxcomp.sim.numpy.operands import VectorRead, vector_read, words_read
from mxcomp.sim.numpy.wave import Lanes, Step, Wave
from mxcomp.sim.semantics import VECTOR
from mxcomp.sim.semantics.lane import dpp_lanes, dpp_written, mask_of
from mxcomp.sim.semantics.modifiers import Source, fetched, result_words, sources
from mxcomp.sim.semantics.table import MASK32, VectorOp

_Write = Callable[[Wave, Any], None]


def vector_step(i: Instruction) -> Step:
    op = VECTOR[i.mnemonic]
    function, reads = op.lane_function(i), [vector_read(source) for source in sources(i, op)]
    if i.dpp is not None:
        reads[0] = _exchanged(i.dpp, sources(i, op)[0])
    if op.cross_lane:
        return _cross_lane(i, op, function, reads)
    letters = op.dst.ljust(len(i.dst), "M")  # v_cmpx writes its result to EXEC, too
    writes = [_writer(i, letter, operand) for letter, operand in zip(letters, i.dst, strict=True)]
    if len(writes) == 1:
        (write,) = writes
        return lambda w: write(w, function(*[read(w) for read in reads]))

    def several(w: Wave) -> None:
        found = function(*[read(w) for read in reads])
        results = [np.array(each) for each in (found if len(op.dst) > 1 else (found,) * len(writes))]
        for write, result in zip(writes, results, strict=True):  # copies: sources may be views of results' registers
            write(w, result)

    return several


@dataclass(frozen=True)
class _Exchange:
    """A DPP exchange: for each lane, the lane that its first source comes from.

    With bound_ctrl one that does not exist, or is not active, reads as 0; without it the lane keeps its result.
    """

    source: Lanes
    exists: Lanes
    enabled: Lanes
    bound: bool

    def read(self, word: Lanes, w: Wave) -> Lanes:
        values: Lanes = word[self.source]
        return np.where(self._there(w), values, values.dtype.type(0)) if self.bound else values

    def write(self, w: Wave, row: int, bits: Lanes) -> None:
        where = w.active & self.enabled
        np.copyto(w.v[row], bits, where=where if self.bound else where & self._there(w))

    def _there(self, w: Wave) -> Lanes:
        there: Lanes = self.exists & w.active[self.source]
        return there


@cache
def _exchange(dpp: Dpp) -> _Exchange:
    lanes = dpp_lanes(dpp.control)
    assert lanes is not None, "reserved control"
    return _Exchange(*lanes, dpp_written(dpp.row_mask, dpp.bank_mask), dpp.bound_control)


def _exchanged(dpp: Dpp, source: Source) -> VectorRead:
    """Returns a reader of the first source through DPP."""
    exchange = _exchange(dpp)
    assert source.operand is not None
    words = words_read(source.operand, source.letter)
    return lambda w: fetched([exchange.read(word, w) for word in words(w)], source)


# -- results


def _cross_lane(i: Instruction, op: VectorOp, function: Callable[..., Any], reads: list[VectorRead]) -> Step:
    def full(read: VectorRead, letter: str) -> VectorRead:
        return read if letter in "swxy" else lambda w: np.broadcast_to(read(w), 64)

    letters = op.src + ("u" if op.old else "")
    reads = [full(read, letter) for read, letter in zip(reads, letters, strict=True)]
    first = i.dst[0]
    if op.dst == "s":
        return lambda w: w.set32(first.code, function(w.active, *[read(w) for read in reads]) & MASK32)
    rows = [operand.vgpr for operand in i.dst]
    if op.dst in "wxy":
        rows = [first.vgpr + k for k in range(first.dwords)]
    single = op.dst == "u"

    def exchange(w: Wave) -> None:
        results = function(w.active, *[read(w) for read in reads])
        for row, result in zip(rows, (results,) if single else results, strict=True):
            if op.every_lane:
                w.v[row] = result
            else:
                w.put(row, result)

    return exchange


def _writer(i: Instruction, letter: str, operand: Operand) -> _Write:
    """Returns a writer of lanes of a type: output modifiers, canonical NaN, DPP and SDWA masks, EXEC."""
    if letter == "M":
        code = operand.code
        return lambda w, lanes: w.set64(code, mask_of(np.broadcast_to(lanes, 64) & w.active))
    row, words = operand.vgpr, result_words(i, letter)
    put = Wave.put if i.dpp is None else _exchange(i.dpp).write

    def write(w: Wave, value: Any) -> None:
        for k, word in enumerate(words(value, w.v[row])):
            put(w, row + k, word)

    return write
