"""Waves of attention of many queries in turns: of two on a SIMD one multiplies while the other makes weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith, rocdl

from mxcomp.ukernels import builder
from mxcomp.ukernels.waves import SIMDS

STAGGERED = 2 * SIMDS
"""The number of waves that are two on each SIMD, of which one is a phase behind."""


def meet(in_flight: int) -> None:
    """Waits for all waves, and for what each of them has copied but for the last groups."""
    builder.wait_groups(in_flight)
    builder.fenced_barrier()


def fall_behind(waves: ir.Value) -> None:
    """Has some waves meet the others once more, which are a phase behind them from then on."""
    with builder.when(waves):
        builder.s_barrier()


def read_ahead(reads: Sequence[Callable[[], ir.Value]], count: int) -> Iterator[ir.Value]:
    """Returns fragments, some of which are read now, and each of the others so many before it is taken."""
    ahead = [read() for read in reads[:count]]

    def each() -> Iterator[ir.Value]:
        for i in range(len(reads)):
            ahead.extend(read() for read in reads[i + count : i + count + 1])
            yield ahead[i]

    return each()


def exhaust(moves: Iterator[None]) -> None:
    for _ in moves:
        pass


def is_anywhere(condition: ir.Value) -> ir.Value:
    """Returns whether a condition holds in any lane of a wave."""
    i64 = ir.IntegerType.get_signless(64)
    nowhere = arith.ConstantOp(i64, 0).result
    return arith.CmpIOp(arith.CmpIPredicate.ne, rocdl.ballot(i64, condition), nowhere).result
