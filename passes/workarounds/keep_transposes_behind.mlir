// A batched product whose result is read in another order does not compile for some sizes. The transposition becomes
// part of the contraction's result, which is then written in an order that has no lowering: a batch of 3 products of 63
// by 32. With other sizes it compiles.
//
//     error: LLVM Translation failed for operation: builtin.unrealized_conversion_cast
//
//     iree-compile keep_transposes_behind.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o keep_transposes_behind.vmfb
//
// stock: refuses: builtin.unrealized_conversion_cast
// left: Products that are no scaled matmuls.

func.func @main(%a: tensor<3x63x32xf32>, %b: tensor<3x32x32xf32>) -> tensor<63x32x3xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x63x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x63x32xf32>) -> tensor<3x63x32xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, n, k)>, affine_map<(b, m, n, k) -> (b, m, n)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<3x63x32xf32>, tensor<3x32x32xf32>) outs(%f : tensor<3x63x32xf32>) {
  ^bb0(%x: f32, %y: f32, %acc: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %acc, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x63x32xf32>
  %g = tensor.empty() : tensor<63x32x3xf32>
  %t = linalg.transpose ins(%r : tensor<3x63x32xf32>) outs(%g : tensor<63x32x3xf32>) permutation = [1, 2, 0]
  return %t : tensor<63x32x3xf32>
}
