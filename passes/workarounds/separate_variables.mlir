// Mutable globals that begin alike are one buffer. Equal initial values become one resource, to which both globals
// point. A row that is written into @keys in place is then in @total as well.
//
//     iree-compile separate_variables.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o separate_variables.vmfb
//     iree-run-module --device=hip --module=separate_variables.vmfb --input=1x4xf32=1,2,3,4 --input=2xf32=1 --expected_output=2x4xf32=0
//
// stock: computes

util.global private mutable @keys = dense<0.0> : tensor<2x4xf32>
util.global private mutable @total = dense<0.0> : tensor<2x4xf32>
func.func @main(%x: tensor<1x4xf32>, %y: tensor<2xf32>) -> tensor<2x4xf32> {
  %k = util.global.load @keys : tensor<2x4xf32>
  %n = tensor.insert_slice %x into %k[1, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<2x4xf32>
  util.global.store %n, @keys : tensor<2x4xf32>
  %v = util.global.load @total : tensor<2x4xf32>
  %e = tensor.empty() : tensor<2x4xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%v, %y : tensor<2x4xf32>, tensor<2xf32>) outs(%e : tensor<2x4xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %0 = arith.mulf %i, %j : f32
    linalg.yield %0 : f32
  } -> tensor<2x4xf32>
  util.global.store %m, @total : tensor<2x4xf32>
  return %m : tensor<2x4xf32>
}
