// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{ukernels=benefit})' | filecheck %s
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{ukernels=none})' \
// RUN:   | filecheck %s --check-prefix=NONE
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{data-tiling=off})' \
// RUN:   | filecheck %s --check-prefix=OFF
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{ukernels=mx_f8E4M3FN_f8E5M2_f32_m64_n128_k512})' \
// RUN:   | filecheck %s --check-prefix=NAMED

// Any two MX element types are recognised and have a ukernel of the family. Without it 6-bit operands are dequantised
// to f32, and without our packing 8-bit operands are.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// MXFP8, both formats.
// CHECK-LABEL: util.func public @fp8(
// CHECK: linalg.generic
// CHECK-SAME: ukernel = "mx_f8E4M3FN_f8E5M2_f32_m64_n128_k256"
// NONE-LABEL: util.func public @fp8(
// NONE: linalg.generic
// NONE-SAME: mxcomp.scaled_matmul = {index = 0 : i64, layout = {{.*}}reason = "--ukernels=none"
// OFF-LABEL: util.func public @fp8(
// OFF: linalg.generic
// OFF-SAME: mxcomp.scaled_matmul = {index = {{.}} : i64, reason = "left to IREE: --data-tiling=off and {{.*}}", warning = "8-bit operands are dequantised to f32 first, which is slow: stock IREE lays them out wrongly on gfx950"}
// NAMED-LABEL: util.func public @fp8(
// NAMED: linalg.generic
// NAMED-SAME: mxcomp.scaled_matmul = {index = 0 : i64, layout = {{.*}}inner_tiles = [4, 8]{{.*}}ukernel = "mx_f8E4M3FN_f8E5M2_f32_m64_n128_k512"
util.func @fp8(%a: tensor<64x8x32xi8>, %b: tensor<128x256xi8>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %l = iree_tensor_ext.bitcast %a : tensor<64x8x32xi8> -> tensor<64x8x32xf8E4M3FN>
  %r = iree_tensor_ext.bitcast %b : tensor<128x256xi8> -> tensor<128x8x32xf8E5M2>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %p = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%l, %r, %as, %bs : tensor<64x8x32xf8E4M3FN>, tensor<128x8x32xf8E5M2>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f8E4M3FN, %y: f8E5M2, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f8E5M2, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %p : tensor<64x128xf32>
}

// MXFP8 activations, MXFP4 weights.
// CHECK-LABEL: util.func public @fp8_fp4(
// CHECK: linalg.generic
// CHECK-SAME: ukernel = "mx_f8E5M2_f4E2M1FN_f32_m64_n128_k256"
// NONE-LABEL: util.func public @fp8_fp4(
// NONE: linalg.generic
// NONE-SAME: mxcomp.scaled_matmul = {index = 1 : i64, layout = {{.*}}reason = "--ukernels=none"
// OFF-LABEL: util.func public @fp8_fp4(
// OFF: linalg.generic
// OFF-SAME: mxcomp.scaled_matmul = {index = {{.}} : i64, reason = "left to IREE: --data-tiling=off and {{.*}}", warning = "8-bit operands are dequantised to f32 first, which is slow: stock IREE lays them out wrongly on gfx950"}
// NAMED-LABEL: util.func public @fp8_fp4(
// NAMED: linalg.generic
// NAMED-SAME: mxcomp.scaled_matmul = {index = 1 : i64, layout = {{.*}}reason = "mx_f8E4M3FN_f8E5M2_f32_m64_n128_k512: it takes f8E4M3FN {{.*}} f8E5M2, not f8E5M2 {{.*}} f4E2M1FN"
util.func @fp8_fp4(%a: tensor<64x8x32xi8>, %b: tensor<128x128xi8>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %l = iree_tensor_ext.bitcast %a : tensor<64x8x32xi8> -> tensor<64x8x32xf8E5M2>
  %r = iree_tensor_ext.bitcast %b : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %p = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%l, %r, %as, %bs : tensor<64x8x32xf8E5M2>, tensor<128x8x32xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f8E5M2, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E5M2, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %p : tensor<64x128xf32>
}

// 6-bit elements, in 24 bytes a block or in rows of bytes.
// CHECK-LABEL: util.func public @fp6(
// CHECK: linalg.generic
// CHECK-SAME: ukernel = "mx_f6E2M3FN_f6E3M2FN_f32_m64_n128_k256"
// NONE-LABEL: util.func public @fp6(
// NONE: linalg.generic
// NONE-SAME: mxcomp.scaled_matmul = {index = 2 : i64, reason = "left to IREE: --ukernels=none", warning = "6-bit operands are dequantised to f32 first, which is slow: stock IREE cannot load them"}
// OFF-LABEL: util.func public @fp6(
// OFF: linalg.generic
// OFF-SAME: mxcomp.scaled_matmul = {index = {{.}} : i64, reason = "left to IREE: --data-tiling=off and {{.*}}", warning = "6-bit operands are dequantised to f32 first, which is slow: stock IREE cannot load them"}
// NAMED-LABEL: util.func public @fp6(
// NAMED: linalg.generic
// NAMED-SAME: mxcomp.scaled_matmul = {index = 2 : i64, reason = "left to IREE: mx_f8E4M3FN_f8E5M2_f32_m64_n128_k512: it takes f8E4M3FN {{.*}} f8E5M2, not f6E2M3FN {{.*}} f6E3M2FN", warning = "6-bit operands are dequantised to f32 first, which is slow: stock IREE cannot load them"}
util.func @fp6(%a: tensor<64x8x24xi8>, %b: tensor<128x192xi8>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %l = iree_tensor_ext.bitcast %a : tensor<64x8x24xi8> -> tensor<64x8x32xf6E2M3FN>
  %r = iree_tensor_ext.bitcast %b : tensor<128x192xi8> -> tensor<128x8x32xf6E3M2FN>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %p = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%l, %r, %as, %bs : tensor<64x8x32xf6E2M3FN>, tensor<128x8x32xf6E3M2FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f6E2M3FN, %y: f6E3M2FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f6E2M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f6E3M2FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %p : tensor<64x128xf32>
}

// Both warnings.
// CHECK-LABEL: util.func public @fp8_fp6(
// CHECK: linalg.generic
// CHECK-SAME: ukernel = "mx_f8E4M3FN_f6E3M2FN_f32_m64_n128_k256"
// NONE-LABEL: util.func public @fp8_fp6(
// NONE: linalg.generic
// NONE-SAME: mxcomp.scaled_matmul = {index = 3 : i64, reason = "left to IREE: --ukernels=none", warning = "6-bit operands are dequantised to f32 first, which is slow: stock IREE cannot load them; 8-bit operands are dequantised to f32 first, which is slow: stock IREE lays them out wrongly on gfx950"}
// OFF-LABEL: util.func public @fp8_fp6(
// OFF: linalg.generic
// OFF-SAME: mxcomp.scaled_matmul = {index = {{.}} : i64, reason = "left to IREE: --data-tiling=off and {{.*}}", warning = "6-bit operands are dequantised to f32 first, which is slow: stock IREE cannot load them; 8-bit operands are dequantised to f32 first, which is slow: stock IREE lays them out wrongly on gfx950"}
// NAMED-LABEL: util.func public @fp8_fp6(
// NAMED: linalg.generic
// NAMED-SAME: mxcomp.scaled_matmul = {index = 3 : i64, reason = "left to IREE: mx_f8E4M3FN_f8E5M2_f32_m64_n128_k512: it takes f8E4M3FN {{.*}} f8E5M2, not 
util.func @fp8_fp6(%a: tensor<64x8x32xi8>, %b: tensor<128x192xi8>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %l = iree_tensor_ext.bitcast %a : tensor<64x8x32xi8> -> tensor<64x8x32xf8E4M3FN>
  %r = iree_tensor_ext.bitcast %b : tensor<128x192xi8> -> tensor<128x8x32xf6E3M2FN>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %p = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%l, %r, %as, %bs : tensor<64x8x32xf8E4M3FN>, tensor<128x8x32xf6E3M2FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f8E4M3FN, %y: f6E3M2FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f6E3M2FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %p : tensor<64x128xf32>
}
