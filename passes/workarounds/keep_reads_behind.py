"""mxcomp-keep-reads-behind: materialises values computed from elements of less than a byte, where a part is read.

So where it is sliced, or read at places that a body computes. IREE moves such reads in front of the computation, and
cannot load parts of less than a byte; slices with steps it cannot compile in one dispatch with it.

Before:

    %d = linalg.generic … ins(%w : tensor<64x64xf4E2M1FN>) … -> tensor<64x64xf32>
    %s = tensor.extract_slice %d[0, 3] [64, 9] [1, 1] : tensor<64x64xf32> to tensor<64x9xf32>

After:

    %d = linalg.generic … ins(%w : tensor<64x64xf4E2M1FN>) … -> tensor<64x64xf32>
    %h = util.optimization_barrier %d : tensor<64x64xf32>
    %s = tensor.extract_slice %h[0, 3] [64, 9] [1, 1] : tensor<64x64xf32> to tensor<64x9xf32>
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from iree.compiler import ir

from mxcomp.matching.elements import RESHAPES
from mxcomp.matching.storage import GATHER
from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import indexing_maps
from mxcomp.passes.workarounds.unpack_elements import is_calculation, is_narrow_tensor

_SLICE = "tensor.extract_slice"


def run(module: ir.Operation) -> None:
    """Puts barriers behind values computed from narrow elements below `module` where IREE would move a read of them."""
    reads = defaultdict[ir.Value, set[ir.Operation]](set)
    for read in (read for op in graph.walk(module, bodies=False, outside=True) for read in _movable(op)):
        reads[read.operands[0]].add(read)
    for value in filter(_loads_narrow, reads):
        build.hide(value, [use for use in value.uses if use.owner.operation in reads[value] and not use.operand_number])


def _movable(op: ir.Operation) -> Iterator[ir.Operation]:
    """Yields the reads of a part of a tensor that IREE moves, or fuses with its producer: slices, and reads in
    bodies."""
    if op.name == _SLICE:
        if _is_used(op):
            yield op
    elif indexing_maps(op) is not None and GATHER not in op.attributes:
        yield from (inner for inner in graph.walk(op) if inner.name == "tensor.extract")


def _is_used(op: ir.Operation) -> bool:
    return any(True for _ in op.results[0].uses)


def _loads_narrow(value: ir.Value) -> bool:
    """Returns whether a tensor is computed from elements of less than a byte that IREE would load for it."""
    made_of = graph.producers([value], lambda op: op.name in RESHAPES or is_calculation(op))
    return any(is_narrow_tensor(operand) for op in made_of for operand in op.operands)
