"""Models in PyTorch drawn at random: linear layers with MX weights, and what lies between them; and their meaning."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import products
import reference
from drawing import Dice
from elementwise import BINARY, UNARY, computed, converted
from mx_operands import KINDS, Operand
from nodes import BLOCK, FLOATS, SCALE, Node
from themes import Function

from mxcomp import formats

WIDTHS = {32: 3, 64: 3, 96: 1, 128: 2}
ROWS = {1: 1, 2: 1, 17: 1, 33: 1, 66: 1, 128: 1}
BATCHES: dict[int, dict[tuple[int, ...], float]] = {
    1: {(1,): 2, (1, 1): 1}, 2: {(2,): 2, (2, 1): 1, (1, 2): 1}, 17: {(17,): 2, (1, 17): 1},
    33: {(33,): 2, (3, 11): 2, (1, 33): 1}, 66: {(66,): 2, (2, 33): 2, (3, 2, 11): 1}, 128: {(128,): 2, (4, 32): 1},
}  # fmt: skip
"""Sizes of a batch and of a sequence that so many rows may be."""
LAYERS = {1: 3, 2: 3, 3: 1}
KIND = {"f32": 3, "bf16": 2}
BETWEEN = {"": 2, "relu": 2, "residual": 1, "half": 1}
AVAILABLE = importlib.util.find_spec("torch") is not None


def draw(dice: Dice) -> tuple[str, list[list[Function]]]:
    """The module's text, and its function, which is called once."""
    import torch

    import mxcomp.torch

    kind = dice.noted("torch", KIND)
    data = dice.numbers.integers(-8, 9, (dice.pick(ROWS), dice.pick(WIDTHS))).astype(FLOATS[kind])
    node = Node(None, data.astype(np.float64), kind)
    layers: list[torch.nn.Module] = []
    for _ in range(dice.pick(LAYERS)):
        layer = _linear(dice, node.shape[1], kind)
        layers.append(layer)
        node = _product(layer, node)
        if between := dice.noted("between", BETWEEN):
            layers.append(_Between(between))
            node = _apply(between, node)
        if not node.exact:
            break
    model = torch.nn.Sequential(*layers)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[kind]
    lead = dice.pick(BATCHES[len(data)])
    data, node = data.reshape(*lead, -1), _in_batches(node, lead)
    names = [f"d{i}" for i, size in enumerate(lead) if size > 1 and dice.chance(0.3, "dynamic:m")]
    dims = {int(name[1:]): torch.export.Dim(name, min=2, max=512) for name in names}
    x = torch.from_numpy(data.astype(np.float32)).to(dtype)
    exported = mxcomp.torch.export(model, (x,), dynamic_shapes=(dims,) if dims else None)
    return str(exported), [[Function("main", [data], [node])]]


def _in_batches(node: Node, lead: tuple[int, ...]) -> Node:
    """Rows as dimensions of these sizes."""
    error = None if node.error is None else np.broadcast_to(node.error, node.shape).reshape(*lead, -1)
    return Node(None, node.data.reshape(*lead, -1), node.kind, error)


def _linear(dice: Dice, inputs: int, kind: str) -> Any:
    """A layer whose weights have few digits."""
    import torch

    from mxcomp.torch import ScaledLinear

    outputs = dice.pick(WIDTHS)
    weight = dice.numbers.integers(-6, 7, (outputs, inputs)) * np.exp2(dice.numbers.integers(-1, 2, (outputs, 1)))
    linear = torch.nn.Linear(inputs, outputs, bias=dice.chance(0.5, "bias"))
    linear.weight.data = torch.from_numpy(weight.astype(np.float32))
    if linear.bias is not None:
        linear.bias.data = torch.from_numpy(dice.numbers.integers(-9, 10, outputs).astype(np.float32))
    weight_format, input_format = (formats.element_format(dice.noted("type", KINDS)).name for _ in range(2))
    layer = ScaledLinear.from_linear(linear, weight_format, input_format, dice.pick(list(formats.SCALE_MODES)))
    return layer.to({"f32": torch.float32, "bf16": torch.bfloat16}[kind])


def _product(layer: Any, node: Node) -> Node:
    weight_format, input_format, mode = layer.formats
    codes, scales = reference.quantise(node.data, formats.element_format(input_format).mlir_type, mode)
    weight = formats.unpack_bits(layer.elements.numpy(), weight_format)
    lhs = _operand(codes, scales, input_format, "m")
    rhs = _operand(weight, layer.weight_scale.numpy(), weight_format, "n")
    found = converted(products.numbers(None, lhs, rhs, "mn", "f32", None), None, node.kind)
    if layer.bias is None:
        return found
    bias = Node(None, layer.bias.detach().double().numpy(), node.kind)
    return computed(BINARY["add"], None, [found, bias], [[0, 1], [1]])


def _operand(codes: np.ndarray, scales: np.ndarray, kind: str, rows: str) -> Operand:
    blocks = codes.reshape(*scales.shape, BLOCK)
    elements = Node(None, blocks, formats.element_format(kind).mlir_type)
    return Operand(elements, Node(None, scales, SCALE), f"{rows}ki", f"{rows}k")


def _apply(name: str, node: Node) -> Node:
    if name == "residual":
        return computed(BINARY["add"], None, [node, node], [[0, 1], [0, 1]])
    return computed(UNARY[name], None, [node], [[0, 1]])


def _Between(name: str) -> Any:  # noqa: N802 (torch is imported late)
    import torch

    class Between(torch.nn.Module):
        """An operation without weights."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return {"relu": torch.relu, "residual": lambda y: y + y, "half": lambda y: y * 0.5}[name](x)

    return Between()
