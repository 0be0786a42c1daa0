"""mxcomp-legalise-scans: scans without the element itself or of one value; Fourier transforms without coefficients.

IREE 3.13 lets all threads of a workgroup add up the same accumulator where a scan leaves out the element itself. So it
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

What a scan adds up is filled in a kernel of its own. IREE fills it in that of the scan, if what the scan writes over is
there already: one thread fills memory that all of a workgroup share, and the others read it without waiting.

    %f = linalg.fill ins(%c : f32) outs(%e : tensor<65x32xf32>) -> tensor<65x32xf32>
    %x = util.optimization_barrier %f : tensor<65x32xf32>
    %r:2 = iree_linalg_ext.scan dimension(1) inclusive(true) ins(%x : tensor<65x32xf32>) outs(%o, %start : …) { … }

A step of a transform without coefficients ends the compiler. They are made for stages that are constant.

    %r:2 = iree_linalg_ext.fft ins(%c2 : index) outs(%re, %im : …)
    %r:2 = iree_linalg_ext.fft ins(%c2, %cos, %sin : index, tensor<2xf32>, tensor<2xf32>) outs(%re, %im : …)
"""

from __future__ import annotations

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.errors import InputError
from mxcomp.mlir import build, graph
from mxcomp.options import Options

_SCAN, _FFT = "iree_linalg_ext.scan", "iree_linalg_ext.fft"
_PARTS = ("tensor.extract_slice", "tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")
_MOST = 20
"""Stages: of as many elements as 2 to this power, of which every other has a coefficient."""


def run(module: ir.Operation, options: Options) -> None:
    """Rewrites each below `module`."""
    with module.context:
        for op in [op for op in graph.walk(module, bodies=False) if op.name in (_SCAN, _FFT)]:
            with op.location, ir.InsertionPoint(op):
                if op.name == _FFT and len(op.operands) == 3:
                    _add_coefficients(op)
                elif is_exclusive(op):
                    _include(op)
                elif is_filled(op):
                    op.operands[0] = build.barrier(op.operands[0])


def is_exclusive(op: ir.Operation) -> bool:
    """Whether an operation is a scan without the element itself."""
    return op.name == _SCAN and not ir.BoolAttr(op.attributes["inclusive"]).value


def is_filled(op: ir.Operation) -> bool:
    """Whether an operation is a scan of a tensor of one value, or of a part of it."""
    source = graph.producer(graph.behind(op.operands[0], _PARTS)) if op.name == _SCAN else None
    return source is not None and source.name == "linalg.fill"


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
    """Dynamic ones, and all with marks in their places."""
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


def _add_coefficients(op: ir.Operation) -> None:
    stage = graph.number(op.operands[0])
    if stage is None or not 1 <= stage <= _MOST:
        raise InputError(
            f"{op.location}: {op.name} without coefficients, with a stage that is no constant from 1 to {_MOST}: "
            "give both tensors of coefficients"
        )
    angles = -2 * np.pi * np.arange(1 << (stage - 1)) / (1 << stage)
    coefficients = [_constant(values) for values in (np.cos(angles), np.sin(angles))]
    stage_value, *tensors = op.operands
    new = ir.Operation.create(
        op.name,
        [result.type for result in op.results],
        [stage_value, *coefficients, *tensors],
        {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 1, 1, 1])},
    )
    for old, result in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(result)
    op.erase()


def _constant(values: np.ndarray) -> ir.Value:
    kind = build.tensor_type(values.shape, "f32")
    return arith.ConstantOp(kind, ir.DenseElementsAttr.get(values.astype(np.float32))).result
