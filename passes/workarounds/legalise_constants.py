"""mxcomp-legalise-constants: stores constants of 4-, 6- and 8-bit floats as bytes.

IREE 3.13 does not constant-fold operations on these types, and evaluates nothing that is computed from constants of
them, those of globals that never change among them.

    %w = arith.constant dense<…> : tensor<16x2x32xf8E4M3FN>   →   iree_tensor_ext.bitcast of a tensor<16x2x32xi8>
"""

from __future__ import annotations

import numpy as np
from iree.compiler import ir, passmanager
from iree.compiler.dialects import arith
from numpy.typing import NDArray

from mxcomp import formats
from mxcomp.mlir import build, graph, variables
from mxcomp.mlir.build import is_narrow

_BYTE = 8


def run(module: ir.Operation) -> None:
    """Rewrites constants and globals below `module`."""
    for op in list(graph.walk(module)):
        if op.name == variables.GLOBAL:
            _store_bytes(op, module)
        elif op.name == "arith.constant" and (data := _in_bytes(op.attributes["value"])) is not None:
            with op.location, ir.InsertionPoint(op):
                value = build.bitcast(arith.ConstantOp(data.type, data).result, op.results[0].type)
            graph.replace(op, value)


def _store_bytes(op: ir.Operation, module: ir.Operation) -> None:
    """Makes an immutable global store bytes."""
    if "initial_value" not in op.attributes or variables.is_mutable(op):
        return
    data, name = _in_bytes(op.attributes["initial_value"]), graph.symbol_name(op)
    if data is None:
        return
    for load in [each for each in graph.walk(module, bodies=False) if each.name == variables.LOAD]:
        if ir.FlatSymbolRefAttr(load.attributes[variables.SYMBOL]).value == name:
            kind = load.results[0].type
            load.results[0].set_type(data.type)
            with load.location, ir.InsertionPoint.after(load):
                value = build.bitcast(load.results[0], kind)
            load.results[0].replace_all_uses_except(value, value.owner.operation)
    op.attributes["initial_value"], op.attributes["type"] = data, ir.TypeAttr.get(data.type)


def _in_bytes(value: ir.Attribute) -> ir.DenseElementsAttr | None:
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
