"""What programs compute when they are loaded: weights, and products of weights, that initializers keep in variables."""

from __future__ import annotations

from checking import check
from drawing import Drawing
from iree.compiler import ir
from made import again, program, result
from nodes import Node


def _product(drawing: Drawing) -> list[Node]:
    return [result(drawing, 17, 64, 2)]


def test_operands() -> None:
    found = check(program(_product, place="initializer"))
    assert found.kind == "right", found.message


def _kept(drawing: Drawing) -> list[Node]:
    made: list[Node] = []

    def make() -> ir.Value:
        made.append(result(drawing, 17, 64, 2))
        return made[0].ir

    value = drawing.initialised(make)
    return [again(drawing, made[0].at(value), 32)]


def test_product() -> None:
    """One that an initializer multiplies has a ukernel as well."""
    found = check(program(_kept, place="constant"))
    assert found.kind == "right", found.message
