"""mxcomp-legalise: what IREE 3.13 gets wrong or fails to compile, in a form that it gets right.

Conversions: `arith.truncf` to f4E2M1FN takes −0.3 to +0.5 and ties away from zero. One with scale 1 means the same, and
is a single instruction of the hardware.

Before:

    %q = arith.truncf %x : bf16 to f4E2M1FN

After:

    %one = arith.constant 1.0 : f8E8M0FNU
    %w = arith.extf %x : bf16 to f32
    %q = arith.scaling_truncf %w, %one : f32, f8E8M0FNU to f4E2M1FN

CPUs have no such instruction, and IREE's expansion takes 0.75 to 0: there (the reference for `mxcomp.verify`) codes are
calculated in integers.

Constants of 4-, 6- and 8-bit floats: IREE evaluates nothing that is computed from them. They become their bytes, those
of globals that never change, too (`mxcomp.codes.constants`).

    %w = arith.constant dense<…> : tensor<16x2x32xf8E4M3FN>   →   iree_tensor_ext.bitcast of a tensor<16x2x32xi8>

Bitcasts of tensors whose sizes are known, and hidden by a `tensor.cast`: of those passes, and IREE, know a part each.

    %d = tensor.cast %x : tensor<4x32xi8> to tensor<?x32xi8>
    %e = iree_tensor_ext.bitcast %d : tensor<?x32xi8>{%c4} -> …   →   a bitcast of %x, and a tensor.cast behind

Slices: a step along a dimension of which one element is taken says nothing, but IREE fails over it.

    tensor.extract_slice %x[0, 1] [4, 1] [1, 2]   →   tensor.extract_slice %x[0, 1] [4, 1] [1, 1]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.codes import constants, truncate
from mxcomp.errors import InputError
from mxcomp.matching.operands import SCALE_TYPE
from mxcomp.matching.quantiser import TRUNCATIONS
from mxcomp.matching.sizes import Sizes
from mxcomp.matching.storage import BITCASTS
from mxcomp.mlir import build, graph
from mxcomp.options import Options

_FP4 = "f4E2M1FN"
_SCALED = {"arith.scaling_extf": 1, "arith.scaling_truncf": 1}
"""Operations with a scale, and which operand it is."""


OPTIONS = ("reference",)


def run(module: ir.Operation, options: Options) -> None:
    """Rewrites conversions and slices below `module`. Raises InputError for scales without a meaning."""
    with module.context:
        for op in list(graph.walk(module)):
            if op.name in _SCALED:
                _check_scale(op)
            if op.name == "tensor.extract_slice":
                _drop_steps(op)
            elif op.name == "util.global":
                _store_bytes(op, module)
            elif op.name in _BITCASTS:
                _know_sizes(op)
            elif op.name == "arith.constant" and (data := constants.in_bytes(op.attributes["value"])) is not None:
                _replace(op, partial(_as_bytes, data))
            elif op.name in TRUNCATIONS and str(_element(op.results[0].type)) == _FP4:
                if options.reference and not _is_tensor(op.results[0]):
                    _replace(op, truncate.as_element)
                elif op.name == "arith.truncf":
                    _replace(op, _with_scale_one)


_BITCASTS = (*BITCASTS, "tensor.bitcast")


def _know_sizes(op: ir.Operation) -> None:
    """A bitcast of a tensor whose sizes a cast hides, as a cast of one of the tensor as it is."""
    source = graph.without_cast(op.operands[0])
    if source == op.operands[0] or not ir.RankedTensorType(source.type).has_static_shape:
        return
    kind, sizes = ir.RankedTensorType(op.results[0].type), Sizes()
    found = [sizes.of(op.results[0], dim) for dim in range(kind.rank)]
    if any(size.roots or size.factor.denominator != 1 for size in found):
        return
    with op.location, ir.InsertionPoint(op):
        known = build.tensor_type([int(each.factor) for each in found], kind.element_type)
        value = build.bitcast(source, known)
        value = value if known == kind else tensor.CastOp(kind, value).result
    op.results[0].replace_all_uses_with(value)
    op.erase()


def has_idle_steps(slicing: ir.Operation) -> bool:
    """Whether a slice has a step along a dimension of which it takes one element."""
    return list(slicing.opview.static_strides) != _needed_steps(slicing)


def _needed_steps(slicing: ir.Operation) -> list[int]:
    sizes, steps = slicing.opview.static_sizes, slicing.opview.static_strides
    return [1 if size == 1 and step != build.DYNAMIC else step for size, step in zip(sizes, steps, strict=True)]


def _drop_steps(op: ir.Operation) -> None:
    op.attributes["static_strides"] = ir.DenseI64ArrayAttr.get(_needed_steps(op))


def _as_bytes(data: ir.DenseElementsAttr, op: ir.Operation) -> ir.Value:
    return build.bitcast(arith.ConstantOp(data.type, data).result, op.results[0].type)


def _store_bytes(op: ir.Operation, module: ir.Operation) -> None:
    """Lets a global that never changes have bytes."""
    if "initial_value" not in op.attributes or "is_mutable" in op.attributes:
        return
    data, name = constants.in_bytes(op.attributes["initial_value"]), graph.symbol_name(op)
    if data is None:
        return
    for load in [each for each in graph.walk(module, bodies=False) if each.name == "util.global.load"]:
        if ir.FlatSymbolRefAttr(load.attributes["global"]).value == name:
            kind = load.results[0].type
            load.results[0].set_type(data.type)
            with load.location, ir.InsertionPoint.after(load):
                value = build.bitcast(load.results[0], kind)
            load.results[0].replace_all_uses_except(value, value.owner.operation)
    op.attributes["initial_value"], op.attributes["type"] = data, ir.TypeAttr.get(data.type)


def _check_scale(op: ir.Operation) -> None:
    kind = _element(op.operands[_SCALED[op.name]].type)
    if str(kind) != SCALE_TYPE and kind.width <= 8:
        raise InputError(
            f"{op.location}: {op.name} with a scale of type {kind}: expected {SCALE_TYPE}, or f16, "
            "bf16 or f32, of which the exponent is taken; extend other scales, and multiply (arith.extf, arith.mulf)"
        )


def _replace(op: ir.Operation, new: Callable[[ir.Operation], ir.Value]) -> None:
    with op.location, ir.InsertionPoint(op):
        value = new(op)
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _with_scale_one(op: ir.Operation) -> ir.Value:
    """`arith.truncf` as `arith.scaling_truncf`, by way of f32, which holds every f16 and bf16."""
    x, f32, e8m0 = op.operands[0], ir.F32Type.get(), ir.Float8E8M0FNUType.get()
    if _element(x.type).width < 32:
        x = arith.ExtFOp(_like(x.type, f32), x).result
    elif _element(x.type).width > 32:
        raise InputError(f"{op.location}: arith.truncf from {_element(x.type)} to {_FP4}: truncate it to f32 first")
    if isinstance(x.type, ir.RankedTensorType):
        one = build.filled(arith.ConstantOp(e8m0, 1.0).result, _like(x.type, e8m0), build.dynamic_sizes(x))
    else:
        one = arith.ConstantOp(e8m0, 1.0).result
    return arith.ScalingTruncFOp(op.results[0].type, x, one).result


def _is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def _element(kind: ir.Type) -> ir.Type:
    return ir.RankedTensorType(kind).element_type if isinstance(kind, ir.RankedTensorType) else kind


def _like(kind: ir.Type, element: ir.Type) -> ir.Type:
    """A type of the same shape, if it has one."""
    return ir.RankedTensorType.get(kind.shape, element) if isinstance(kind, ir.RankedTensorType) else element
