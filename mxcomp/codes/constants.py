"""Stores constants of 4-, 6- and 8-bit floats as bytes: IREE 3.13 does not constant-fold operations on these types.

%w = arith.constant dense<…> : tensor<16x2x32xf4E2M1FN>

%b = arith.constant dense<…> : tensor<16x2x16xi8>
%w = iree_tensor_ext.bitcast %b : tensor<16x2x16xi8> -> tensor<16x2x32xf4E2M1FN>
"""

from __future__ import annotations

import numpy as np
from iree.compiler import ir, passmanager
from iree.compiler.dialects import arith
from numpy.typing import NDArray

from mxcomp import formats
from mxcomp.mlir import build
from mxcomp.mlir.build import is_narrow

_BYTE = 8


def in_bytes(value: ir.Attribute) -> ir.DenseElementsAttr | None:
    """Returns the bytes of a constant tensor, in its shape but for the last dimension; None for other element types.

    Or if a row is no whole number of bytes, or they are a resource's, which nobody can read here.
    """
    if not isinstance(value, ir.DenseElementsAttr) or not isinstance(value.type, ir.RankedTensorType):
        return None
    kind = ir.RankedTensorType(value.type)
    if not isinstance(kind.element_type, ir.FloatType) or not is_narrow(kind.element_type) or not kind.rank:
        return None
    *rows, last = kind.shape
    bits = ir.FloatType(kind.element_type).width
    if not all((*rows, last)) or last * bits % _BYTE:
        return None
    with value.context, ir.Location.unknown():
        codes = _codes(value, kind, bits)
        packed = codes if bits == _BYTE else formats.pack_bits(codes, str(kind.element_type))
        if value.is_splat and (packed == packed.flat[0]).all():
            i8 = ir.IntegerType.get_signless(_BYTE)
            byte = ir.IntegerAttr.get(i8, int(packed.view(np.int8).flat[0]))
            return ir.DenseElementsAttr.get_splat(build.tensor_type(packed.shape, i8), byte)
        return ir.DenseElementsAttr.get(np.ascontiguousarray(packed).view(np.int8))


def _codes(value: ir.DenseElementsAttr, kind: ir.RankedTensorType, bits: int) -> NDArray[np.uint8]:
    """Returns one code a byte. The bindings cannot read such elements, but MLIR folds their bitcast to integers."""
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        integers = build.tensor_type(kind.shape, ir.IntegerType.get_signless(bits))
        codes = arith.BitcastOp(integers, arith.ConstantOp(kind, value).result).result
        if bits < _BYTE:
            codes = arith.ExtUIOp(build.tensor_type(kind.shape, "i8"), codes).result
        build.barrier(codes)
    passmanager.PassManager.parse("builtin.module(canonicalize)").run(module.operation)
    *_, kept = module.body.operations
    folded = kept.operation.operands[0].owner.operation.attributes["value"]
    return np.array(ir.DenseIntElementsAttr(folded)).view(np.uint8)
