"""mxcomp-recognise: finds MX scaled matmuls, in whatever form a model spells them, and gives them one form.

Before (one of many spellings; scales may be broadcast, blocks collapsed, operands and body in any order):

    %d = linalg.generic … ins(%a, %as : tensor<64x8x32xf4E2M1FN>, tensor<64x8xf8E8M0FNU>) {
      … %0 = arith.extf %x   %1 = arith.extf %s   %2 = arith.mulf %0, %1   linalg.yield %2
    } -> tensor<64x8x32xf32>
    %c = tensor.collapse_shape %d [[0], [1, 2]] : tensor<64x8x32xf32> into tensor<64x256xf32>
    …
    %r = linalg.matmul indexing_maps = […] ins(%c, %e : tensor<64x256xf32>, tensor<128x256xf32>) outs(%zero)

After:

    %r = linalg.generic {indexing_maps = [(m, n, ko, kb) -> (m, ko, kb), (n, ko, kb), (m, ko), (n, ko), (m, n)], …,
                         mxcomp.scaled_matmul = {}}
         ins(%a, %b, %as, %bs) outs(%zero) {
      … arith.scaling_extf %a, %as   arith.scaling_extf %b, %bs   arith.mulf   arith.addf
    } -> tensor<64x128xf32>

A batch of both operands is one more dimension; one of the LHS alone counts as rows, and the result is expanded again.
A result whose dimensions come in another order ([t, h, d] of a batch h) is a transposed one. Operands in
another order in memory become gathers (`mxcomp.matching.storage`). An accumulator that is not zero is added behind.

Activations of bf16 that are not quantised may be multiplied with MX weights, where there are few rows of them: LHS is
then what it is, with scales of 1.

What looks like a scaled matmul but is not one of ours keeps its form and gets a reason:
`mxcomp.scaled_matmul = {reason = "block size 16: expected a multiple of 32"}`.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.matching import contraction, softmax
from mxcomp.matching.canonicalise import rewrite
from mxcomp.matching.contraction import Candidate
from mxcomp.matching.decision import Decision, decide, decision_of
from mxcomp.matching.operands import NotOursError
from mxcomp.mlir import build, graph
from mxcomp.mlir.build import is_narrow
from mxcomp.options import Options
from mxcomp.target import Target

OPTIONS = ("reference",)


def run(module: ir.Operation, options: Options) -> None:
    """Rewrites every recognised scaled matmul below `module`. Raises InputError where K is not a multiple of 32."""
    candidates = find(module, None if options.reference else options.target)
    for candidate in candidates:
        rewrite(candidate)
    # Producers come before users in each list, and so in all of them together.
    for op in reversed(dict.fromkeys(op for candidate in candidates for op in candidate.ops)):
        graph.erase_dead(op)


def find(module: ir.Operation, target: Target | None = None) -> list[Candidate]:
    """Returns the scaled matmuls below `module` that are ours; the others get a reason. Raises InputError.

    With a `target`, those of activations that are not quantised are ours, too: nothing but a ukernel computes them.
    """
    candidates: list[Candidate] = []
    ops = list(graph.walk(module, bodies=False))
    with module.context:
        of_attention = {each for op in ops if (found := softmax.find(op)) is not None for each in found.products}
    for op in ops:
        if decision_of(op) is not None or op in of_attention:
            continue
        try:
            candidate = contraction.match(op, target)
        except NotOursError as other:
            decide(op, Decision(reason=str(other), warning=other.warning or None))
            continue
        if candidate is not None:
            candidates.append(candidate)
    return _without_shared(candidates)


def _without_shared(candidates: list[Candidate]) -> list[Candidate]:
    """Drops candidates whose dequantised operands have other users, as these are computed anyway."""
    while True:
        own = {op for candidate in candidates for op in (candidate.root, *candidate.ops)}
        kept = []
        for candidate in candidates:
            user = next((use for op in candidate.ops if (use := _foreign_use(op, own)) is not None), None)
            if user is None:
                kept.append(candidate)
            else:
                decide(candidate.root, Decision(reason=f"a dequantised operand is also used at {user.location}"))
        if len(kept) == len(candidates):
            return kept
        candidates = kept


def _foreign_use(op: ir.Operation, own: set[ir.Operation]) -> ir.Operation | None:
    if is_narrow(build.element(op.results[0])):
        return None  # a stored operand can be shared for free
    users = (use.owner.operation for use in op.results[0].uses)
    return next((user for user in users if user not in own and user.name != "tensor.dim"), None)
