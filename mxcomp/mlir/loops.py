"""`linalg.generic` by letters, one for each loop: an input ("te", logits) is a tensor that is read at [t, e]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_letters

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.mlir import build

Body = Callable[..., ir.Value]
Inputs = Sequence[tuple[str, ir.Value]]
Shape = Sequence[int | None]


def names(count: int) -> str:
    """Returns letters for so many loops."""
    return ascii_letters[:count]


def tabled(
    loops: str, shape: Shape, kind: ir.Type | str, inputs: Inputs, body: Body, sizes: Sequence[ir.Value] = ()
) -> ir.Value:
    """Returns a tensor over `loops`, of which `body` computes an element from those of the inputs.

    `sizes` are the dynamic ones.
    """
    init = build.empty(build.tensor_type(shape, kind), sizes)
    return combined(loops, loops, inputs, init, body)


def tabled_twice(
    loops: str, shape: Shape, kinds: tuple[str, str], inputs: Inputs,
    body: Callable[..., tuple[ir.Value, ir.Value]],
) -> list[ir.Value]:  # fmt: skip
    """Returns two tensors like those of `tabled`, in one operation."""
    inits = [build.empty(build.tensor_type(shape, kind)) for kind in kinds]
    return _operation(loops, loops, inputs, inits, body)


def reduced(
    loops: str, kept: str, shape: Shape, kind: ir.Type | str, inputs: Inputs,
    combine: Callable[[ir.Value, ir.Value], ir.Value], body: Body, sizes: Sequence[ir.Value] = (), start: float = 0,
) -> ir.Value:  # fmt: skip
    """Returns a tensor over the loops `kept` of `loops`: the values of `body` over the others, combined, beginning with
    a number."""
    result = build.tensor_type(shape, kind)
    first = float(start) if isinstance(result.element_type, ir.FloatType) else int(start)
    init = build.filled(arith.ConstantOp(result.element_type, first).result, result, sizes)
    return combined(loops, kept, inputs, init, lambda *given: combine(body(*given[:-1]), given[-1]))


def combined(loops: str, kept: str, inputs: Inputs, init: ir.Value, body: Body) -> ir.Value:
    """Returns a tensor over the loops `kept`, of which `body` computes an element anew, from `init` on."""
    (result,) = _operation(loops, kept, inputs, [init], lambda *given: (body(*given),))
    return result


def _operation(
    loops: str, kept: str, inputs: Inputs, inits: Sequence[ir.Value], body: Callable[..., Sequence[ir.Value]]
) -> list[ir.Value]:
    dims = [
        [loops.index(letter) for letter in which] for which in (*(each for each, _ in inputs), *[kept] * len(inits))
    ]
    maps = [ir.AffineMap.get(len(loops), 0, [ir.AffineExpr.get_dim(dim) for dim in each]) for each in dims]
    iterators = ["parallel" if letter in kept else "reduction" for letter in loops]
    kinds = [ir.RankedTensorType(init.type) for init in inits]
    return list(build.generics(kinds, [value for _, value in inputs], inits, maps, iterators, body).results)
