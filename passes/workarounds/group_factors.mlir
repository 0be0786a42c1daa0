// A contraction of three factors cannot be distributed to threads, if the last product is not that of its two sides. In
// the body (x · y) · s, the factor s has loops of x; (x · s) · y compiles.
//
//     error: 'func.func' op failed to distribute
//
//     iree-compile group_factors.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o group_factors.vmfb
//
// stock: refuses: op failed to distribute

func.func @main(%x: tensor<8x128xf32>, %y: tensor<16x128xf32>, %s: tensor<8xf32>) -> tensor<8x16xf32> {
  %zero = arith.constant dense<0.0> : tensor<8x16xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                                        affine_map<(m, n, k) -> (m)>, affine_map<(m, n, k) -> (m, n)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y, %s : tensor<8x128xf32>, tensor<16x128xf32>, tensor<8xf32>) outs(%zero : tensor<8x16xf32>) {
  ^bb0(%i: f32, %j: f32, %u: f32, %sum: f32):
    %0 = arith.mulf %i, %j : f32
    %1 = arith.mulf %0, %u : f32
    %2 = arith.addf %sum, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<8x16xf32>
  return %r : tensor<8x16xf32>
}
