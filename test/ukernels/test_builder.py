"""The builder of kernels: its arithmetic against Python's."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from iree.compiler import ir, passmanager
from iree.compiler.dialects import util

from mxcomp.mlir import build
from mxcomp.ukernels import builder
from mxcomp.ukernels.builder import Index

SIZES = st.integers(0, 4096)
FACTORS = st.integers(1, 64)


def folded(body: Callable[[], ir.Value]) -> int:
    """The number that a value is, in a function that has nothing but constants."""
    with ir.Context(), ir.Location.unknown():
        index = ir.IndexType.get()
        function = builder.function("f", [], index)
        module = ir.Module.create()
        module.body.append(function.operation)
        with ir.InsertionPoint(function.operation.regions[0].blocks[0]):
            util.ReturnOp([body()])
        module.operation.verify()
        passmanager.PassManager.parse("builtin.module(canonicalize)").run(module.operation)
        returned = list(function.operation.regions[0].blocks[0].operations)[-1].operands[0]
        return ir.IntegerAttr(returned.owner.attributes["value"]).value


@settings(max_examples=30)
@given(SIZES, SIZES, FACTORS, FACTORS, FACTORS)
def test_sums_are_those_of_python(a: int, b: int, factor: int, number: int, divisor: int) -> None:
    def sums() -> ir.Value:
        x, y = (Index.of(build.constant_index(each)) for each in (a, b))
        total = x * factor + (y + number) * divisor
        return (total // divisor * 3 + total % divisor + (x ^ y) + x.times(y)).value

    total = a * factor + (b + number) * divisor
    assert folded(sums) == total // divisor * 3 + total % divisor + (a ^ b) + a * b


@settings(max_examples=30)
@given(SIZES, SIZES)
def test_comparisons_select(a: int, b: int) -> None:
    def selected() -> ir.Value:
        x, y = (Index.of(build.constant_index(each)) for each in (a, b))
        return (builder.select(x < y, x, 5) * 2 + builder.select(x >= y, y, 7)).value

    assert folded(selected) == 2 * (a if a < b else 5) + (b if a >= b else 7)


def test_what_cancels_costs_nothing() -> None:
    with ir.Context(), ir.Location.unknown():
        block = builder.function("f", [ir.IndexType.get()], ir.IndexType.get()).operation.regions[0].blocks[0]
        with ir.InsertionPoint(block):
            x = Index.of(block.arguments[0])
            total = (x * 8 + 5) % 8 + (x * 8 + 21) // 4 + x * -2
        assert (total.terms, total.number) == ({}, 10)
        assert not list(block.operations)
