"""mxcomp-legalise-truncations: gives conversions to f4E2M1FN a scale of 1.

IREE's `arith.truncf` to f4E2M1FN takes −0.3 to +0.5 and ties away from zero. One with scale 1 means the same, and is a
single instruction of the hardware.

Before:

    %q = arith.truncf %x : bf16 to f4E2M1FN

After:

    %one = arith.constant 1.0 : f8E8M0FNU
    %w = arith.extf %x : bf16 to f32
    %q = arith.scaling_truncf %w, %one : f32, f8E8M0FNU to f4E2M1FN

CPUs have no such instruction, and IREE's expansion takes 0.75 to 0: there (the reference for `mxcomp.verify`) codes are
calculated in integers.
"""

from __future__ import annotations

from collections.abc import Callable

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.codes import truncate
from mxcomp.errors import InputError
from mxcomp.matching.quantiser import TRUNCATIONS
from mxcomp.mlir import build, graph
from mxcomp.options import Options

_FP4 = "f4E2M1FN"

OPTIONS = ("reference",)


def run(module: ir.Operation, options: Options) -> None:
    """Rewrites conversions below `module`. Raises InputError for those from more than 32 bits."""
    for op in list(graph.walk(module)):
        if op.name in TRUNCATIONS and str(build.element(op.results[0])) == _FP4:
            if options.reference and not build.is_tensor(op.results[0]):
                _replace(op, truncate.as_element)
            elif op.name == "arith.truncf":
                _replace(op, _with_scale_one)


def _replace(op: ir.Operation, new: Callable[[ir.Operation], ir.Value]) -> None:
    with op.location, ir.InsertionPoint(op):
        value = new(op)
    graph.replace(op, value)


def _with_scale_one(op: ir.Operation) -> ir.Value:
    """Returns `arith.truncf` as `arith.scaling_truncf`, by way of f32, which represents every f16 and bf16."""
    x, f32, e8m0 = op.operands[0], ir.F32Type.get(), ir.Float8E8M0FNUType.get()
    if (kind := build.element(x)).width < 32:
        x = arith.ExtFOp(_like(x.type, f32), x).result
    elif kind.width > 32:
        raise InputError(f"{op.location}: arith.truncf from {kind} to {_FP4}: truncate it to f32 first")
    if build.is_tensor(x):
        one = build.filled(arith.ConstantOp(e8m0, 1.0).result, _like(x.type, e8m0), build.dynamic_sizes(x))
    else:
        one = arith.ConstantOp(e8m0, 1.0).result
    return arith.ScalingTruncFOp(op.results[0].type, x, one).result


def _like(kind: ir.Type, element: ir.Type) -> ir.Type:
    """Returns a type of the same shape, if it has one."""
    return ir.RankedTensorType.get(kind.shape, element) if isinstance(kind, ir.RankedTensorType) else element
