"""mxcomp-materialise: turns encodings into packed tensors, and encoded matmuls into dispatches.

Before:

    %ae = iree_encoding.set_encoding %a : tensor<1024x32x32xf4E2M1FN> -> tensor<1024x32x32xf4E2M1FN, #lhs>  (and others)
    %re = linalg.generic {…, mxcomp.scaled_matmul = {plan = "data_tiled", layout = {…}, ukernel = "mx_…"}} …
    %r = iree_encoding.unset_encoding %re

After, one dispatch per operand and one for matmul and unpacking:

    %w = iree_tensor_ext.bitcast %a : tensor<1024x32x32xf4E2M1FN> -> tensor<1024x32x4xi32>
    %p = flow.dispatch.region { linalg.generic … tensor.extract %w[…] } -> tensor<8x4x2x4x2x4x16x4xi32>
    %pb = iree_tensor_ext.bitcast %p : … -> tensor<8x4x1x2x4x2x4x16x16xi8>
    %r = flow.dispatch.region {
      %ap = iree_tensor_ext.bitcast %pb : … -> tensor<8x4x1x2x4x2x4x16x32xf4E2M1FN>
      iree_codegen.inner_tiled … {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_…", tensor>}
      linalg.transpose, tensor.collapse_shape, tensor.extract_slice
    }

What the dispatches are is the plan's to say (`mxcomp.plans`). Fused consumers (mxcomp-fuse-consumers) work on the
packed tiles, between inner_tiled and the transpose.

A constant operand is packed outside a region, where IREE evaluates it at compile time. With packed parameters an
operand that is a parameter is read in its layout (`mxcomp.packing.parameter_operand`). A row-major ukernel keeps its
`linalg.generic`, in a region and with the ukernel's descriptor. Dynamic sizes are guarded by `cf.assert`. A batch is
one more dimension, the first, of all packed tensors.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp import plans
from mxcomp.matching.decision import SCALED_MATMUL
from mxcomp.options import Options
from mxcomp.plans.building import Building

OPTIONS = ("reference", "packed-parameters")


def run(module: ir.Operation, options: Options) -> None:
    """Materialises every encoded or row-major scaled matmul below `module`."""
    matmuls = plans.plans_below(module)
    building = Building(module, options, {plan.index: (op, plan) for op, plan in matmuls if plan.index is not None})
    for op, plan in matmuls:
        del op.attributes[SCALED_MATMUL]
        plan.build(op, building)
    building.finish()
