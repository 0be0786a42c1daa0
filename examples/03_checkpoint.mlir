// y[64, 512] = x[64, 512] · wᵀ + bias; w and bias are parameters, named as the checkpoint names them.

#rows = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#columns = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#row_scales = affine_map<(m, n, ko, kb) -> (m, ko)>
#column_scales = affine_map<(m, n, ko, kb) -> (n, ko)>
#result = affine_map<(m, n, ko, kb) -> (m, n)>

util.global private @weight = #flow.parameter.named<"model"::"fc.weight"> : tensor<512x256xi8>
util.global private @scales = #flow.parameter.named<"model"::"fc.weight_scale"> : tensor<512x16xi8>
util.global private @bias = #flow.parameter.named<"model"::"fc.bias"> : tensor<512xf32>

func.func @linear(%x_bytes: tensor<64x256xi8>, %x_scale_bytes: tensor<64x16xi8>) -> tensor<64x512xf32> {
  %w_bytes = util.global.load @weight : tensor<512x256xi8>
  %w_scale_bytes = util.global.load @scales : tensor<512x16xi8>
  %bias = util.global.load @bias : tensor<512xf32>
  %x = iree_tensor_ext.bitcast %x_bytes : tensor<64x256xi8> -> tensor<64x16x32xf4E2M1FN>
  %x_scales = iree_tensor_ext.bitcast %x_scale_bytes : tensor<64x16xi8> -> tensor<64x16xf8E8M0FNU>
  %w = iree_tensor_ext.bitcast %w_bytes : tensor<512x256xi8> -> tensor<512x16x32xf4E2M1FN>
  %w_scales = iree_tensor_ext.bitcast %w_scale_bytes : tensor<512x16xi8> -> tensor<512x16xf8E8M0FNU>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64x512xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x512xf32>) -> tensor<64x512xf32>
  %xw = linalg.generic {
    indexing_maps = [#rows, #columns, #row_scales, #column_scales, #result],
    iterator_types = ["parallel", "parallel", "reduction", "reduction"]
  } ins(%x, %w, %x_scales, %w_scales : tensor<64x16x32xf4E2M1FN>, tensor<512x16x32xf4E2M1FN>,
                                       tensor<64x16xf8E8M0FNU>, tensor<512x16xf8E8M0FNU>)
    outs(%zeros : tensor<64x512xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %a_scale: f8E8M0FNU, %b_scale: f8E8M0FNU, %sum: f32):
    %0 = arith.scaling_extf %a, %a_scale : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %b_scale : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %sum, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x512xf32>
  %y = linalg.generic {
    indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%xw, %bias : tensor<64x512xf32>, tensor<512xf32>) outs(%empty : tensor<64x512xf32>) {
  ^bb0(%sum: f32, %offset: f32, %unused: f32):
    %0 = arith.addf %sum, %offset : f32
    linalg.yield %0 : f32
  } -> tensor<64x512xf32>
  return %y : tensor<64x512xf32>
}
