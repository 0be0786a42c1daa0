#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
// IREE has no argument of this type.
util.func public @refused(%a: tensor<4xf8E3M4>) -> tensor<4xf32> {
  %0 = arith.extf %a : tensor<4xf8E3M4> to tensor<4xf32>
  util.return %0 : tensor<4xf32>
}

util.func public @model(%a8: tensor<64x128xi8>, %as: tensor<64x16xf8E8M0FNU>, %b8: tensor<128x128xi8>,
                        %bs: tensor<128x16xf8E8M0FNU>) -> tensor<64x128xf32> {
  %a = iree_tensor_ext.bitcast %a8 : tensor<64x128xi8> -> tensor<64x16x16xf4E2M1FN>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x128xi8> -> tensor<128x16x16xf4E2M1FN>
  %zero = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x16x16xf4E2M1FN>, tensor<128x16x16xf4E2M1FN>, tensor<64x16xf8E8M0FNU>,
                             tensor<128x16xf8E8M0FNU>)
      outs(%zero : tensor<64x128xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %is: f8E8M0FNU, %js: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %i, %is : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %j, %js : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}
