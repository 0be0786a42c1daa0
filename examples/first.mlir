// y[64, 256] = x[64, 512] · wᵀ in MXFP8: a scale for every 32 elements along K = 16 × 32
func.func @main(%x: tensor<64x16x32xf8E4M3FN>, %x_scales: tensor<64x16xf8E8M0FNU>,
                %w: tensor<256x16x32xf8E4M3FN>, %w_scales: tensor<256x16xf8E8M0FNU>) -> tensor<64x256xf32> {
  %zeros = arith.constant dense<0.0> : tensor<64x256xf32>
  %y = linalg.generic {
    indexing_maps = [affine_map<(m, n, k, b) -> (m, k, b)>, affine_map<(m, n, k, b) -> (n, k, b)>,
                     affine_map<(m, n, k, b) -> (m, k)>, affine_map<(m, n, k, b) -> (n, k)>,
                     affine_map<(m, n, k, b) -> (m, n)>],
    iterator_types = ["parallel", "parallel", "reduction", "reduction"]
  } ins(%x, %w, %x_scales, %w_scales : tensor<64x16x32xf8E4M3FN>, tensor<256x16x32xf8E4M3FN>,
                                       tensor<64x16xf8E8M0FNU>, tensor<256x16xf8E8M0FNU>)
    outs(%zeros : tensor<64x256xf32>) {
  ^bb0(%a: f8E4M3FN, %b: f8E4M3FN, %a_scale: f8E8M0FNU, %b_scale: f8E8M0FNU, %sum: f32):
    %0 = arith.scaling_extf %a, %a_scale : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %b_scale : f8E4M3FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %sum, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x256xf32>
  return %y : tensor<64x256xf32>
}
