"""Builds dispatches of a placeholder for a kernel, whose workgroups the linker gives that kernel.

    %r = flow.dispatch.region {
      linalg.generic {mxcomp.kernel = "…", iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_…">}
          ins(%operands…) outs(%inits…) -> …
    }

Each workgroup gets all of the operands, and a part of each result along its first dimension. A result may also be given
to all of them as a whole: each writes over what is its own.

IREE drops loops of size 1, and would drop the name of the kernel with them. So dimensions of size 1 have no loop here:
their subscript is the number of another loop, divided by more than it has. Each operand has another divisor: of a value
that is two operands with equal subscripts IREE would drop one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.errors import InternalError
from mxcomp.layout.inner_tiles import LANES
from mxcomp.matching.storage import BITCASTS
from mxcomp.mlir import attributes, build, graph
from mxcomp.ukernels.standing import Kernel

_REGION = "flow.dispatch.region"
_BEYOND = 2**40
"""More than any loop has."""


def named(op: ir.Operation, of: str, part: str) -> ir.Location:
    """Returns a location by which the report identifies a dispatch."""
    return ir.Location.name(f"mxcomp.{of}.{part}", childLoc=op.location)


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
    inits: Sequence[ir.Value] = (),
    sizes: Sequence[ir.Value] = (),
    results: Sequence[ir.RankedTensorType] = (),
    text: str = "",
) -> list[ir.Value]:
    """Returns a dispatch of a workgroup for each part of a kernel's results, or of all of one.

    Args:
        kernel: What workgroups do.
        operands: As it takes them.
        inits: What its first results are written over; the others are zeros, which nobody reads.
        sizes: The sizes of each dynamic result.
        results: Their types, where whoever reads them says these.
        text: The kernel's module, where it is another one than its own.
    """
    results = results or kernel.results
    first, *others = operands
    if graph.producer(graph.look_through(first, (*graph.VIEWS, *BITCASTS)), _REGION) is None:
        # IREE would evaluate the placeholder of constant operands, which computes something else.
        operands = [build.barrier(first), *others]
    dynamic = [result for result in results if not result.has_static_shape]
    with build.dispatch_region(results, [*sizes] * len(dynamic)) as region:
        inits = [*inits, *(build.zero_filled(result, sizes) for result in results[len(inits) :])]
        ranks = [ir.RankedTensorType(value.type).rank for value in operands]
        each = kernel.places
        outer = (0,) if kernel.divided else max(each, key=len)
        inner = [result.rank - len(places) for result, places in zip(results, each, strict=True)]
        first = len(outer) + sum(inner)
        own = [rank - (i < len(kernel.divided)) for i, rank in enumerate(ranks)]
        taken = _consecutive(own, first)
        for dims, place in zip(taken, kernel.divided, strict=False):
            dims.insert(place, 0)
        made = _consecutive(inner, len(outer))
        for dims, places in zip(made, each, strict=True):
            for place, number in sorted(zip(places, count(), strict=False)):
                dims.insert(place, number)
        tile = [*(kernel.tiled or [1] * len(outer)), *[0] * (first + sum(own) - len(outer))]
        op, kept = generic(results, operands, inits, [*taken, *made], first, tile)
        op.attributes["compilation_info"] = attributes.compilation_info(
            kept,
            (kernel.threads, 1, 1),
            kernel.llvm_func_attrs,
            reorder=False,
            ukernel=True,
            lanes=LANES,
        )
        op.attributes[attributes.UKERNEL] = attributes.ukernel_descriptor(kernel.name)
        op.attributes[attributes.KERNEL] = ir.StringAttr.get(text or kernel.text())
        region.returned = list(op.results)
    return region.results


def generic(
    results: Sequence[ir.RankedTensorType],
    operands: Sequence[ir.Value],
    inits: Sequence[ir.Value],
    dims: Sequence[Sequence[int]],
    parallel: int,
    tile: Sequence[int],
) -> tuple[ir.Operation, list[int]]:
    """Returns a placeholder with such loops of operands and results, and the tiles of those that are not of size 1.

    `parallel` loops are first, then others; `tile` has those of all. Raises InternalError if all are of size 1.
    """
    pairs = [*zip(dims, [*operands, *inits], strict=True)]
    ones = {loop for each, of in pairs for loop, size in zip(each, build.static_sizes(of), strict=True) if size == 1}
    kept = [loop for loop in range(len(tile)) if loop not in ones]
    if not kept:
        raise InternalError("a kernel of one element is left to IREE")
    exprs = {loop: ir.AffineExpr.get_dim(i) for i, loop in enumerate(kept)}
    last = ir.AffineExpr.get_dim(len(kept) - 1)
    zeros = (ir.AffineExpr.get_floor_div(last, _BEYOND + i) for i in range(len(dims)))
    maps = [
        ir.AffineMap.get(len(kept), 0, [exprs.get(loop, zero) for loop in each])
        for each, zero in zip(dims, zeros, strict=True)
    ]
    iterators = ["parallel" if loop < parallel else "reduction" for loop in kept]
    op = build.generics(
        results, operands, inits, maps, iterators, lambda *given: _placeholder(list(given), len(results))
    )
    return op, [tile[loop] for loop in kept]


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
    for value in made:
        value.owner.attributes[attributes.PLACEHOLDER] = ir.UnitAttr.get()
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
