// Nothing that is computed from constants of 4-, 6- or 8-bit floats is evaluated. The bytes of a constant are added to
// themselves. Where they are a constant of i8, the sum is evaluated when the program is compiled; where they are one of
// f8E4M3FN, it is a dispatch of an initializer, and so is all packing of constant weights. Seen with --compile-to=flow.
//
//     iree-compile legalise_constants.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 --compile-to=flow
//
// stock: omits at flow: \A(?!(?s:.*)flow\.dispatch )

func.func @main() -> tensor<2x2xi32> {
  %w = arith.constant dense<[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0]]> : tensor<2x8xf8E4M3FN>
  %b = iree_tensor_ext.bitcast %w : tensor<2x8xf8E4M3FN> -> tensor<2x2xi32>
  %y = arith.addi %b, %b : tensor<2x2xi32>
  return %y : tensor<2x2xi32>
}
