"""mxcomp-sort-slots: computes the tables of a mixture's routing in one dispatch, by a kernel of ours.

Before (`mxcomp.routing.sorting`, in front of it what computes the tables from %ids in several dispatches):

    %r:5 = util.optimization_barrier {mxcomp.sorting = {slots = 256, …}} %rows, %slots, %experts, %valid, %ids

After:

    %i = util.optimization_barrier %ids
    %t = flow.dispatch.region {
      linalg.generic {mxcomp.kernel = "…", iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_sort_…", tensor>}
          ins(%i : tensor<256xi32>) outs(…) -> tensor<1280xi32>
    }
    %rows = tensor.extract_slice %t[0] [256] [1]      (and the others)

The generic only stands for the kernel, so this is done where mxcomp-link-ukernels will run. Elsewhere, and for more
slots than a workgroup has lanes, the barrier goes, and what was in front of it stays. IREE does not know of the ids
what they are: constant ones (of a single expert, for instance) it would sort when it compiles, on a CPU, which has no
such kernel.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import attributes, build, graph
from mxcomp.options import Options
from mxcomp.packing import standing
from mxcomp.routing.sorting import SORTING
from mxcomp.routing.sorting_kernel import Sorting


def run(module: ir.Operation, options: Options) -> None:
    """Replaces the tables of every routing below `module`."""
    for barrier in [op for op in graph.walk(module, bodies=False) if SORTING in op.attributes]:
        sorting = Sorting(**attributes.to_python(barrier.attributes[SORTING]))
        *tables, ids = values = list(barrier.operands)
        if sorting.fits(options.target) and options.reads_in_place and not options.reference:
            with barrier.location, ir.InsertionPoint(barrier):
                values = [*_tables(sorting, *tables, ids), ids]
        for old, new in zip(barrier.results, values, strict=True):
            old.replace_all_uses_with(new)
        sources = list(barrier.operands)
        graph.erase_dead(barrier)
        graph.erase_unused(sources)


def _tables(sorting: Sorting, *tables_and_ids: ir.Value) -> list[ir.Value]:
    """Returns replacements of the tables, each of one dimension, from the experts of slots."""
    *tables, ids = tables_and_ids
    (made,) = standing.dispatch(sorting, [ids])
    return [
        build.part(made, [start], [size or 0 for size in build.static_sizes(table)])
        for start, table in zip(sorting.starts, tables, strict=True)
    ]
