"""mxcomp-defer-narrow: computes at run time what depends on constants through elements of less than a byte.

IREE evaluates what depends on nothing but constants when it compiles, on the CPU, and computes elements of less than a
byte wrongly there, or not at all.

Before:

    %x = arith.constant dense<…> : tensor<64x256xf32>
    %q = linalg.generic … ins(%x : tensor<64x256xf32>) { arith.scaling_truncf … } -> tensor<64x256xf4E2M1FN>

After:

    %c = arith.constant dense<…> : tensor<64x256xf32>
    %x = util.optimization_barrier %c : tensor<64x256xf32>
    %q = linalg.generic … ins(%x : tensor<64x256xf32>) { arith.scaling_truncf … } -> tensor<64x256xf4E2M1FN>
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.matching.decision import is_recognised
from mxcomp.matching.storage import GATHER
from mxcomp.mlir import graph
from mxcomp.mlir.build import is_sub_byte
from mxcomp.mlir.linalg_ops import indexing_maps
from mxcomp.passes.defer_constants import defer


def run(module: ir.Operation) -> None:
    """Puts barriers behind constants below `module` that quantisers, or readers of their elements, depend on."""
    varying = set[ir.Operation]()
    for op in [op for op in graph.walk(module, bodies=False) if _is_narrow(op)]:
        defer([op], varying)


def _is_narrow(op: ir.Operation) -> bool:
    """Returns whether a linalg op reads, computes or returns elements of less than a byte. A gather is never
    computed."""
    if indexing_maps(op) is None or not op.results or is_recognised(op) or GATHER in op.attributes:
        return False
    kinds = [argument.type for argument in op.regions[0].blocks[0].arguments]
    kinds += [value.type for inner in graph.walk(op) for value in inner.results]
    return any(map(is_sub_byte, kinds))
