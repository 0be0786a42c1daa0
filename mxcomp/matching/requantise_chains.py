"""Finds pairs of matmuls in which the LHS of one is quantised from the result of the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.layout import LHS, LHS_SCALE
from mxcomp.layout.inner_tiles import MFMA
from mxcomp.layout.problem import Problem
from mxcomp.layout.swizzle import ROWS
from mxcomp.matching import quantiser, replacing
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.elements import Index
from mxcomp.matching.quantiser import Producer
from mxcomp.matching.replacing import Reading
from mxcomp.mlir import build
from mxcomp.ukernels.data_tiled import REQUANTISING
from mxcomp.ukernels.quantising import MOST_ROWS

_MULTIPLE = REQUANTISING.layout.tile[ROWS]
"""The number that K of the next matmul must be a multiple of: a tile of the ukernel."""


@dataclass(frozen=True)
class Chain:
    """A matmul that the LHS of another one is quantised from, and that one, for which it may be packed there, too.

    `objection` says why its LHS cannot be quantised where the result is computed; "" if it can.
    """

    result: ir.Operation
    consumer: ir.Operation
    packed: bool
    objection: str

    @property
    def ops(self) -> list[ir.Operation]:
        """The matmuls that are to be computed transposed."""
        return [self.result, self.consumer] if self.packed else [self.result]


def find(recognised: list[ir.Operation], watched: bool) -> Iterator[Chain]:
    """Returns the chains among matmuls in canonical form without a decision, in the order of the program.

    Of up to `MOST_ROWS` rows there are none: matmuls may quantise an LHS of so few where they multiply it. Nor are
    there of several results that are combined, as gate and up: to have the others read in a tile never was faster.
    Where operands are `watched`, by `mxcomp.verify`, all of them are used elsewhere, and nothing is replaced.
    """
    ours = {op.results[0]: op for op in recognised}
    for op in recognised:
        problem = problem_of(op)
        if problem.batch or (problem.m or 0) <= MOST_ROWS:
            continue
        producer = quantiser.find(op.operands[LHS], op.operands[LHS_SCALE])
        found = producer.reads(wide=True) if producer is not None else set()
        if producer is None or len(found) != 1 or not found <= set(ours):
            continue
        packed = is_packed(problem)
        ends = [Reading(op, index, None) for index in (LHS, LHS_SCALE)]
        reason = "" if watched else objection(producer, found, problem, ends, packed)
        if not reason and (not problem.k or problem.k % _MULTIPLE):
            reason = f"the next matmul has K = {problem.k}: expected a multiple of {_MULTIPLE}"
        yield Chain(ours[found.pop()], op, packed, reason)


def is_packed(problem: Problem) -> bool:
    """Returns whether the LHS of a problem is packed in the tile that it is quantised in.

    Blocks of 8-bit elements lie in two lanes each: they are stored row by row.
    """
    return MFMA.holds_blocks(problem.types[LHS])


def objection(
    producer: Producer,
    results: Iterable[ir.Value],
    problem: Problem,
    ends: Sequence[Reading],
    packed: bool,
    sizes_known: bool = False,
) -> str:
    """Returns why `producer`, of the LHS of `problem`, cannot be fused where `results` are computed; "" if it can.

    `ends` read elements and scales. What is `packed` there has no other readers; else they read what it is replaced by.
    With `sizes_known` the fusion answers questions for dynamic sizes.
    """
    readings = [*producer.readings, *ends]
    row = Index("row", 1, problem.m and problem.matrices * problem.m)
    rows = row.split([*problem.batch, problem.m]) if problem.batch else [row]
    at = (*rows, Index("k", 1, problem.k))
    for result in results:
        kind = build.tensor_type((*problem.batch, problem.m, problem.k), build.element(result))
        if reason := replacing.objection(result, readings, kind, at, sizes_known):
            return reason
    replaced = set() if packed else {end.user.operands[end.operand] for end in ends}
    between = [reading.user.results[0] for reading in producer.readings]
    others = (value for value in between if value not in replaced)
    reasons = (replacing.objection(value, readings, sizes_known=sizes_known) for value in others)
    return next(filter(None, reasons), "")
