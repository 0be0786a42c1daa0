"""mxcomp-legalise-exclusive-scans: rewrites exclusive scans as inclusive scans of shifted elements.

IREE lets all threads of a workgroup add up the same accumulator where a scan leaves out the element itself. So it
gets the elements one place further on, behind the accumulator.

Before:

    %r:2 = iree_linalg_ext.scan dimension(0) inclusive(false) ins(%x : tensor<8xf32>)
        outs(%o, %start : tensor<8xf32>, tensor<f32>) { … }

After:

    %0 = tensor.extract_slice %x[0] [7] [1] : tensor<8xf32> to tensor<7xf32>
    %1 = tensor.insert_slice %start into %none[0] [1] [1] : tensor<f32> into tensor<8xf32>
    %2 = tensor.insert_slice %0 into %1[1] [7] [1] : tensor<7xf32> into tensor<8xf32>
    %r:2 = iree_linalg_ext.scan dimension(0) inclusive(true) ins(%2 : tensor<8xf32>)
        outs(%o, %start : tensor<8xf32>, tensor<f32>) { … }
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.mlir import build, graph

_SCAN = "iree_linalg_ext.scan"


def run(module: ir.Operation) -> None:
    """Rewrites scans below `module`."""
    graph.rewrite(module, is_exclusive, _include)


def is_exclusive(op: ir.Operation) -> bool:
    """Returns whether an operation is an exclusive scan."""
    return op.name == _SCAN and not ir.BoolAttr(op.attributes["inclusive"]).value


def _include(op: ir.Operation) -> None:
    x, _, start = op.operands
    axis = ir.IntegerAttr(op.attributes["dimension"]).value
    sizes = [build.dim(x, i) if size is None else size for i, size in enumerate(build.static_sizes(x))]
    length, zeros = sizes[axis], [0] * len(sizes)
    rest = length - 1 if isinstance(length, int) else arith.SubIOp(length, build.constant_index(1)).result
    shifted = build.empty(ir.RankedTensorType(x.type), [size for size in sizes if not isinstance(size, int)])
    shifted = build.inserted(start, shifted, zeros, [*sizes[:axis], 1, *sizes[axis + 1 :]])
    if rest != 0:
        others = [*sizes[:axis], rest, *sizes[axis + 1 :]]
        behind = [int(i == axis) for i in range(len(sizes))]
        shifted = build.inserted(build.sliced(x, zeros, others), shifted, behind, others)
    op.operands[0] = shifted
    op.attributes["inclusive"] = ir.BoolAttr.get(True)
