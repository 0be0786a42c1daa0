"""The forms of `linalg.generic` that routing uses: one result element per index, and reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.mlir import build, linalg

Body = Callable[..., ir.Value]
Inputs = Sequence[tuple[str, ir.Value]]


def tabled(loops: str, shape: Sequence[int], kind: str, inputs: Inputs, body: Body) -> ir.Value:
    """Returns a tensor over `loops`, a letter each. `body` computes an element from those of the inputs.

    An input is a tensor with the letters of its dimensions: ("te", logits) is read at [t, e].
    """
    init = build.empty(build.tensor_type(shape, kind))
    return _generic(loops, loops, inputs, init, body)


def tabled_twice(
    loops: str, shape: Sequence[int], kinds: tuple[str, str], inputs: Inputs,
    body: Callable[..., tuple[ir.Value, ir.Value]],
) -> list[ir.Value]:  # fmt: skip
    """Returns two tensors like those of `tabled`, in one operation."""
    inits = [build.empty(build.tensor_type(shape, kind)) for kind in kinds]
    return _operation(loops, loops, inputs, inits, lambda *given: body(*given))


def reduced(
    loops: str, kept: str, shape: Sequence[int], kind: str, inputs: Inputs,
    combine: Callable[[ir.Value, ir.Value], ir.Value], body: Body,
) -> ir.Value:  # fmt: skip
    """Returns a tensor over the loops `kept` of `loops`: the values of `body` over the others, combined, starting from
    0."""
    result = build.tensor_type(shape, kind)
    zero = arith.ConstantOp(result.element_type, 0.0 if kind.startswith("f") else 0).result
    init = build.filled(zero, result)
    return _generic(loops, kept, inputs, init, lambda *given: combine(body(*given[:-1]), given[-1]))


def _generic(loops: str, kept: str, inputs: Inputs, init: ir.Value, body: Body) -> ir.Value:
    (result,) = _operation(loops, kept, inputs, [init], lambda *given: (body(*given),))
    return result


def _operation(
    loops: str, kept: str, inputs: Inputs, inits: Sequence[ir.Value],
    body: Callable[..., tuple[ir.Value, ...]],
) -> list[ir.Value]:  # fmt: skip
    def letters(which: str) -> ir.AffineMap:
        return ir.AffineMap.get(len(loops), 0, [ir.AffineExpr.get_dim(loops.index(letter)) for letter in which])

    maps = [*(letters(which) for which, _ in inputs), *(letters(kept) for _ in inits)]
    iterators = [build.iterator_type("parallel" if letter in kept else "reduction") for letter in loops]
    values = [value for _, value in inputs]
    op = linalg.GenericOp(
        [init.type for init in inits], values, list(inits),
        ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in maps]), ir.ArrayAttr.get(iterators),
    )  # fmt: skip
    block = op.regions[0].blocks.append(*(build.element(value) for value in (*values, *inits)))
    with ir.InsertionPoint(block):
        linalg.YieldOp(list(body(*block.arguments)))
    return list(op.operation.results)
