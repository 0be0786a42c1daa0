#map = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d1, d2, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d1, d2)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1)>
module {
  func.func @of(%arg0: tensor<16x512xi8>, %arg1: tensor<16x32xi8>, %arg2: tensor<32x512xi8>, %arg3: tensor<32x32xi8>) -> tensor<16x32xf32> {
    %0 = iree_tensor_ext.bitcast %arg0 : tensor<16x512xi8> -> tensor<16x32x32xf4E2M1FN>
    %1 = iree_tensor_ext.bitcast %arg1 : tensor<16x32xi8> -> tensor<16x32xf8E8M0FNU>
    %2 = iree_tensor_ext.bitcast %arg2 : tensor<32x512xi8> -> tensor<32x32x32xf4E2M1FN>
    %3 = iree_tensor_ext.bitcast %arg3 : tensor<32x32xi8> -> tensor<32x32xf8E8M0FNU>
    %cst = arith.constant 0.000000e+00 : f32
    %4 = tensor.empty() : tensor<16x32xf32>
    %5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<16x32xf32>) -> tensor<16x32xf32>
    %6 = linalg.generic {indexing_maps = [#map, #map1, #map2, #map3, #map4], iterator_types = ["parallel", "parallel", "reduction", "reduction"]} ins(%0, %2, %1, %3 : tensor<16x32x32xf4E2M1FN>, tensor<32x32x32xf4E2M1FN>, tensor<16x32xf8E8M0FNU>, tensor<32x32xf8E8M0FNU>) outs(%5 : tensor<16x32xf32>) {
    ^bb0(%in: f4E2M1FN, %in_0: f4E2M1FN, %in_1: f8E8M0FNU, %in_2: f8E8M0FNU, %out: f32):
      %7 = arith.scaling_extf %in, %in_1 : f4E2M1FN, f8E8M0FNU to f32
      %8 = arith.scaling_extf %in_0, %in_2 : f4E2M1FN, f8E8M0FNU to f32
      %9 = arith.mulf %7, %8 : f32
      %10 = arith.addf %out, %9 : f32
      linalg.yield %10 : f32
    } -> tensor<16x32xf32>
    return %6 : tensor<16x32xf32>
  }
}
