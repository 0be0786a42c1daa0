"""mxcomp-keep-branches-behind: keeps functions that branch out of the dispatch of a product that IREE compiles.

In its dispatch they may get what is read beyond a tensor's edge. That is poison in IREE's vectors, and branches on it
let LLVM take the whole kernel for unreachable.

Before:

    %r = linalg.matmul ins(%a, %b) outs(%zero) …
    %y = linalg.generic ins(%r, %bias : tensor<3x64xf32>, tensor<3x64xf32>) { … arith.addf … math.tanh … }

After:

    %r = linalg.matmul ins(%a, %b) outs(%zero) …
    %k = util.optimization_barrier %r : tensor<3x64xf32>
    %y = linalg.generic ins(%k, %bias : tensor<3x64xf32>, tensor<3x64xf32>) { … arith.addf … math.tanh … }
"""

from __future__ import annotations

from collections.abc import Iterator

from iree.compiler import ir

from mxcomp.matching.decision import decision_of
from mxcomp.matching.elements import RESHAPES
from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import is_elementwise, sums_products

_ROUNDINGS = ("ceil", "floor", "round", "roundeven", "trunc")
_SIMPLE = ("absf", "absi", "copysign", "exp", "exp2", "fma", "log", "log10", "log2", "rsqrt", "sqrt")
_BRANCHLESS = frozenset(f"math.{name}" for name in (*_ROUNDINGS, *_SIMPLE))
"""Functions that LLVM's AMDGPU target compiles to one or a few instructions without branches."""

_QUOTIENTS = ("ceildivsi", "ceildivui", "divsi", "divui", "floordivsi", "remsi", "remui")
_DIVISIONS = frozenset(f"arith.{name}" for name in _QUOTIENTS)


def run(module: ir.Operation) -> None:
    """Puts barriers behind products below `module` that are left to IREE, scaled or not."""
    for op in [op for op in graph.walk(module, bodies=False) if _is_left(op)]:
        _keep_branches_behind(op)


def _is_left(op: ir.Operation) -> bool:
    """Returns whether IREE builds the dispatch of a product."""
    decision = decision_of(op)
    if decision is not None:
        return not decision.is_ours
    return sums_products(op) and not graph.is_in_dispatch(op)


def _keep_branches_behind(op: ir.Operation) -> None:
    consumers = list(_fused(op))
    reads_more = any(len(user.operands) > 2 for user in consumers)  # more than a result and an init
    if reads_more and any(_branches(inner) for user in consumers for inner in graph.walk(user)):
        build.hide(op.results[0], op.results[0].uses)


def _fused(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yields the operations that IREE may fuse into the dispatch of a matmul."""
    for user in list(dict.fromkeys(use.owner.operation for use in op.results[0].uses)):
        if user.name in RESHAPES or (is_elementwise(user) and decision_of(user) is None):
            yield user
            yield from _fused(user)


def _branches(op: ir.Operation) -> bool:
    """Returns whether an operation may become branches, or undefined behaviour for some operands."""
    return (op.name.startswith("math.") and op.name not in _BRANCHLESS) or op.name in _DIVISIONS
