"""Elements of tensors, as they are composed of elements of others."""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.mlir import build, composing, graph

SCALAR = """func.func @main(%x: tensor<1x1xf32>) -> tensor<2xf32> {
  %scalar = tensor.collapse_shape %x [] : tensor<1x1xf32> into tensor<f32>
  %empty = tensor.empty() : tensor<2xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> ()>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%scalar : tensor<f32>) outs(%empty : tensor<2xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> tensor<2xf32>
  return %y : tensor<2xf32>
}"""


def test_a_scalar_that_was_a_tensor() -> None:
    """Checks that the tensor in front has a subscript for each of its dimensions."""
    places = list[int]()
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(SCALAR)
        end = next(op for op in graph.walk(module.operation) if op.name == "func.return")

        def stored(leaf: ir.Value, place: composing.Place) -> ir.Value:
            places.append(len(place))
            return arith.ConstantOp(ir.F32Type.get(), 1.0).result

        with ir.InsertionPoint(end):
            composing.Elements(stored).at(end.operands[0], [build.constant_index(0)])
    assert places == [2]
