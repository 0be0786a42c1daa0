"""mxcomp-encode: gives every recognised scaled matmul its plan (`mxcomp.plans`), and encodes operands to be packed.

Before:

    %r = linalg.generic {…, mxcomp.scaled_matmul = {}} ins(%a, %b, %as, %bs) outs(%zero) …

After:

    %ae = iree_encoding.set_encoding %a : tensor<64x8x32xf4E2M1FN> -> tensor<64x8x32xf4E2M1FN, #lhs>   (likewise others)
    %re = linalg.generic {…, mxcomp.scaled_matmul = {plan = "data_tiled", layout = {intrinsics_m = 4, …},
                                                     ukernel = "mx_…", workgroup_size = [256, 1, 1]}}
          ins(%ae, %be, %ase, %bse) outs(%ze) …
    %r = iree_encoding.unset_encoding %re : tensor<64x128xf32, #acc> -> tensor<64x128xf32>

Without data tiling nothing is encoded: a matching ukernel on row-major operands is noted (plan = "row_major"), or
the matmul is left to IREE with the reason.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp import plans
from mxcomp.layout import ACC, LHS, RHS
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.decision import DATA_TILED, decide
from mxcomp.mlir import attributes, build
from mxcomp.mlir.linalg_ops import indexing_maps
from mxcomp.options import Options
from mxcomp.plans.context import Context
from mxcomp.selection import tuned

OPTIONS = ("data-tiling", "ukernels", "ukernel-dir", "reference", "tuned", "versions", "fuse-quantisers")


def run(module: ir.Operation, options: Options) -> None:
    """Encodes the operands of every recognised scaled matmul below `module`. Raises UkernelError and InputError."""
    with module.location:
        context = Context.of(module, options, tuned.read)
        for op, plan in zip(context.ops, plans.choose(context), strict=True):
            decide(op, plan)
            if plan.operands == DATA_TILED:
                _encode(op)


def _encode(op: ir.Operation) -> None:
    """Gives every operand an encoding with the whole problem, and removes the encoding of the result."""
    problem, maps = problem_of(op), indexing_maps(op) or []
    blocks = problem.k and problem.k // problem.block
    iteration = [*problem.batch, problem.m, problem.n, blocks, problem.block]
    first = len(problem.batch)
    axes = {"m": (LHS, first), "n": (RHS, first), "k": (LHS, first + 1)}
    with op.location, ir.InsertionPoint(op):
        sizes = {axis: build.dim(op.operands[axes[axis][0]], axes[axis][1]) for axis in problem.dynamic}
        dims = list(sizes.values())
        for index, operand in enumerate(list(op.operands)):
            encoding = attributes.encoding(index, problem.types, maps, iteration)
            op.operands[index] = build.set_encoding(operand, encoding, dims)
        result = op.results[0]
        plain = ir.RankedTensorType(result.type)
        result.set_type(op.operands[ACC].type)
    with op.location, ir.InsertionPoint.after(op):
        unset = build.unset_encoding(result, plain, [sizes[axis] for axis in "mn" if axis in sizes], dims)
        result.replace_all_uses_except(unset, [unset.owner.operation])
