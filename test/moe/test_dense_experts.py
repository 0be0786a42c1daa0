"""Sums over all experts, most of which are multiplied by zero: grouped by expert, and right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pytest
from iree.compiler import ir
from iree.compiler.dialects import arith, tensor
from moe_parts import Array, Matrix, matrix, module
from spread import quick_if
from test_moe_layer import ACTIVATIONS

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats, moe, pipeline
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.decision import is_recognised
from mxcomp.mlir import build, graph, linalg
from mxcomp.mlir.loops import reduced, tabled, tabled_twice
from mxcomp.options import Options

E, T, H, N, K = 16, 5, 64, 96, 2


def top_k(logits: ir.Value, along: int = 1) -> tuple[ir.Value, ir.Value]:
    """Logits [T, k] and ids [T, k] of the largest, as torch-mlir makes them of aten.topk.

    What is sorted with them counts `along` a dimension.
    """
    i64 = ir.IntegerType.get_signless(64)
    number = tabled("te", (T, E), "i64", [], lambda _: arith.IndexCastOp(i64, linalg.IndexOp(along).result).result)
    kinds = [logits.type, number.type]
    axis = {"dimension": ir.IntegerAttr.get(i64, 1), "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 2])}
    op = ir.Operation.create("iree_linalg_ext.sort", kinds, [logits, number], axis, regions=1)
    f32 = ir.F32Type.get()
    with ir.InsertionPoint(op.regions[0].blocks.append(f32, f32, i64, i64)) as at:
        a, b, *_ = at.block.arguments
        before = arith.CmpFOp(arith.CmpFPredicate.OGE, a, b).result
        ir.Operation.create("iree_linalg_ext.yield", operands=[before])
    found = []
    for value, kind in zip(op.results, ("f32", "i64"), strict=True):
        result = build.tensor_type((T, K), kind)
        found.append(tensor.ExtractSliceOp(result, value, [], [], [], [0, 0], [T, K], [1, 1]).result)
    return found[0], found[1]


def counted(
    ids: ir.Value, shares: ir.Value, loop: int = 1, otherwise: float = 0.0, predicate: int = arith.CmpIPredicate.eq
) -> ir.Value:
    """[T, E] of shares, by comparing ids with experts."""

    def share(id_: ir.Value, value: ir.Value) -> ir.Value:
        expert = arith.IndexCastOp(id_.type, linalg.IndexOp(loop).result).result
        is_it = arith.CmpIOp(predicate, id_, expert).result
        return arith.SelectOp(is_it, value, arith.ConstantOp(value.type, otherwise).result).result

    return reduced("tej", "te", (T, E), "f32", [("tj", ids), ("tj", shares)], mx.add, share)


def scattered(ids: ir.Value, shares: ir.Value, start: float = 0.0, apart: int = 0) -> ir.Value:
    """The same as torch-mlir makes of aten.scatter: pairs of a token and an id, and what goes there.

    The id is that of a token so far `apart`.
    """
    count, i64, f32 = T * K, ir.IntegerType.get_signless(64), ir.F32Type.get()

    def place() -> list[ir.Value]:
        at, k = linalg.IndexOp(0).result, build.constant_index(K)
        return [arith.DivSIOp(at, k).result, arith.RemSIOp(at, k).result]

    def pair(*_: ir.Value) -> tuple[ir.Value, ir.Value]:
        token, choice = place()
        other = arith.AddIOp(token, build.constant_index(apart)).result if apart else token
        return arith.IndexCastOp(i64, token).result, tensor.ExtractOp(ids, [other, choice]).result

    given = tabled("u", (count,), "f32", [], lambda _: tensor.ExtractOp(shares, place()).result)
    kind = build.tensor_type((count, 2), "i64")
    indices = build.filled(arith.ConstantOp(i64, 0).result, kind)
    for i, column in enumerate(tabled_twice("u", (count,), ("i64", "i64"), [], pair)):
        one = build.tensor_type((count, 1), "i64")
        expanded = tensor.ExpandShapeOp(one, column, [[0, 1]], [], [count, 1]).result
        indices = tensor.InsertSliceOp(expanded, indices, [], [], [], [0, i], [count, 1], [1, 1]).result
    zeros = build.filled(arith.ConstantOp(f32, start).result, build.tensor_type((T, E), "f32"))
    attributes = {"dimension_map": ir.DenseI64ArrayAttr.get([0, 1]), "unique_indices": ir.BoolAttr.get(True)}
    op = ir.Operation.create("iree_linalg_ext.scatter", [zeros.type], [given, indices, zeros], attributes, regions=1)
    with ir.InsertionPoint(op.regions[0].blocks.append(f32, f32)) as at:
        ir.Operation.create("iree_linalg_ext.yield", operands=[at.block.arguments[0]])
    return op.result


def summed(y: ir.Value, weights: ir.Value) -> ir.Value:
    """[T, H] of what all experts make, [E, T, H], times routing weights [T, E], added up."""
    return reduced("eth", "th", (T, H), "f32", [("eth", y), ("te", weights)], mx.add, mx.multiply)


def summed_apart(y: ir.Value, weights: ir.Value) -> ir.Value:
    """The same as exporters write it: transposed, multiplied, and then added up."""
    turned = build.transpose(weights, [1, 0])
    weighted = tabled("eth", (E, T, H), "f32", [("eth", y), ("et", turned)], lambda a, b, _: mx.multiply(a, b))
    return reduced("eth", "th", (T, H), "f32", [("eth", weighted)], mx.add, lambda value: value)


def plain(y: ir.Value) -> ir.Value:
    return y


def numbered(y: ir.Value) -> ir.Value:
    """Something that knows the number of the expert."""
    f32 = ir.F32Type.get()

    def body(value: ir.Value, _: ir.Value) -> ir.Value:
        number = arith.IndexCastOp(ir.IntegerType.get_signless(32), linalg.IndexOp(0).result).result
        return mx.add(value, arith.SIToFPOp(f32, number).result)

    return tabled("eth", (E, T, H), "f32", [("eth", y)], body)


@dataclass(frozen=True)
class Case:
    """E experts of T tokens; how routing weights come, how all is added up, and what else is done to it."""

    types: tuple[str, str] = ("E2M1", "E2M1")
    chosen: Callable[[ir.Value, ir.Value], ir.Value] = counted
    summed: Callable[[ir.Value, ir.Value], ir.Value] = summed
    also: Callable[[ir.Value], ir.Value] = plain
    along: int = 1

    @cached_property
    def x(self) -> Array:
        return np.random.default_rng(1).standard_normal((T, H)).astype(np.float32)

    @cached_property
    def logits(self) -> Array:
        return np.random.default_rng(2).permuted(np.tile(np.arange(1.0, E + 1, dtype=np.float32), (T, 1)), axis=1)

    @cached_property
    def matrices(self) -> list[Matrix]:
        rng = np.random.default_rng(3)
        return [matrix(rng, self.types[1], E, *size, spread=1) for size in ((N, H), (N, H), (H, N))]

    @property
    def bias(self) -> Array:
        return np.random.default_rng(4).standard_normal((E, N)).astype(np.float32)

    @property
    def arguments(self) -> list[Array]:
        return [self.x, self.logits, *(part for m in self.matrices for part in (m.elements, m.scales)), self.bias]

    def module(self) -> ir.Module:
        def layer(x: ir.Value, logits: ir.Value, *given: ir.Value) -> ir.Value:
            *parts, bias = given
            weights = [mx.operand(parts[i], parts[i + 1], self.types[1]) for i in (0, 2, 4)]
            shares, ids = top_k(logits, self.along)
            everywhere = tabled("etk", (E, T, H), "f32", [("tk", x)], lambda value, _: value)
            lhs = self._quantised(everywhere)
            gate, up = (mx.scaled_matmul(lhs, each) for each in weights[:2])
            biased = tabled("etn", (E, T, N), "f32", [("etn", gate), ("en", bias)], lambda y, b, _: mx.add(y, b))
            hidden = mx.elementwise(moe.swiglu, biased, up)
            y = mx.scaled_matmul(self._quantised(hidden), weights[2])
            return self.summed(self.also(y), self.chosen(ids, shares))

        return module(layer, self.arguments)

    def _quantised(self, values: ir.Value) -> mx.Operand:
        """Values [E, T, K] in MX, as rows of one matrix."""
        k = build.static_sizes(values)[-1] or 0
        found = mx.quantise(build.collapse(values, [[0, 1], [2]]), self.types[0])
        shapes = (E, T, k // 32, 32), (E, T, k // 32)
        groups = [[0, 1], [2], [3]], [[0, 1], [2]]
        parts = [
            tensor.ExpandShapeOp(build.tensor_type(shape, build.element(value)), value, group, [], shape).result
            for value, shape, group in zip((found.elements, found.scales), shapes, groups, strict=True)
        ]
        return mx.Operand(*parts)

    def expected(self) -> Array:
        fmt, result = self.types[0], np.zeros((T, H))

        def rounded(values: Array) -> Array:
            return formats.dequantise(*formats.quantise(values.astype(np.float32), fmt), fmt, dtype=np.float64)

        x, (gate, up, down) = rounded(self.x), (m.values for m in self.matrices)
        for token in range(T):
            for e in np.argsort(-self.logits[token])[:K]:
                hidden = ACTIVATIONS["swiglu"](gate[e] @ x[token] + self.bias[e], up[e] @ x[token])
                result[token] += self.logits[token, e] * (down[e] @ rounded(hidden[None])[0])
        return result


CASES = [Case(summed=summed_apart), Case(("E4M3", "E2M1"), scattered), Case(("E4M3", "E3M2"), scattered, summed_apart)]


@pytest.mark.parametrize("case", quick_if(CASES[:1].__contains__, CASES), ids=["apart", "scattered", "6 bits"])
def test_right(case: Case) -> None:
    """Three products of two experts a token instead of 16, and nothing but those is read."""
    program = mxcomp.compile(case.module())
    assert [found.m for found in program.report.matmuls] == [2] * 3
    (found,) = program.run(*case.arguments)
    expected = case.expected()
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def is_grouped(case: Case) -> bool:
    module = case.module().operation
    pipeline.run(module, pipeline.PREPARING_PASSES, Options.make())
    assert case.also is plain or not any(op.name == "flow.dispatch.region" for op in graph.walk(module, bodies=False))
    batches = {problem_of(op).batch for op in graph.walk(module, bodies=False) if is_recognised(op)}
    assert batches in ({(E,)}, {(10,)})
    return batches == {(10,)}


@pytest.mark.parametrize("chosen", [counted, scattered])
@pytest.mark.parametrize("added", [summed, summed_apart])
def test_forms(chosen: Callable[..., ir.Value], added: Callable[..., ir.Value]) -> None:
    assert is_grouped(Case(chosen=chosen, summed=added))


@pytest.mark.parametrize(
    "case",
    [
        Case(chosen=partial(counted, otherwise=0.5)),
        Case(chosen=partial(counted, loop=0)),
        Case(chosen=partial(counted, predicate=arith.CmpIPredicate.sge)),
        Case(chosen=partial(scattered, start=0.5)),
        Case(chosen=partial(scattered, apart=-1)),
        Case(along=0),
        Case(chosen=lambda ids, shares: mx.elementwise(lambda value: mx.add(value, 0.5), counted(ids, shares))),
        Case(also=numbered),
    ],
    ids=[
        "not zero elsewhere", "of another loop", "of other experts", "scattered into others", "ids of other tokens",
        "no top-k", "more than the top-k", "by an expert's number",
    ],
)  # fmt: skip
def test_what_stays_dense(case: Case) -> None:
    """What is not provably a sum over a token's top-k, each of them once."""
    assert not is_grouped(case)


def test_what_stays_dense_is_right() -> None:
    case = Case(also=numbered)
    (found,) = mxcomp.compile(case.module()).run(*case.arguments)
    chosen = np.argsort(-case.logits, axis=1)[:, :K]
    numbers = (np.take_along_axis(case.logits, chosen, 1) * chosen).sum(axis=1)[:, None]
    expected = case.expected() + numbers
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_sums_of_something_else() -> None:
    """What is added comes from outside of the sum: nothing is looked for behind it."""

    def added(x: ir.Value, y: ir.Value) -> ir.Value:
        return reduced("et", "t", (T,), "f32", [("et", x)], lambda _, acc: mx.add(y, acc), lambda value: value)

    module = mx.module(added, f"{E}x{T}xf32", "f32").operation
    before = str(module)
    pipeline.run(module, ("mxcomp-group-experts",), Options.make())
    assert str(module) == before
