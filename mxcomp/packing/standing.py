"""Builds dispatches of a placeholder for a kernel, whose workgroups the linker gives that kernel.

    %r = flow.dispatch.region {
      linalg.generic {mxcomp.kernel = "…", iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_…">}
          ins(%operands…) outs(%inits…) -> …
    }

Each workgroup gets all of the operands, and a part of each result along its first dimension.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Protocol

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.layout.inner_tiles import LANES
from mxcomp.matching.storage import BITCASTS
from mxcomp.mlir import attributes, build, graph

_REGION = "flow.dispatch.region"
_NAME = re.compile(r"mxcomp\.(attention|cache|linear|rotation|routing)\.")
"""Matches the name of a location of a placeholder that has lost its kernel, and would compute something else."""


class Kernel(Protocol):
    """A kernel that a placeholder stands for."""

    @property
    def name(self) -> str: ...

    def text(self) -> str: ...


def named(op: ir.Operation, of: str, part: str) -> ir.Location:
    """Returns a location by which the report identifies a dispatch, and the linker a placeholder."""
    return ir.Location.name(f"mxcomp.{of}.{part}", childLoc=op.location)


def is_named(location: ir.Location) -> str:
    """Returns the part of a location that marks a placeholder; "" for any other."""
    # Operations that IREE fused with the result of a placeholder have its location, among others.
    found = _NAME.match(str(location.name_str)) if isinstance(location, ir.NameLoc) else None
    return found[1] if found else ""


def placeholder(result: ir.Value) -> ir.Operation:
    """Returns the placeholder in a dispatch of one."""
    region = graph.producer(result)
    assert region is not None
    *_, end = region.regions[0].blocks[0].operations
    found = graph.producer(end.operands[0])
    assert found is not None
    return found


def dispatch(
    kernel: Kernel,
    operands: Sequence[ir.Value],
    results: Sequence[ir.RankedTensorType],
    threads: int,
    inits: Sequence[ir.Value | None] = (),
    along: int | tuple[int, ...] | list[tuple[int, ...]] = 0,
    llvm_func_attrs: Mapping[str, str] | None = None,
    tile: Sequence[int] = (),
    sizes: Sequence[ir.Value] = (),
) -> list[ir.Value]:
    """Returns a dispatch of a workgroup for each of the first size of results, which are given all of the operands.

    It is that of the dimension `along` of results, or of several, which each result may have in other places. A
    workgroup takes as much of these as `tile` says, by default one. `sizes` are the dynamic ones of each result.

    `inits` are what the results are written over; None: zeros, which nobody reads. `llvm_func_attrs` are what LLVM is
    told of the function.
    """
    first, *others = operands
    if graph.producer(graph.look_through(first, (*graph.VIEWS, *BITCASTS)), _REGION) is None:
        # IREE would evaluate the placeholder of constant operands, which computes something else.
        operands = [build.barrier(first), *others]
    with build.dispatch_region(results, [*sizes] * len(results)) as region:
        pairs = zip(inits or [None] * len(results), results, strict=True)
        inits = [build.zero_filled(result, sizes) if init is None else init for init, result in pairs]
        ranks = [ir.RankedTensorType(value.type).rank for value in operands]
        each = along if isinstance(along, list) else [(along,) if isinstance(along, int) else along] * len(results)
        outer = each[0]
        inner = [result.rank - len(outer) for result in results]
        first = len(outer) + sum(inner)
        taken, made = _consecutive(ranks, first), _consecutive(inner, len(outer))
        for dims, places in zip(made, each, strict=True):
            for place, number in sorted(zip(places, count(), strict=False)):
                dims.insert(place, number)
        op = generic(results, operands, inits, [*taken, *made], first)
        op.attributes["compilation_info"] = attributes.compilation_info(
            [*(tile or [1] * len(outer)), *[0] * (first + sum(ranks) - len(outer))],
            (threads, 1, 1),
            llvm_func_attrs or {},
            reorder=False,
            ukernel=True,
            lanes=LANES,
        )
        op.attributes[attributes.UKERNEL] = attributes.ukernel_descriptor(kernel.name)
        op.attributes[attributes.KERNEL] = ir.StringAttr.get(kernel.text())
        region.returned = list(op.results)
    return region.results


def generic(
    results: Sequence[ir.RankedTensorType],
    operands: Sequence[ir.Value],
    inits: Sequence[ir.Value],
    dims: Sequence[Sequence[int]],
    parallel: int,
) -> ir.Operation:
    """Returns a placeholder whose operands and results have such loops as dimensions: `parallel` ones, and then
    others."""
    loops = 1 + max(map(max, dims))
    maps = [ir.AffineMap.get(loops, 0, [ir.AffineExpr.get_dim(i) for i in each]) for each in dims]
    iterators = ["parallel"] * parallel + ["reduction"] * (loops - parallel)
    return build.generics(
        results, operands, inits, maps, iterators, lambda *given: _placeholder(list(given), len(results))
    )


def _consecutive(ranks: Sequence[int], first: int) -> list[list[int]]:
    """Returns loops from the first on, so many for each."""
    loops = count(first)
    return [[next(loops) for _ in range(rank)] for rank in ranks]


def _placeholder(arguments: list[ir.Value], results: int) -> list[ir.Value]:
    """Returns the value that a placeholder yields, computed from every operand."""
    wide = [_as_f32(value) for value in arguments]
    total = wide[0]
    for value in wide[1 : len(wide) - results]:
        total = arith.AddFOp(total, value).result
    made = [arith.AddFOp(total, value).result for value in wide[-results:]]
    kinds = [value.type for value in arguments[-results:]]
    return [_from_f32(value, kind) for value, kind in zip(made, kinds, strict=True)]


def _as_f32(value: ir.Value) -> ir.Value:
    f32 = ir.F32Type.get()
    if isinstance(value.type, ir.IntegerType):
        return arith.SIToFPOp(f32, value).result
    return value if value.type == f32 else arith.ExtFOp(f32, value).result


def _from_f32(value: ir.Value, kind: ir.Type) -> ir.Value:
    if isinstance(kind, ir.IntegerType):
        return arith.FPToSIOp(kind, value).result
    return value if value.type == kind else arith.TruncFOp(kind, value).result
