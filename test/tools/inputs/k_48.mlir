#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>
#lhs_scale = affine_map<(m, n, k) -> (m, k floordiv 32)>
#rhs_scale = affine_map<(m, n, k) -> (n, k floordiv 32)>
#out = affine_map<(m, n, k) -> (m, n)>
util.func public @model(%a8: tensor<64x24xi8>, %as8: tensor<64x2xi8>, %b8: tensor<128x24xi8>, %bs8: tensor<128x2xi8>,
                        %x: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %a = iree_tensor_ext.bitcast %a8 : tensor<64x24xi8> -> tensor<64x48xf4E2M1FN>
  %as = iree_tensor_ext.bitcast %as8 : tensor<64x2xi8> -> tensor<64x2xf8E8M0FNU>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x24xi8> -> tensor<128x48xf4E2M1FN>
  %bs = iree_tensor_ext.bitcast %bs8 : tensor<128x2xi8> -> tensor<128x2xf8E8M0FNU>
  %zero = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x48xf4E2M1FN>, tensor<128x48xf4E2M1FN>, tensor<64x2xf8E8M0FNU>,
                             tensor<128x2xf8E8M0FNU>)
      outs(%zero : tensor<64x128xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %is: f8E8M0FNU, %js: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %i, %is : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %j, %js : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  %y = math.exp %x : tensor<64x128xf32>
  %z = arith.mulf %r, %y : tensor<64x128xf32>
  util.return %z : tensor<64x128xf32>
}
