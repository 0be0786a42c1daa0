// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-extend-elements,mxcomp-unpack-elements)' | filecheck %s

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// Blocks of 16 are not ours. 8-bit elements are extended, so that nothing takes this for a scaled matmul of the hardware.
// CHECK-LABEL: util.func public @six_and_eight_bits(
// CHECK: %[[B:.+]] = linalg.generic {{.*}} ins(%{{.+}} : tensor<128x16x16xf8E5M2>) outs(%{{.+}} : tensor<128x16x16xf32>)
// CHECK: arith.extf {{.*}} : f8E5M2 to f32
// CHECK: %[[CODES:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<64x16x16xi8>)
// CHECK: tensor.extract {{.*}} : tensor<12288xi8>
// CHECK: %[[HIDDEN:.+]] = util.optimization_barrier %[[CODES]]
// CHECK: %[[A:.+]] = linalg.generic {{.*}} ins(%[[HIDDEN]] : tensor<64x16x16xi8>) outs(%{{.+}} : tensor<64x16x16xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[A]], %[[B]], %
// CHECK-SAME: reason = "block size 16: expected a multiple of 32"
// CHECK-NOT: arith.scaling_extf %{{.+}} : f6E2M3FN
// CHECK: arith.mulf
// CHECK: util.return
util.func @six_and_eight_bits(%bytes: tensor<64x192xi8>, %b: tensor<128x16x16xf8E5M2>, %as: tensor<64x16xf8E8M0FNU>,
    %bs: tensor<128x16xf8E8M0FNU>) -> tensor<64x128xf32> {
  %a = iree_tensor_ext.bitcast %bytes : tensor<64x192xi8> -> tensor<64x16x16xf6E2M3FN>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x16x16xf6E2M3FN>, tensor<128x16x16xf8E5M2>,
                             tensor<64x16xf8E8M0FNU>, tensor<128x16xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f6E2M3FN, %y: f8E5M2, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f6E2M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f8E5M2, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}
