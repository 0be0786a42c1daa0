"""Values that a fusion must not replace, or must replace by the same: each of these programs was wrong once, or failed.

Exact to the last bit; the reason for what is left unfused is in the report.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import quantisers
import steps_matmul
from checking import check
from drawing import Drawing
from elementwise import BINARY, UNARY, apply, sliced, times, transposed
from iree.compiler import ir
from iree.compiler.dialects import arith, scf, tensor
from made import FP4, Make, again, floats, made_of_bits, multiplied, program, quantised, result, stored
from mx_operands import Operand
from nodes import BITS, SCALE, VALUES, Node, packed
from spread import quick_if
from steps_control import branch
from steps_matmul import Scale

import mxcomp
from mxcomp.mlir import build
from mxcomp.options import ON
from mxcomp.report.report import Report

CHAIN = (128, 128)
"""M and N of a result that is quantised in its tile where it can be."""


def _transposed(drawing: Drawing) -> list[Node]:
    return [again(drawing, transposed(result(drawing, *CHAIN), (1, 0), named=False))]


def _symmetric(drawing: Drawing) -> list[Node]:
    h = result(drawing, *CHAIN)
    return [again(drawing, apply(BINARY["add"], h, transposed(h, (1, 0), named=True)))]


def _row(drawing: Drawing) -> list[Node]:
    h = result(drawing, 65, 128)
    return [again(drawing, apply(BINARY["subtract"], h, h, axes=[[None, 1]]))]


def _column(drawing: Drawing) -> list[Node]:
    h = result(drawing, *CHAIN)
    return [again(drawing, apply(BINARY["subtract"], h, h, axes=[[0, None]]))]


def _both_sides(drawing: Drawing) -> list[Node]:
    lhs = quantised(drawing, result(drawing, 65, 128))
    return [multiplied(drawing, lhs, lhs.renamed({"m": "n"}))]


def _returned_as_well(drawing: Drawing) -> list[Node]:
    h = result(drawing, *CHAIN)
    return [again(drawing, h), h]


def _elements_returned(drawing: Drawing) -> list[Node]:
    lhs = quantised(drawing, result(drawing, *CHAIN))
    return [multiplied(drawing, lhs, stored(drawing, "n", 128, 4)), lhs.elements]


def _scales_returned(drawing: Drawing) -> list[Node]:
    lhs = quantised(drawing, result(drawing, *CHAIN))
    return [multiplied(drawing, lhs, stored(drawing, "n", 128, 4)), lhs.scales]


def _two_consumers(drawing: Drawing) -> list[Node]:
    lhs = quantised(drawing, result(drawing, *CHAIN))
    return [multiplied(drawing, lhs, stored(drawing, "n", n, 4)) for n in (128, 64)]


def _plain_chain(drawing: Drawing) -> list[Node]:
    return [again(drawing, apply(UNARY["relu"], result(drawing, *CHAIN)))]


CHAINS: dict[str, tuple[Make, str]] = {
    "transposed": (_transposed, "in another order or only in part"),
    "symmetric": (_symmetric, "in another order or only in part"),
    "row": (_row, "in another order or only in part"),
    "column": (_column, "in another order or only in part"),
    "both sides": (_both_sides, "is also used by"),
    "returned as well": (_returned_as_well, "is also used by"),
    "elements returned": (_elements_returned, "is also used by"),
    "scales returned": (_scales_returned, "is also used by"),
    "two consumers": (_two_consumers, "is also used by"),
    "plain": (_plain_chain, ""),
}
"""What reads a result that is quantised again, and the reason why it is not quantised in its tile."""
QUICK_CHAINS = {"symmetric", "row", "both sides", "returned as well", "scales returned", "plain"}
"""Each reason, for whole and for partial results, and for each of the values that something else may use."""


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[Report]:
    """Of all that is compiled, with all fused that can be."""
    found: list[Report] = []
    compile = mxcomp.compile

    def noting(*args: Any, **options: Any) -> mxcomp.Program:
        program = compile(*args, **options | {"fuse_quantisers": ON})
        found.append(program.report)
        return program

    monkeypatch.setattr(mxcomp, "compile", noting)
    return found


@pytest.mark.parametrize("name", quick_if(QUICK_CHAINS.__contains__, CHAINS))
def test_chain(name: str, reports: list[Report]) -> None:
    make, reason = CHAINS[name]
    found = check(program(make))
    assert found.kind == "right", found.message
    matmul = reports[0].matmuls[0]
    assert matmul.transposed == (not reason), "quantised in its tile"
    assert any(reason in why for why in matmul.unfused) if reason else not matmul.unfused


def _writes_over(drawing: Drawing) -> list[Node]:
    """An activation whose op reads what is in its result before."""
    return [again(drawing, apply(BINARY["add"], floats(drawing, 3, 64), floats(drawing, 3, 64), reads_init=True))]


def _static(kind: str) -> Make:
    def make(drawing: Drawing) -> list[Node]:
        h = apply(times(1 / 32), result(drawing, 2, 32))
        lhs = quantisers.static(drawing, h, "m", kind)
        return [multiplied(drawing, lhs, stored(drawing, "n", 4, 1)), lhs.elements]

    return make


def _constant_activation(drawing: Drawing) -> list[Node]:
    return [again(drawing, floats(drawing, 3, 64, place="constant"))]


def _sliced_scales(drawing: Drawing) -> list[Node]:
    """Eight bits whose scales are the first of more along K."""
    lhs = stored(drawing, "m", 3, 2, "f8E4M3FN")
    codes = drawing.dice.numbers.integers(125, 130, (4, 5)).astype(np.uint8)
    elements = stored(drawing, "n", 4, 2, "f8E4M3FN").elements
    whole = build.bitcast(drawing.value(codes, "i8"), build.tensor_type((4, 5), SCALE))
    scales = sliced(Node(whole, codes, SCALE), [0, 1], [4, 2], [1, 1])
    return [multiplied(drawing, lhs, Operand(elements, scales, "nki", "nk"))]


def _two_views(drawing: Drawing) -> list[Node]:
    """Rows 0 and 1 of [2, 2 blocks], of which only the first block is taken, and of [4, 1 block]."""
    data = drawing.dice.numbers.integers(0, 256, 64).astype(np.uint8)
    value, lhs = drawing.value(data, "i8"), stored(drawing, "m", 3, 1)
    scales = stored(drawing, "n", 2, 1).scales
    results = []
    for shape in ((2, 2), (4, 1)):
        node = Node(
            build.bitcast(value, build.tensor_type((*shape, 32), FP4)), made_of_bits(data, 4, (*shape, 32)), FP4
        )
        part = sliced(node, [0, 0, 0], [2, 1, 32], [1, 1, 1])
        results.append(multiplied(drawing, lhs, Operand(part, scales, "nki", "nk")))
    return results


def _slice_behind(drawing: Drawing) -> list[Node]:
    h = result(drawing, 17, 65, 3, ("f6E2M3FN", "f8E4M3FN"))
    return [sliced(apply(UNARY["relu"], h), [4, 5], [6, 28], [1, 1])]


def _scalar(drawing: Drawing) -> list[Node]:
    factor = Node(drawing.value(np.array(0.5, np.float32), "f32"), np.array(0.5), "f32")
    value = tensor.ExtractOp(factor.ir, []).result
    h = result(drawing, 2, 4)
    scaled = build.generic(
        ir.RankedTensorType(h.ir.type),
        [h.ir],
        build.empty(ir.RankedTensorType(h.ir.type)),
        [ir.AffineMap.get_identity(2)] * 2,
        ["parallel"] * 2,
        lambda x, _: arith.MulFOp(x, value).result,
    )
    return [Node(scaled.results[0], h.data / 2, "f32")]


def _branch(drawing: Drawing) -> list[Node]:
    """An activation of dynamic M that is one of two, as an argument says."""
    activation = steps_matmul.floats(drawing, (3, 64), "f32", "", (0,), place="argument")
    return [again(drawing, branch(drawing, activation, Scale()))]


def _constant(drawing: Drawing, kind: str, *shape: int) -> Node:
    """Small elements, or scales around 1, of eight or four bits."""
    codes = drawing.dice.numbers.integers(*((125, 130) if kind == SCALE else (0, 8)), shape).astype(np.uint8)
    data = packed(codes, BITS[kind]).reshape(*shape[:-1], -1)
    value = drawing.value(data, "i8", place="constant")
    return Node(build.bitcast(value, build.tensor_type(shape, kind)), codes, kind)


def _constant_product(drawing: Drawing) -> list[Node]:
    """A product that IREE evaluates while it compiles, on the CPU, unless it is kept from that."""
    lhs = Operand(_constant(drawing, FP4, 3, 2, 32), _constant(drawing, SCALE, 3, 2), "mki", "mk")
    rhs = Operand(_constant(drawing, FP4, 5, 2, 32), _constant(drawing, SCALE, 5, 2), "nki", "nk")
    return [multiplied(drawing, lhs, rhs)]


def _same_kernels(drawing: Drawing) -> list[Node]:
    """Scales that the second dispatch of ours packs, and constant ones in a branch, which the second of IREE's does."""
    flag = drawing.argument(np.array([1], np.int32), "i32")
    condition = arith.CmpIOp(
        arith.CmpIPredicate.ne,
        tensor.ExtractOp(flag, [build.constant_index(0)]).result,
        arith.ConstantOp(ir.IntegerType.get_signless(32), 0).result,
    ).result
    codes = drawing.dice.numbers.integers(125, 130, (255, 4)).astype(np.uint8)
    whole = Node(build.bitcast(drawing.value(codes, "i8"), build.tensor_type(codes.shape, SCALE)), codes, SCALE)
    every_other = sliced(whole, [0, 0], [128, 4], [2, 1])
    lhs = quantised(drawing, floats(drawing, 1, 128), kind="f6E2M3FN")
    first = multiplied(drawing, lhs, Operand(_constant(drawing, FP4, 128, 4, 32), every_other, "nki", "nk"))
    op = scf.IfOp(condition, [first.ir.type], has_else=True)
    with drawing.scope(), ir.InsertionPoint(op.then_block):
        elements, scales = stored(drawing, "n", 128, 1, "f8E5M2").elements, _constant(drawing, SCALE, 128, 1)
        other = multiplied(drawing, stored(drawing, "m", 1, 1), Operand(elements, scales, "nki", "nk"))
        scf.YieldOp([other.ir])
    with ir.InsertionPoint(op.else_block):
        scf.YieldOp([first.ir])
    return [first, other.at(op.results[0])]


def _narrow(drawing: Drawing, *shape: int) -> Node:
    """Elements of four bits."""
    data = drawing.dice.numbers.integers(0, 256, math.prod(shape) // 2).astype(np.uint8)
    value = build.bitcast(drawing.value(data, "i8"), build.tensor_type(shape, FP4))
    return Node(value, made_of_bits(data, 4, shape), FP4)


def _extended(node: Node) -> Node:
    f32 = ir.F32Type.get()
    result = build.tensor_type(node.shape, "f32")
    value = build.elementwise(result, [node.ir], lambda x: arith.ExtFOp(f32, x).result)
    return Node(value, VALUES[FP4][node.data], "f32")


def _slice_of_values(drawing: Drawing) -> list[Node]:
    """Parts of bytes, and every other row, of which something is computed."""
    values = apply(UNARY["relu"], _extended(_narrow(drawing, 6, 8)))
    return [
        apply(UNARY["negate"], sliced(values, *part)) for part in (([1, 3], [4, 3], [1, 1]), ([0, 0], [3, 8], [2, 1]))
    ]


def _slice_of_codes(drawing: Drawing) -> list[Node]:
    return [_extended(sliced(_narrow(drawing, 16, 2), [0, 1], [16, 1], [1, 1]))]


def _gathered_codes(drawing: Drawing) -> list[Node]:
    """Elements with other signs in rows of less than a block, so many that IREE reads them as vectors."""
    node, i4 = _narrow(drawing, 2048, 4), ir.IntegerType.get_signless(4)

    def body(x: ir.Value) -> ir.Value:
        flipped = arith.XOrIOp(arith.BitcastOp(i4, x).result, arith.ConstantOp(i4, -8).result).result
        return arith.BitcastOp(x.type, flipped).result

    return [Node(build.elementwise(build.tensor_type(node.shape, FP4), [node.ir], body), node.data ^ 8, FP4)]


ALONE: dict[str, tuple[Make, dict[str, object]]] = {
    "producer writes over": (_writes_over, {}),
    "static fp4": (_static(FP4), {}),
    "static fp6": (_static("f6E2M3FN"), {}),
    "constant activation": (_constant_activation, {}),
    "constant product": (_constant_product, {}),
    "sliced scales": (_sliced_scales, {"data_tiling": False}),
    "two views": (_two_views, {}),
    "slice behind": (_slice_behind, {"ukernels": "none"}),
    "scalar": (_scalar, {}),
    "branch": (_branch, {}),
    "same kernels": (_same_kernels, {}),
    "slice of values": (_slice_of_values, {}),
    "slice of codes": (_slice_of_codes, {}),
    "gathered codes": (_gathered_codes, {}),
}


@pytest.mark.parametrize("name", quick_if(lambda name: name != "static fp4", ALONE))
def test_alone(name: str) -> None:
    make, options = ALONE[name]
    found = check(program(make, **options))
    assert found.kind == "right", found.message
