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
from iree.compiler.dialects import arith, tensor

from mxcomp.mlir import build, graph
from mxcomp.options import Options
from mxcomp.passes.workarounds import Computes, Workaround

WORKAROUND = Workaround(Computes("race"), upstream="iree-org/iree#20358")

_SCAN = "iree_linalg_ext.scan"


def run(module: ir.Operation, options: Options) -> None:
    """Rewrites scans below `module`."""
    for op in [op for op in graph.walk(module, bodies=False) if is_exclusive(op)]:
        with op.location, ir.InsertionPoint(op):
            _include(op)


def is_exclusive(op: ir.Operation) -> bool:
    """Returns whether an operation is an exclusive scan."""
    return op.name == _SCAN and not ir.BoolAttr(op.attributes["inclusive"]).value


def _include(op: ir.Operation) -> None:
    x, _, start = op.operands
    axis = ir.IntegerAttr(op.attributes["dimension"]).value
    sizes = [build.dim(x, i) if size is None else size for i, size in enumerate(build.static_sizes(x))]
    rest: list[ir.Value | int] = [*sizes]
    length = sizes[axis]
    rest[axis] = length - 1 if isinstance(length, int) else arith.SubIOp(length, build.constant_index(1)).result
    kind = ir.RankedTensorType(x.type)
    shifted = build.empty(kind, [size for size in sizes if not isinstance(size, int)])
    first: list[ir.Value | int] = [*sizes]
    first[axis] = 1
    shifted = _put(start, shifted, [0] * kind.rank, first)
    if rest[axis] != 0:
        offsets = [int(i == axis) for i in range(kind.rank)]
        shifted = _put(_front(x, rest), shifted, offsets, rest)
    op.operands[0] = shifted
    op.attributes["inclusive"] = ir.BoolAttr.get(True)


def _parts(sizes: list[ir.Value | int]) -> tuple[list[ir.Value], list[int]]:
    """Returns dynamic values, and all values with markers for the dynamic ones."""
    dynamic = ir.ShapedType.get_dynamic_size()
    given = [size for size in sizes if not isinstance(size, int)]
    return given, [size if isinstance(size, int) else dynamic for size in sizes]


def _front(value: ir.Value, sizes: list[ir.Value | int]) -> ir.Value:
    given, static = _parts(sizes)
    result = ir.RankedTensorType.get(static, build.element(value))
    zeros, ones = [0] * len(sizes), [1] * len(sizes)
    return tensor.ExtractSliceOp(result, value, [], given, [], zeros, static, ones).result


def _put(source: ir.Value, target: ir.Value, offsets: list[int], sizes: list[ir.Value | int]) -> ir.Value:
    given, static = _parts(sizes)
    return tensor.InsertSliceOp(source, target, [], given, [], offsets, static, [1] * len(sizes)).result
