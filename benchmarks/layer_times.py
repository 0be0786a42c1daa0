"""Layers whose operands are quantised in the program, requantised and gated, and modelled µs of the chosen plans.

plain:  y = q(x)·fcᵀ
chain:  y = q(relu(q(x)·upᵀ))·downᵀ
gated:  y = q(silu(q(x)·gateᵀ) · (q(x)·upᵀ))·downᵀ          q: quantise
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import util
from iree.runtime import ParameterIndex
from ml_dtypes import bfloat16

import mxcomp
import mxcomp.ir as mx
from mxcomp import pipeline
from mxcomp.formats import element_format, mx_format
from mxcomp.layout.inner_tiles import MFMA
from mxcomp.layout.problem import SCALES_AND_RESULT, Problem
from mxcomp.mlir import attributes, build, graph
from mxcomp.options import Options
from mxcomp.plans import Plan, plans_below, requantised
from mxcomp.plans.fused_quant import FusedQuant
from mxcomp.plans.joint import Joint
from mxcomp.plans.packed_hidden import PackedHidden
from mxcomp.plans.requantised import Requantised
from mxcomp.profiling import Profile
from mxcomp.registry import Registry
from mxcomp.selection import quantising, streaming
from mxcomp.selection.times import UNKNOWN
from mxcomp.target import Target
from mxcomp.weights.manifest import Manifest

PLAIN, CHAIN, GATED = "plain", "chain", "gated"
KINDS = (PLAIN, CHAIN, GATED)

_SCOPE = "layer"
_BF16, _F32 = 2, 4
_NOTHING = np.int8(120)
"""The byte that fills weights: nothing is executed, so their values do not matter."""


@dataclass(frozen=True)
class Layer:
    """A layer of a kind: hidden and intermediate size, rows (None: dynamic), and the type of all elements."""

    kind: str
    hidden: int
    inter: int
    rows: int | None
    element: str = "f4E2M1FN"

    @property
    def products(self) -> list[tuple[int, int, int]]:
        """N, K and stored bytes per element of each product; of two that are joined, the first is stored in f32."""
        wide, narrow = (self.inter, self.hidden), (self.hidden, self.inter)
        if self.kind == PLAIN:
            return [(*wide, _BF16)]
        return [*[(*wide, _F32)] * (self.kind == GATED), (*wide, _BF16), (*narrow, _BF16)]

    def module(self) -> ir.Module:
        """Returns a module whose weights are parameters; x and y are bf16."""
        kind = element_format(self.element)

        def layer(x: ir.Value) -> ir.Value:
            weights = [_parameters(i, n, k, self.element) for i, (n, k, _) in enumerate(self.products)]
            given = mx.quantise(x, kind)
            if self.kind == PLAIN:
                return _rounded(mx.scaled_matmul(given, weights[0]))
            first, *others = (mx.scaled_matmul(given, each) for each in weights[:-1])
            between = mx.elementwise(_silu_product if others else _relu, first, *others, result="bf16")
            return _rounded(mx.scaled_matmul(mx.quantise(between, kind), weights[-1]))

        return mx.module(layer, f"{'?' if self.rows is None else self.rows}x{self.hidden}xbf16")


def _parameters(index: int, n: int, k: int, element: str) -> mx.Operand:
    """Returns a matrix of weights that is loaded from globals."""
    values: list[ir.Value] = []
    for part, size in (("elements", k * element_format(element).bits // 8), ("scales", k // mx_format(element).size)):
        kind, name = build.tensor_type([n, size], "i8"), f"w{index}.{part}"
        top = graph.module_block(graph.root(ir.InsertionPoint.current.block.owner))
        with ir.InsertionPoint.at_block_begin(top):
            util.GlobalOp(
                name, kind, sym_visibility="private", initial_value=attributes.named_parameter(_SCOPE, name, kind)
            )
        values.append(util.GlobalLoadOp(kind, name, is_immutable=True).result)
    elements, scales = values
    return mx.operand(elements, scales, element)


def _rounded(value: ir.Value) -> ir.Value:
    return mx.elementwise(lambda each: each, value, result="bf16")


def _relu(value: ir.Value) -> ir.Value:
    return mx.maximum(value, 0.0)


def _silu_product(gate: ir.Value, up: ir.Value) -> ir.Value:
    return mx.multiply(mx.divide(gate, mx.add(mx.exp(mx.subtract(0.0, gate)), 1.0)), up)


def decided(layer: Layer, options: Options) -> list[Plan]:
    """Returns the plans of its matmuls without compiling."""
    module = layer.module()
    pipeline.run(module.operation, (*pipeline.PREPARING_PASSES, *pipeline.CHOOSING_PASSES), options)
    return [plan for _, plan in plans_below(module.operation)]


def profiled(layer: Layer, rows: Sequence[int], folder: Path, fuse_quantisers: str) -> list[Profile]:
    """Returns the modelled profile of a call for each number of rows; nothing is computed."""
    program = mxcomp.compile(str(layer.module()), packed_parameters=True, fuse_quantisers=fuse_quantisers, strict=True)
    index, manifest = ParameterIndex(), program.report.manifest
    assert isinstance(manifest, Manifest)
    for each in manifest.parameters:
        index.add_splat(each.key, _NOTHING, math.prod(each.type.byte_shape))
    archive = folder / "nothing.irpa"
    index.create_archive_file(str(archive))
    x = [np.ones((m, layer.hidden), bfloat16) for m in rows]
    return [program.profile(each, parameters={_SCOPE: archive}) for each in x]


def modelled(layer: Layer, plans: Sequence[Plan], rows: int, registry: Registry) -> list[float]:
    """Returns modelled µs of every dispatch for so many rows, from tables of replays: quantisers, and matmuls as
    planned."""
    problems = [Problem(rows, n, k, (layer.element, layer.element, *SCALES_AND_RESULT)) for n, k, _ in layer.products]
    chosen = [each.at(rows) for each in plans]
    found: list[float] = []
    if not all(isinstance(each, FusedQuant) for each in chosen[: len(problems) - (layer.kind != PLAIN)]):
        found.append(quantising.separate_us(registry.target, problems[0], 8 * _BF16))
    for index, (plan, problem) in enumerate(zip(chosen, problems, strict=True)):
        is_last = index == len(problems) - 1
        if is_last and layer.kind != PLAIN and not isinstance(plan, FusedQuant):
            found += _between(layer, problem, chosen[-2], registry.target)
        if not isinstance(plan, Joint) or index == 0:
            joined = layer.kind == GATED and index == 1
            found.append(_product(plan, problem, layer.products[index][2], joined, registry))
    return found


def _between(layer: Layer, problem: Problem, before: Plan, target: Target) -> list[float]:
    """Returns µs of the dispatches between the products before and the last one."""
    if isinstance(before, PackedHidden):
        return []
    if not isinstance(before, Requantised) or before.requantised_for is None:
        return [quantising.separate_us(target, problem, 8 * _BF16)]
    is_packed = MFMA.holds_blocks(layer.element)
    return [] if is_packed else [requantised.packing_us(target, problem)]


def _product(plan: Plan, problem: Problem, size: int, joined: bool, registry: Registry) -> float:
    """Returns µs of a matmul; `joined`: with SwiGLU of its result and of another one's fused behind it.

    A kernel that computes both has both results in registers: replays of it with SwiGLU take what they take without.
    """
    us = plan.cost(problem, size, registry)
    assert us != UNKNOWN
    return us + (_silu_us(problem, registry.target) if joined and not isinstance(plan, Joint) else 0.0)


def _silu_us(problem: Problem, target: Target) -> float:
    """Returns additional µs of a product whose epilogue reads another one's result."""
    elements = (problem.m or 0) * (problem.n or 0)
    return streaming.latency_us(target) + streaming.calculating_us(target, elements, _SILU_SLOTS)


_SILU_SLOTS = 22 + 18 + 3
"""The issue slots of an exponential, a quotient and three other operations on f32: fitted to replays of dispatches with
SwiGLU, which takes 47."""
