// 6-bit elements on the way only: nothing loads or stores them.
func.func @rounded(%x: tensor<4x32xf32>, %s8: tensor<4xi8>) -> tensor<4x32xf32> {
  %s = iree_tensor_ext.bitcast %s8 : tensor<4xi8> -> tensor<4xf8E8M0FNU>
  %e = tensor.empty() : tensor<4x32xf32>
  %q = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>, affine_map<(m, k) -> (m, k)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<4x32xf32>, tensor<4xf8E8M0FNU>) outs(%e : tensor<4x32xf32>) {
  ^bb0(%i: f32, %j: f8E8M0FNU, %o: f32):
    %t = arith.scaling_truncf %i, %j : f32, f8E8M0FNU to f6E2M3FN
    %u = arith.scaling_extf %t, %j : f6E2M3FN, f8E8M0FNU to f32
    linalg.yield %u : f32
  } -> tensor<4x32xf32>
  return %q : tensor<4x32xf32>
}
