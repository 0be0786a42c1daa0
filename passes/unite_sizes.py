"""mxcomp-unite-sizes: takes sizes of arguments that PyTorch exported as one symbol from one of them.

A program that computes a view of one argument by the sizes of another one says nothing of them being equal. Exported
programs do, and importing notes it on the module (`mxcomp.torch.importing`).

Before, of `mxcomp.equal_sizes = {main = [[[0, 1], [1, 1]]]}`:

    %m = hal.buffer_view.dim<%x : !hal.buffer_view>[1] : index
    %0 = hal.tensor.import %x : !hal.buffer_view -> tensor<2x?xf32>{%m}
    %n = hal.buffer_view.dim<%y : !hal.buffer_view>[1] : index
    %1 = hal.tensor.import %y : !hal.buffer_view -> tensor<2x?xf32>{%n}

After:

    %same = arith.cmpi eq, %m, %n : index
    cf.assert %same, "mxcomp: dimension 1 of argument 0 and dimension 1 of argument 1 must be equal, as exported"
    %1 = hal.tensor.import %y : !hal.buffer_view -> tensor<2x?xf32>{%m}
"""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith, cf

from mxcomp.matching.size import Root
from mxcomp.mlir import graph
from mxcomp.mlir.attributes import EQUAL_SIZES, to_python

_ASYNC = "$async"
"""The suffix of a function whose wrapper has the name without it."""


def run(module: ir.Operation) -> None:
    """Unites sizes in the functions below `module`."""
    noted = to_python(module.attributes[EQUAL_SIZES]) if EQUAL_SIZES in module.attributes else {}
    for view in graph.module_block(module).operations:
        op = view.operation
        for together in noted.get(graph.symbol_name(op).removesuffix(_ASYNC), ()) if op.name == "util.func" else ():
            _unite(op, together)


def _unite(function: ir.Operation, together: Sequence[Sequence[int]]) -> None:
    """Replaces all of these sizes, each a dimension of an argument, by the first one that there is."""
    found = list[ir.Value]()
    for view in function.regions[0].blocks[0].operations:
        op = view.operation
        if op.name == "hal.buffer_view.dim" and isinstance(view.buffer_view, ir.BlockArgument):
            number = ir.BlockArgument(op.operands[0]).arg_number
            if [number, ir.IntegerAttr(op.attributes["index"]).value] in together:
                found.append(op.results[0])
    for other in found[1:]:
        with other.owner.location, ir.InsertionPoint.after(other.owner):
            same = arith.CmpIOp(arith.CmpIPredicate.eq, found[0], other)
            cf.AssertOp(same.result, f"mxcomp: {Root(found[0])} and {Root(other)} must be equal, as exported")
        other.replace_all_uses_except(found[0], same.operation)
