"""mxcomp-import-torch: lowers the operators of `mxcomp.torch` to linalg.

Before, as PyTorch's exporters write a custom operator:

    %w = torch.vtensor.literal(…) : !torch.vtensor<[128,128],ui8>
    %s = torch.vtensor.literal(…) : !torch.vtensor<[128,8],ui8>
    %0 = torch.constant.str "E2M1"   %1 = torch.constant.str "E2M1"   %2 = torch.constant.str "even"
    %y = torch.operator "torch.mxcomp.scaled_linear"(%x, %w, %s, %0, %1, %2) : … -> !torch.vtensor<[64,128],f32>

After:

    %xb = torch_c.to_builtin_tensor %x : !torch.vtensor<[64,256],f32> -> tensor<64x256xf32>   (and others)
    %amax = linalg.generic …   %as = linalg.generic …   %a = linalg.generic … { arith.scaling_truncf }
    %b = iree_tensor_ext.bitcast %wb : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>         (and scales)
    %r = linalg.generic … ins(%a, %b, %as, %bs) { arith.scaling_extf … } -> tensor<64x128xf32>
    %y = torch_c.from_builtin_tensor %r : tensor<64x128xf32> -> !torch.vtensor<[64,128],f32>
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from iree.compiler import ir

from mxcomp import ir as mx
from mxcomp.errors import InputError
from mxcomp.formats import E8M0, FORMATS, MX_BLOCK, element_format
from mxcomp.ir import blocks
from mxcomp.ir.attention import POWERS, objection, quantised_attention
from mxcomp.ir.quantisation import SCALE_CARRIES, UNQUANTISED, quantise
from mxcomp.matching.canonical import scaled_matmul
from mxcomp.mlir import build, graph
from mxcomp.mlir.attributes import UNSIGNED_RESULTS, from_python
from mxcomp.moe import experts_operator

_VTENSOR = re.compile(r"!torch\.vtensor<\[(?P<sizes>[0-9?,]*)\],(?P<kind>\w+)>")
_SIGN = re.compile(r"^[su]i(?=\d)")


def run(module: ir.Operation) -> None:
    """Replaces every operator of ours below `module`. Raises InputError for invalid ones."""
    for op in [op for op in graph.walk(module, bodies=False) if _name(op) in _OPERATORS]:
        with op.context, op.location, ir.InsertionPoint(op):
            _replace(op)
    functions = [view.operation for view in graph.module_block(module).operations if view.operation.name == "func.func"]
    unsigned = {graph.symbol_name(op): found for op in functions if (found := _unsigned(op))}
    if unsigned:
        with module.context:
            module.attributes[UNSIGNED_RESULTS] = from_python(unsigned)


def _unsigned(function: ir.Operation) -> list[int]:
    """Returns the numbers of results that are unsigned integers, which IREE's importer makes signless ones of."""
    results = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).results
    found = (_VTENSOR.fullmatch(str(kind)) for kind in results)
    return [i for i, each in enumerate(found) if each is not None and each["kind"].startswith("ui")]


def _name(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["name"]).value if op.name == "torch.operator" else ""


def _replace(op: ir.Operation) -> None:
    operator = _OPERATORS[_name(op)]
    known, choices = operator.tensors, operator.choices
    count, behind = len(known), len(known) + len(choices)
    if len(op.operands) != behind + len(operator.numbers):
        raise _refused(op, f"expected {', '.join([*known, *choices, *operator.numbers])}")
    chosen = [_string(op, choice) for choice in list(op.operands)[count:behind]]
    for (what, among), each in zip(choices.items(), chosen, strict=True):
        if each not in among:
            raise _refused(op, f"{what} '{each}': expected one of {', '.join(among)}")
    tensors = [_builtin(op, each, value) for each, value in zip(known, op.operands, strict=False)]
    numbers = [_number(op, value) for value in list(op.operands)[behind:]]
    for result, value in zip(op.results, operator.build(op, tensors, chosen, numbers), strict=True):
        back = ir.Operation.create("torch_c.from_builtin_tensor", results=[result.type], operands=[value]).result
        result.replace_all_uses_with(back)
    op.erase()


def _refused(op: ir.Operation, why: str) -> InputError:
    return InputError(f"{op.location}: {_name(op)}: {why}")


def _string(op: ir.Operation, value: ir.Value) -> str:
    constant = _constant(value, "torch.constant.str")
    if constant is None:
        raise _refused(op, "formats and mode must be constant strings")
    return ir.StringAttr(constant).value


def _number(op: ir.Operation, value: ir.Value) -> float:
    if (truth := _constant(value, "torch.constant.bool")) is not None:
        return bool(ir.IntegerAttr(truth).value)
    constant = _constant(value, "torch.constant.float")
    if constant is None:
        raise _refused(op, f"{', '.join(_OPERATORS[_name(op)].numbers)} must be constant numbers")
    return ir.FloatAttr(constant).value


def _constant(value: ir.Value, kind: str) -> ir.Attribute | None:
    return None if (op := graph.producer(value, kind)) is None else op.attributes["value"]


def _builtin(op: ir.Operation, name: str, value: ir.Value) -> ir.Value:
    """Returns an operand as a builtin tensor, in whose type integers have no sign. Raises InputError.

    The bindings know the type, a `!torch.vtensor<[64,256],f32>`, as text only.
    """
    text, kinds = str(value.type), _OPERATORS[_name(op)].tensors[name]
    found, result = _VTENSOR.fullmatch(text), builtin_type(text)
    if found is None or result is None or found["kind"] not in kinds:
        *most, last = kinds
        expected = f"{', '.join(most)} or {last}" if most else last
        raise _refused(op, f"{name} is {text}: expected a tensor of {expected}")
    return ir.Operation.create("torch_c.to_builtin_tensor", results=[result], operands=[value]).result


def builtin_type(text: str) -> ir.Type | None:
    """Returns the builtin tensor type for the text of a `!torch.vtensor` of known rank; None for any other text."""
    found = _VTENSOR.fullmatch(text)
    if found is None:
        return None
    sizes = [None if size == "?" else int(size) for size in found["sizes"].split(",") if size]
    return build.tensor_type(sizes, _SIGN.sub("i", found["kind"]))


def _check_shapes(op: ir.Operation, x: ir.Value, weight: ir.Value, scale: ir.Value, weight_format: str) -> None:
    shapes = [build.static_sizes(value) for value in (x, weight, scale)]
    if [len(shape) for shape in shapes] == [2, 2, 2]:
        (_, k), (n, _), _ = shapes
        row = None if k is None else k * element_format(weight_format).bits // 8
        if None not in (k, n) and (k or 0) % MX_BLOCK == 0 and shapes[1:] == [[n, row], [n, (k or 0) // MX_BLOCK]]:
            return
    raise _refused(
        op,
        f"x {shapes[0]}, weight {shapes[1]} bytes, scales {shapes[2]}: expected [M, K], "
        f"[N, K · {element_format(weight_format).bits}/8] and [N, K/{MX_BLOCK}], "
        f"K a multiple of {MX_BLOCK}, N and K not dynamic",
    )


def _linear(op: ir.Operation, tensors: list[ir.Value], chosen: list[str], _: list[float]) -> list[ir.Value]:
    """Returns the product in canonical form, [M, N] of x's element type."""
    x, weight, scale = tensors
    weight_format, input_format, mode = chosen
    _check_shapes(op, x, weight, scale, weight_format)
    k, n = build.static_sizes(x)[1], build.static_sizes(weight)[0]
    count, element = (k or 0) // MX_BLOCK, element_format(weight_format).mlir_type
    quantised = None if input_format == UNQUANTISED else quantise(x, element_format(input_format).mlir_type, mode)
    b = build.bitcast(weight, build.tensor_type((n, count, MX_BLOCK), element))
    b_scale = build.bitcast(scale, build.tensor_type((n, count), E8M0.mlir_type))
    if quantised is None:
        plain = mx.elementwise(lambda value: value, x, result=UNQUANTISED)
        result = mx.dequantised_matmul(plain, mx.Operand(b, b_scale))
    else:
        a, a_scale = quantised
        result = scaled_matmul(a, b, a_scale, b_scale)
    kind = build.element(x)
    return [result if kind == ir.F32Type.get() else build.cast(result, kind, build.dynamic_sizes(x))]


def _experts(_: ir.Operation, tensors: list[ir.Value], chosen: list[str], numbers: list[float]) -> list[ir.Value]:
    weight_format, input_format, mode = chosen
    return [experts_operator.build_layer(tensors, weight_format, input_format, mode, *numbers)]


def _attention(op: ir.Operation, tensors: list[ir.Value], chosen: list[str], numbers: list[float]) -> list[ir.Value]:
    """Returns [batch, heads, T, value size] of the queries' element type."""
    (scale, is_causal), (qk_format, value_format, weights_format, powers, mode) = numbers, chosen
    query, key, value = shapes = [build.static_sizes(each) for each in tensors]
    kinds = {str(build.element(each)) for each in tensors}
    is_known = all(len(each) == 4 and None not in each for each in shapes) and len(kinds) == 1
    alike = is_known and key[:3] == value[:3] and [query[0], query[3]] == [key[0], key[3]]
    if not alike or (query[1] or 0) % (key[1] or 1) or (query[3] or 0) % MX_BLOCK:
        raise _refused(
            op,
            f"{', '.join(str(each.type) for each in tensors)}: expected static queries "
            f"[batch, heads, T, size], keys [batch, key heads, L, size] and values [batch, key heads, L, value size] "
            f"of one type, heads a multiple of key heads, and the size one of {MX_BLOCK}",
        )
    formats = qk_format, value_format, weights_format
    if why := objection(powers, weights_format):
        raise _refused(op, why)
    return [quantised_attention(tensors[0], tensors[1], tensors[2], formats, mode, scale, bool(is_causal), powers)]


def _quantise(op: ir.Operation, tensors: list[ir.Value], chosen: list[str], _: list[float]) -> list[ir.Value]:
    _check_rows(op, tensors)
    return blocks.quantised(tensors[0], element_format(chosen[0]).mlir_type, chosen[1])


def _dequantise(op: ir.Operation, tensors: list[ir.Value], chosen: list[str], _: list[float]) -> list[ir.Value]:
    _check_rows(op, tensors)
    return [blocks.dequantised(*tensors, *chosen)]


def _check_rows(op: ir.Operation, tensors: list[ir.Value]) -> None:
    shapes = [build.static_sizes(each) for each in tensors]
    if any(len(shape) < 2 or shape[-1] is None for shape in shapes):
        kinds = ", ".join(str(each.type) for each in tensors)
        raise InputError(f"{op.location}: {_name(op)} of {kinds}: expected two sizes or more, the last one static")


@dataclass(frozen=True)
class _Operator:
    """An operator of ours, by the names of its operands.

    These are tensors, with their element types, then formats and perhaps other choices, with their possible values,
    and numbers. `build` lowers the operator, given these.
    """

    tensors: dict[str, tuple[str, ...]]
    choices: dict[str, Collection[str]]
    numbers: tuple[str, ...]
    build: Callable[[ir.Operation, list[ir.Value], list[str], list[float]], list[ir.Value]]


_BYTES, _FLOATS = ("ui8",), ("f32", "f16", "bf16")
_MODE: dict[str, Collection[str]] = {"mode": SCALE_CARRIES}
_OF_LAYERS: dict[str, Collection[str]] = {"weight_format": FORMATS, "input_format": (*FORMATS, UNQUANTISED), **_MODE}
_OPERATORS = {
    "torch.mxcomp.scaled_linear": _Operator(
        {"x": _FLOATS, "weight": _BYTES, "weight_scale": _BYTES}, _OF_LAYERS, (), _linear,
    ),
    "torch.mxcomp.gated_experts": _Operator(
        {
            "x": _FLOATS, "chosen": ("si64",), "shares": _FLOATS,
            "gate_up": _BYTES, "gate_up_scales": _BYTES, "gate_up_bias": _FLOATS,
            "down": _BYTES, "down_scales": _BYTES, "down_bias": _FLOATS,
        },
        _OF_LAYERS, ("alpha", "limit", "offset"), _experts,
    ),
    "torch.mxcomp.mx_attention": _Operator(
        {"query": _FLOATS, "key": _FLOATS, "value": _FLOATS},
        {"qk_format": FORMATS, "value_format": FORMATS, "weights_format": FORMATS, "powers": POWERS, **_MODE},
        ("scale", "is_causal"), _attention,
    ),
    "torch.mxcomp.quantise": _Operator({"x": _FLOATS}, {"format": FORMATS, **_MODE}, (), _quantise),
    "torch.mxcomp.dequantise": _Operator(
        {"elements": _BYTES, "scales": _BYTES}, {"format": FORMATS, "result": _FLOATS}, (), _dequantise,
    ),
}  # fmt: skip
