"""Two matmuls of the same activations in one dispatch, by a ukernel that quantises them in registers.

    %g, %u = linalg.generic {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_fused_quant16_dual_…", tensor>}
        ins(%x, %gate, %gate_scales, %up, %up_scales) outs(%zero, %zero)
    %h = linalg.generic ins(%g, %u) { … }      what was fused behind one of them, which read the other

As `quantising_matmul` it is a generic whose loops and operands are the ukernel's, and whose body is not computed.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import linalg

from mxcomp.layout import ACC, RHS
from mxcomp.matching.decision import Decision
from mxcomp.mlir import build
from mxcomp.packing import block_quantiser, quantising_matmul, result_tiles
from mxcomp.problem import Problem
from mxcomp.ukernels.quantising import fragment


def accumulate(
    first: list[ir.Value],
    second: list[ir.Value],
    quantiser: str,
    tiled: ir.RankedTensorType,
    problem: Problem,
    decision: Decision,
    llvm_func_attrs: dict[str, str],
) -> list[ir.Value]:
    """Accumulator tiles, each of type `tiled`, of two problems alike, from their `quantising_matmul.operands`."""
    layout = decision.layout
    assert layout is not None
    units, *_ = build.static_sizes(first[RHS])
    inputs = [*first, *second[1:]]
    inits = [build.zero_filled(build.tensor_type((units, *fragment(1)), problem.types[ACC])) for _ in range(2)]
    iterators = quantising_matmul.iterators(units_m=1)
    activations, rhs, scale, result = quantising_matmul.maps(units_m=1)
    maps = [activations, rhs, scale, rhs, scale, result, result]
    op = linalg.GenericOp(
        [init.type for init in inits],
        inputs,
        inits,
        ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in maps]),
        ir.ArrayAttr.get([build.iterator_type(kind) for kind in iterators]),
    )
    elements = [ir.RankedTensorType(value.type).element_type for value in (*inputs, *inits)]
    block = op.regions[0].blocks.append(*elements)
    with ir.InsertionPoint(block):
        x, gate, gate_scale, up, up_scale, gate_acc, up_acc = block.arguments
        values = (gate, gate_scale, gate_acc), (up, up_scale, up_acc)
        linalg.YieldOp([quantising_matmul.stand_in(x, *each) for each in values])
    of_workgroup = (layout.units or (1, 1))[RHS]
    workgroup = [of_workgroup] + [0] * (len(iterators) - 1)
    result_tiles.annotate(op.operation, decision, workgroup, False, llvm_func_attrs)
    op.operation.attributes[block_quantiser.QUANTISER] = ir.StringAttr.get(quantiser)
    return [quantising_matmul.expanded(value, tiled, units_m=1) for value in op.results]
