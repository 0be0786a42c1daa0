"""mxcomp-group-factors: multiplies what belongs to one side of a contraction first.

IREE cannot distribute a contraction of three factors or more to threads, if a factor of the last product of its body
has not all loops of the sum. Others stay as they are: another order would round otherwise.

    (x[m, k] · y[n, k]) · s[m]   →   (x[m, k] · s[m]) · y[n, k]

Recognised matmuls, whose body it may be as well, have a canonical one by then.
"""

from __future__ import annotations

from functools import reduce

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.matching import factors
from mxcomp.matching.canonical import claimed
from mxcomp.matching.decision import decision_of
from mxcomp.mlir import graph
from mxcomp.mlir.linalg_ops import indexing_maps, iterators, yielded


def run(module: ir.Operation) -> None:
    """Rewrites contractions below `module` that are none of ours."""
    for op in graph.walk(module, bodies=False, outside=True):
        decision = decision_of(op)
        if op.name == "linalg.generic" and len(op.results) == 1 and (decision is None or not decision.is_ours):
            _group(op)


def _group(op: ir.Operation) -> None:
    maps = indexing_maps(op) or []
    found = factors.find(op, maps) if "reduction" in iterators(op) else None
    if found is None or max(map(len, found)) < 2 or claimed(op):
        return
    last = _last(op)
    if last is None or _is_distributed(op, maps, last):
        return
    if any(value.type != last.results[0].type for factor in found for value in factor):
        return
    with op.location, ir.InsertionPoint(last):
        sides = [reduce(lambda one, other: arith.MulFOp(one, other).result, factor) for factor in found]
        graph.replace(last, graph.copied(last, sides).results[0])


def _is_distributed(op: ir.Operation, maps: list[ir.AffineMap], last: ir.Operation) -> bool:
    """Returns whether both factors of the last product have all loops of the sum."""
    summed = {i for i, kind in enumerate(iterators(op)) if kind == "reduction"}
    return all(summed <= factors.loops_of(op, maps, factor) for factor in list(last.operands)[:2])


def _last(op: ir.Operation) -> ir.Operation | None:
    """Returns the operation that multiplies all factors, and perhaps adds their product."""
    add = graph.producer(yielded(op), "arith.addf", "math.fma")
    if add is None or add.name == "math.fma":
        return add
    terms = (graph.look_through(term, ("arith.extf", "arith.truncf")) for term in add.operands)
    return next(filter(None, (graph.producer(term, factors.MULTIPLY) for term in terms)), None)
