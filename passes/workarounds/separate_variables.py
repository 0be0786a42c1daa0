"""mxcomp-separate-variables: gives variables with equal initial values separate memory.

IREE makes one buffer of equal initial values. Where two variables (mutable globals) begin with it, both are that
buffer from then on: what is written into one in indices, as rows of a cache, is in the other. Each but the first begins
with something that IREE cannot see to be equal.

Before:

    util.global private mutable @keys = dense<0.0> : tensor<512x64xf32>
    util.global private mutable @values = dense<0.0> : tensor<512x64xf32>

After:

    util.global private mutable @keys = dense<0.0> : tensor<512x64xf32>
    util.global private mutable @values : tensor<512x64xf32>
    util.initializer {
      %zero = util.optimization_barrier 0 : i32
      %bits = flow.tensor.splat %zero : tensor<512x64xi32>
      %begin = flow.tensor.bitcast %bits : tensor<512x64xi32> -> tensor<512x64xf32>
      util.global.store %begin, @values
      util.return
    }

Floats are their bits there. Of a value that is not the same everywhere, the first element is written over with itself,
as that of a vector: of several dimensions IREE fills all up to the element whose indices are each one more.
It stands at the end of IREE's phase `flow`, as IREE may turn initializers into initial values before.
"""

from __future__ import annotations

import math

from iree.compiler import ir
from iree.compiler.dialects import arith, flow, util

from mxcomp.mlir import build, graph, variables


def run(module: ir.Operation) -> None:
    """Gives all such variables of `module` but the first an initializer."""
    for op in shared(module):
        with op.location, ir.InsertionPoint.after(op):
            _initialise(op)


def shared(module: ir.Operation) -> list[ir.Operation]:
    """Returns the variables that may share their initial value with an earlier one."""
    return [view.operation for view in graph.module_block(module).operations if is_variable(view.operation)][1:]


def is_variable(op: ir.Operation) -> bool:
    """Returns whether it is a mutable global, a tensor with known initial elements."""
    value = variables.elements(op) if op.name == variables.GLOBAL and variables.is_mutable(op) else None
    return value is not None and 0 not in ir.RankedTensorType(value.type).shape


def _initialise(op: ir.Operation) -> None:
    value = op.attributes["initial_value"]
    is_splat = isinstance(value, ir.DenseElementsAttr) and value.is_splat
    del op.attributes["initial_value"]
    empty = ir.TypeAttr.get(ir.FunctionType.get([], []))
    initialiser = ir.Operation.create("util.initializer", attributes={"function_type": empty}, regions=1)
    with ir.InsertionPoint(initialiser.regions[0].blocks.append()):
        begin = _splat(value) if is_splat else _with_itself(value)
        util.GlobalStoreOp(begin, graph.symbol_name(op))
        ir.Operation.create("util.return")


def _splat(value: ir.DenseElementsAttr) -> ir.Value:
    kind = value.type
    bits = _integers(kind)
    scalar = arith.ConstantOp(kind.element_type, value.get_splat_value()).result
    if bits != kind:
        scalar = arith.BitcastOp(bits.element_type, scalar).result
    return _viewed(flow.TensorSplatOp(bits, build.barrier(scalar), []).result, kind)


def _with_itself(value: ir.Attribute) -> ir.Value:
    kind = value.type
    line = build.tensor_type([math.prod(kind.shape)], _integers(kind).element_type)
    whole = _viewed(arith.ConstantOp(kind, value).result, line)
    indices = [build.constant_index(0)]
    first = build.barrier(flow.TensorLoadOp(whole, [], indices).result)
    return _viewed(flow.TensorStoreOp(first, whole, [], indices).result, kind)


def _integers(kind: ir.RankedTensorType) -> ir.RankedTensorType:
    """Returns the bits of such a tensor: hosts know no floats but f32 and f64."""
    element = kind.element_type
    width = element.width if isinstance(element, ir.FloatType | ir.IntegerType) else 32
    return build.tensor_type(kind.shape, ir.IntegerType.get_signless(width))


def _viewed(value: ir.Value, kind: ir.RankedTensorType) -> ir.Value:
    return value if value.type == kind else flow.TensorBitCastOp(kind, value, [], []).result
