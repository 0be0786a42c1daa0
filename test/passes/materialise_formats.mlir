// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{ukernels=benefit},mxcomp-materialise)' | filecheck %s

// How other widths than 4 bits are packed: 8-bit elements of a lane in two halves of 16, which lie apart along K; 6-bit
// elements in words of 64 bits, three to a block of 32.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// Packed dimensions d2 … d7 of 8-bit elements are intrinsics in M and in K, lane along K and in M, half, word: the lane's
// halves are 4 · 16 bytes apart.
// CHECK-DAG: #[[ROW:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d0 * 64 + d2 * 16 + d5)>
// CHECK-DAG: #[[HALF:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d1 * 16 + d3 * 8 + d4 + d6 * 4)>

// CHECK-LABEL: util.func public @fp8_fp6(
// CHECK-SAME: %[[A:.+]]: tensor<64x512xi8>, %[[B:.+]]: tensor<128x16x24xi8>,
// CHECK: %[[AW:.+]] = iree_tensor_ext.bitcast %[[A]] : tensor<64x512xi8> -> tensor<64x32x4xi32>
// CHECK: flow.dispatch.region -> (tensor<1x2x4x2x4x16x2x4xi32>)
// CHECK: %[[R:.+]] = affine.apply #[[ROW]]
// CHECK: %[[H:.+]] = affine.apply #[[HALF]]
// CHECK: tensor.extract %[[AW]][%[[R]], %[[H]], %{{.+}}] : tensor<64x32x4xi32>
// CHECK: iree_tensor_ext.bitcast %{{.+}} : tensor<1x2x4x2x4x16x2x4xi32> -> tensor<1x2x1x4x2x4x16x32xi8>
// CHECK: %[[BW:.+]] = iree_tensor_ext.bitcast %[[B]] : tensor<128x16x24xi8> -> tensor<128x16x3xi64>
// CHECK: flow.dispatch.region -> (tensor<1x2x4x2x2x4x16x3xi64>)
// CHECK: tensor.extract %[[BW]][
// CHECK: iree_tensor_ext.bitcast %{{.+}} : tensor<1x2x4x2x2x4x16x3xi64> -> tensor<1x2x1x4x2x2x4x16x24xi8>
// CHECK: iree_tensor_ext.bitcast %{{.+}} : tensor<1x2x1x4x2x4x16x32xi8> -> tensor<1x2x1x4x2x4x16x32xf8E4M3FN>
// CHECK: iree_tensor_ext.bitcast %{{.+}} : tensor<1x2x1x4x2x2x4x16x24xi8> -> tensor<1x2x1x4x2x2x4x16x32xf6E2M3FN>
// CHECK: iree_codegen.inner_tiled
// CHECK-SAME: lhs_elem_type = f8E4M3FN, rhs_elem_type = f6E2M3FN
// CHECK-SAME: ukernel_descriptor<"mx_f8E4M3FN_f6E2M3FN_f32_m64_n128_k256", tensor>
util.func @fp8_fp6(%a8: tensor<64x512xi8>, %b8: tensor<128x16x24xi8>, %as: tensor<64x16xf8E8M0FNU>,
    %bs: tensor<128x16xf8E8M0FNU>) -> tensor<64x128xf32> {
  %a = iree_tensor_ext.bitcast %a8 : tensor<64x512xi8> -> tensor<64x16x32xf8E4M3FN>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x16x24xi8> -> tensor<128x16x32xf6E2M3FN>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x16x32xf8E4M3FN>, tensor<128x16x32xf6E2M3FN>,
                             tensor<64x16xf8E8M0FNU>, tensor<128x16xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f8E4M3FN, %y: f6E2M3FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f6E2M3FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}
