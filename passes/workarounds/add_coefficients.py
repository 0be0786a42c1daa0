"""mxcomp-add-coefficients: adds the coefficients of a step of a Fourier transform.

One without ends the compiler. They are made for stages that are constant.

    %r:2 = iree_linalg_ext.fft ins(%c2 : index) outs(%re, %im : …)
    %r:2 = iree_linalg_ext.fft ins(%c2, %cos, %sin : index, tensor<2xf32>, tensor<2xf32>) outs(%re, %im : …)
"""

from __future__ import annotations

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.errors import InputError
from mxcomp.mlir import build, graph

_FFT = "iree_linalg_ext.fft"
_MOST = 20
"""The largest stage: 2 to this power elements, every other of which has a coefficient."""


def run(module: ir.Operation) -> None:
    """Rewrites steps below `module`. Raises InputError for an unknown stage."""
    graph.rewrite(module, lambda op: op.name == _FFT and len(op.operands) == 3, _add_coefficients)


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
    segments = ir.DenseI32ArrayAttr.get([1] * (3 + len(tensors)))
    new = graph.remade(op, [stage_value, *coefficients, *tensors], operandSegmentSizes=segments)
    graph.replace(op, *new.results)


def _constant(values: np.ndarray) -> ir.Value:
    kind = build.tensor_type(values.shape, "f32")
    return arith.ConstantOp(kind, ir.DenseElementsAttr.get(values.astype(np.float32))).result
