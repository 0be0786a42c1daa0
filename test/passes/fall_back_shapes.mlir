// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{data-tiling=off ukernels=none},mxcomp-fall-back,mxcomp-widen-codes)' | filecheck %s

// What IREE cannot read is decoded from its bytes: operands in another order, and 6-bit elements anywhere.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK-LABEL: util.func public @turned(
// CHECK-NOT: mxcomp.gather
// CHECK: %[[D:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<128x256xf32>)
// CHECK: tensor.extract {{.*}} : tensor<16384xi8>
// CHECK: linalg.generic {{.*}} ins(%{{.+}}, %[[D]] : tensor<32x256xf32>, tensor<128x256xf32>)
// CHECK-NOT: mxcomp.gather
// CHECK: util.return
util.func @turned(%a: tensor<32x8x32xf4E2M1FN>, %b: tensor<8x32x128xf4E2M1FN>, %as: tensor<32x8xf8E8M0FNU>,
    %bs: tensor<8x128xf8E8M0FNU>) -> tensor<32x128xf32> {
  %init = arith.constant dense<0.0> : tensor<32x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, affine_map<(m, n, ko, kb) -> (ko, kb, n)>, #lhs_scale,
                                        affine_map<(m, n, ko, kb) -> (ko, n)>, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<32x8x32xf4E2M1FN>, tensor<8x32x128xf4E2M1FN>,
                             tensor<32x8xf8E8M0FNU>, tensor<8x128xf8E8M0FNU>)
      outs(%init : tensor<32x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<32x128xf32>
  util.return %r : tensor<32x128xf32>
}

// Blocks of 16 are not ours. 8-bit elements are extended, so that nothing takes this for a scaled matmul of the hardware.
// CHECK-LABEL: util.func public @six_and_eight_bits(
// CHECK: %[[B:.+]] = linalg.generic {{.*}} ins(%{{.+}} : tensor<128x16x16xf8E5M2>) outs(%{{.+}} : tensor<128x16x16xf32>)
// CHECK: arith.extf {{.*}} : f8E5M2 to f32
// CHECK: %[[CODES:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<64x16x16xi8>)
// CHECK: tensor.extract {{.*}} : tensor<12288xi8>
// CHECK: %[[HIDDEN:.+]] = util.optimization_barrier %[[CODES]]
// CHECK: %[[A:.+]] = linalg.generic {{.*}} ins(%[[HIDDEN]] : tensor<64x16x16xi8>) outs(%{{.+}} : tensor<64x16x16xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[A]], %[[B]], %
// CHECK-SAME: reason = "block size 16: expected 32"
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

// A result between M and N is not ours, and rounds each product to bf16: it sums in f32, and rounds the sum.
// CHECK-LABEL: util.func public @rounded_products(
// CHECK: %[[SUM:.+]] = linalg.generic {{.*}} ins(%arg0, %{{.+}}) outs(%{{.+}} : tensor<16x2x16xf32>)
// CHECK: %[[PRODUCT:.+]] = arith.mulf {{.*}} : f32
// CHECK-NEXT: arith.addf {{.*}}%[[PRODUCT]] : f32
// CHECK: linalg.generic {{.*}} ins(%[[SUM]] : tensor<16x2x16xf32>) outs(%{{.+}} : tensor<16x2x16xbf16>)
// CHECK: arith.truncf {{.*}} : f32 to bf16
util.func @rounded_products(%a: tensor<2x16x64xf32>, %b: tensor<16x2x2x32xf8E4M3FN>, %bs: tensor<16x2x2xf8E8M0FNU>) -> tensor<16x2x16xbf16> {
  %scaled = tensor.empty() : tensor<16x2x2x32xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>,
                                        affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>],
                       iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%b, %bs : tensor<16x2x2x32xf8E4M3FN>, tensor<16x2x2xf8E8M0FNU>) outs(%scaled : tensor<16x2x2x32xf32>) {
  ^bb0(%x: f8E4M3FN, %xs: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FN, f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> tensor<16x2x2x32xf32>
  %f = tensor.collapse_shape %d [[0], [1], [2, 3]] : tensor<16x2x2x32xf32> into tensor<16x2x64xf32>
  %init = arith.constant dense<0.0> : tensor<16x2x16xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(n, b, m, k) -> (b, m, k)>, affine_map<(n, b, m, k) -> (n, b, k)>,
                                        affine_map<(n, b, m, k) -> (n, b, m)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%a, %f : tensor<2x16x64xf32>, tensor<16x2x64xf32>) outs(%init : tensor<16x2x16xbf16>) {
  ^bb0(%x: f32, %y: f32, %acc: bf16):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    %2 = arith.addf %acc, %1 : bf16
    linalg.yield %2 : bf16
  } -> tensor<16x2x16xbf16>
  util.return %r : tensor<16x2x16xbf16>
}
