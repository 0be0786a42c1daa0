// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise)' | filecheck %s

// What looks like one of our scaled matmuls but is not: it keeps its form and its operands, and gets the reason.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// NVFP4's blocks.
// CHECK-LABEL: util.func public @block_size_16(
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "block size 16: expected a multiple of 32"}
util.func @block_size_16(%a: tensor<64x16x16xf4E2M1FN>, %b: tensor<128x16x16xf4E2M1FN>, %as: tensor<64x16xf8E8M0FNU>,
    %bs: tensor<128x16xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x16x16xf4E2M1FN>, tensor<128x16x16xf4E2M1FN>,
                             tensor<64x16xf8E8M0FNU>, tensor<128x16xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// Scales are powers of two in E8M0.
// CHECK-LABEL: util.func public @f16_scales(
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "scale type f16: expected f8E8M0FNU"}
util.func @f16_scales(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<64x8xf16>,
    %bs: tensor<128x8xf16>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<64x8xf16>, tensor<128x8xf16>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f16, %ys: f16, %acc: f32):
    %x32 = arith.extf %x : f4E2M1FN to f32
    %xs32 = arith.extf %xs : f16 to f32
    %0 = arith.mulf %x32, %xs32 : f32
    %y32 = arith.extf %y : f4E2M1FN to f32
    %ys32 = arith.extf %ys : f16 to f32
    %1 = arith.mulf %y32, %ys32 : f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// 8-bit elements of older GPUs.
// CHECK-LABEL: util.func public @fp8_fnuz(
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "element types f8E4M3FNUZ {{.*}} f4E2M1FN: expected f4E2M1FN, f6E2M3FN, f6E3M2FN, f8E4M3FN, f8E5M2"}
util.func @fp8_fnuz(%a: tensor<64x8x32xf8E4M3FNUZ>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf8E4M3FNUZ>, tensor<128x8x32xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f8E4M3FNUZ, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FNUZ, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// f16 overflows where E8M0 does not.
// CHECK-LABEL: util.func public @dequantised_to_f16(
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "dequantised to f16: expected one of bf16, f32, f64"}
util.func @dequantised_to_f16(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f16
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f16
    %2 = arith.extf %0 : f16 to f32
    %3 = arith.extf %1 : f16 to f32
    %4 = arith.mulf %2, %3 : f32
    %5 = arith.addf %acc, %4 : f32
    linalg.yield %5 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// Dequantised to f32, but then rounded to f16.
// CHECK-LABEL: util.func public @cast_through_f16(
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "expected element {{.*}} f8E8M0FNU scale on both sides, got arithmetic ending in arith.truncf"}
util.func @cast_through_f16(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %x16 = arith.truncf %0 : f32 to f16
    %y16 = arith.truncf %1 : f32 to f16
    %x32 = arith.extf %x16 : f16 to f32
    %y32 = arith.extf %y16 : f16 to f32
    %2 = arith.mulf %x32, %y32 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// A second scale for the whole tensor, as a scalar operand of the contraction.
// CHECK-LABEL: util.func public @global_scale(
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "expected element {{.*}} f8E8M0FNU scale on both sides, got arithmetic ending in arith.mulf"}
util.func @global_scale(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>, %global: f32) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale,
                                        affine_map<(m, n, ko, kb) -> ()>, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs, %global : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                                      tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>, f32)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %g: f32, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %scaled = arith.mulf %0, %g : f32
    %2 = arith.mulf %scaled, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// Accumulates in f64.
// CHECK-LABEL: util.func public @f64_result(
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "result type f64: expected f32, f16, bf16"}
util.func @f64_result(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf64> {
  %init = arith.constant dense<0.0> : tensor<64x128xf64>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xf64>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f64):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f64
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f64
    %2 = arith.mulf %0, %1 : f64
    %3 = arith.addf %acc, %2 : f64
    linalg.yield %3 : f64
  } -> tensor<64x128xf64>
  util.return %r : tensor<64x128xf64>
}

// Nothing to multiply.
// CHECK-LABEL: util.func public @no_rows(
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "a dimension is 0"}
util.func @no_rows(%a: tensor<0x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<0x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<0x128xf32> {
  %init = arith.constant dense<0.0> : tensor<0x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<0x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<0x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<0x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<0x128xf32>
  util.return %r : tensor<0x128xf32>
}

// The model says itself how it is to be compiled.
// CHECK-LABEL: util.func public @own_lowering_config(
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "it has a lowering_config of its own"}
util.func @own_lowering_config(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>)
      attrs = {lowering_config = #iree_gpu.lowering_config<{workgroup = [64, 64, 0, 0]}>} {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// The model forms its own dispatch.
// CHECK-LABEL: util.func public @in_a_dispatch_region(
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "it is in a flow.dispatch.region already"}
util.func @in_a_dispatch_region(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
    %as: tensor<64x8xf8E8M0FNU>, %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %r = flow.dispatch.region -> (tensor<64x128xf32>) {
    %init = arith.constant dense<0.0> : tensor<64x128xf32>
    %q = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                         iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
        ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>, tensor<64x8xf8E8M0FNU>,
                               tensor<128x8xf8E8M0FNU>)
        outs(%init : tensor<64x128xf32>) {
    ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
      %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
      %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
      %2 = arith.mulf %0, %1 : f32
      %3 = arith.addf %acc, %2 : f32
      linalg.yield %3 : f32
    } -> tensor<64x128xf32>
    flow.return %q : tensor<64x128xf32>
  }
  util.return %r : tensor<64x128xf32>
}

#id3 = affine_map<(r, ko, kb) -> (r, ko, kb)>
#per_block = affine_map<(r, ko, kb) -> (r, ko)>
#scalar = affine_map<(r, ko, kb) -> ()>
#mm_lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#mm_rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>

// The dequantised LHS is also returned, so it has to be computed in any case.
// CHECK-LABEL: util.func public @dequantised_used_elsewhere(
// CHECK: %[[DA:.+]] = linalg.generic
// CHECK: %[[DB:.+]] = linalg.generic
// CHECK: linalg.contract
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "a dequantised operand is also used at loc({{.*}}recognise_left.mlir{{.*}})"}
// CHECK-SAME: ins(%[[DA]], %[[DB]] :
// CHECK: util.return %{{.+}}, %[[DA]]
util.func @dequantised_used_elsewhere(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
    %as: tensor<64x8xf8E8M0FNU>, %bs: tensor<128x8xf8E8M0FNU>) -> (tensor<64x128xf32>, tensor<64x8x32xf32>) {
  %ea = tensor.empty() : tensor<64x8x32xf32>
  %da = linalg.generic {indexing_maps = [#id3, #per_block, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a, %as : tensor<64x8x32xf4E2M1FN>, tensor<64x8xf8E8M0FNU>) outs(%ea : tensor<64x8x32xf32>) {
  ^bb0(%x: f4E2M1FN, %s: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %x, %s : f4E2M1FN, f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> tensor<64x8x32xf32>
  %eb = tensor.empty() : tensor<128x8x32xf32>
  %db = linalg.generic {indexing_maps = [#id3, #per_block, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%b, %bs : tensor<128x8x32xf4E2M1FN>, tensor<128x8xf8E8M0FNU>) outs(%eb : tensor<128x8x32xf32>) {
  ^bb0(%x: f4E2M1FN, %s: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %x, %s : f4E2M1FN, f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> tensor<128x8x32xf32>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.contract indexing_maps = [#mm_lhs, #mm_rhs, #out]
      ins(%da, %db : tensor<64x8x32xf32>, tensor<128x8x32xf32>) outs(%init : tensor<64x128xf32>) -> tensor<64x128xf32>
  util.return %r, %da : tensor<64x128xf32>, tensor<64x8x32xf32>
}

// Weights only: the LHS is plain f32.
// CHECK-LABEL: util.func public @weight_only(
// CHECK: linalg.contract
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "expected element {{.*}} f8E8M0FNU scale on both sides, got a plain f32 operand"}
util.func @weight_only(%a: tensor<64x8x32xf32>, %b: tensor<128x8x32xf4E2M1FN>, %bs: tensor<128x8xf8E8M0FNU>)
    -> tensor<64x128xf32> {
  %eb = tensor.empty() : tensor<128x8x32xf32>
  %db = linalg.generic {indexing_maps = [#id3, #per_block, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%b, %bs : tensor<128x8x32xf4E2M1FN>, tensor<128x8xf8E8M0FNU>) outs(%eb : tensor<128x8x32xf32>) {
  ^bb0(%x: f4E2M1FN, %s: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %x, %s : f4E2M1FN, f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> tensor<128x8x32xf32>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.contract indexing_maps = [#mm_lhs, #mm_rhs, #out]
      ins(%a, %db : tensor<64x8x32xf32>, tensor<128x8x32xf32>) outs(%init : tensor<64x128xf32>) -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// A matrix times a vector, and a second scale for the whole tensor (a scalar operand).
// CHECK-LABEL: util.func public @vector_and_global_scale(
// CHECK: linalg.matvec
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "expected element {{.*}} f8E8M0FNU scale on both sides, got arithmetic ending in arith.mulf"}
util.func @vector_and_global_scale(%b: tensor<128x8x32xf4E2M1FN>, %bs: tensor<128x8xf8E8M0FNU>, %global: f32,
    %v: tensor<256xf32>) -> tensor<128xf32> {
  %eb = tensor.empty() : tensor<128x8x32xf32>
  %db = linalg.generic {indexing_maps = [#id3, #per_block, #scalar, #id3],
                        iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%b, %bs, %global : tensor<128x8x32xf4E2M1FN>, tensor<128x8xf8E8M0FNU>, f32) outs(%eb : tensor<128x8x32xf32>) {
  ^bb0(%x: f4E2M1FN, %s: f8E8M0FNU, %g: f32, %o: f32):
    %0 = arith.scaling_extf %x, %s : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.mulf %0, %g : f32
    linalg.yield %1 : f32
  } -> tensor<128x8x32xf32>
  %cb = tensor.collapse_shape %db [[0], [1, 2]] : tensor<128x8x32xf32> into tensor<128x256xf32>
  %init = arith.constant dense<0.0> : tensor<128xf32>
  %r = linalg.matvec ins(%cb, %v : tensor<128x256xf32>, tensor<256xf32>) outs(%init : tensor<128xf32>)
      -> tensor<128xf32>
  util.return %r : tensor<128xf32>
}

// Nothing of a scaled matmul about these: no attribute at all.
// CHECK-LABEL: util.func public @plain_matmuls(
// CHECK-NOT: mxcomp.scaled_matmul
// CHECK: linalg.matmul
// CHECK-NOT: mxcomp.scaled_matmul
// CHECK: linalg.matmul
// CHECK-NOT: mxcomp.scaled_matmul
// CHECK: util.return
util.func @plain_matmuls(%a: tensor<64x256xf32>, %b: tensor<256x128xf32>, %c: tensor<64x256xf8E4M3FN>,
    %d: tensor<256x128xf8E4M3FN>) -> (tensor<64x128xf32>, tensor<64x128xf32>) {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.matmul ins(%a, %b : tensor<64x256xf32>, tensor<256x128xf32>) outs(%init : tensor<64x128xf32>)
      -> tensor<64x128xf32>
  %q = linalg.matmul ins(%c, %d : tensor<64x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>) outs(%init : tensor<64x128xf32>)
      -> tensor<64x128xf32>
  util.return %r, %q : tensor<64x128xf32>, tensor<64x128xf32>
}

// A batch of unknown size, of 8-bit operands, with what the user ought to know.
// CHECK-LABEL: util.func public @fp8_dynamic_batch(
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "a dynamic batch of both operands: expected a static one", warning = "8-bit operands are dequantised to f32 first, which is slow: stock IREE lays them out wrongly on gfx950"}
util.func @fp8_dynamic_batch(%a: tensor<?x64x8x32xf8E4M3FN>, %b: tensor<?x128x8x32xf8E4M3FN>, %as: tensor<?x64x8xf8E8M0FNU>,
    %bs: tensor<?x128x8xf8E8M0FNU>, %init: tensor<?x64x128xf32>) -> tensor<?x64x128xf32> {
  %r = linalg.generic {indexing_maps = [affine_map<(b, m, n, ko, kb) -> (b, m, ko, kb)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, n, ko, kb)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, m, ko)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, n, ko)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, m, n)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<?x64x8x32xf8E4M3FN>, tensor<?x128x8x32xf8E4M3FN>,
                             tensor<?x64x8xf8E8M0FNU>, tensor<?x128x8xf8E8M0FNU>)
      outs(%init : tensor<?x64x128xf32>) {
  ^bb0(%x: f8E4M3FN, %y: f8E4M3FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f8E4M3FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?x64x128xf32>
  util.return %r : tensor<?x64x128xf32>
}

// Every second row of the LHS, by an indexing map.
// CHECK-LABEL: util.func public @every_second_row(
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "an operand is stored in no known order: expected K and rows to index elements and scales"}
util.func @every_second_row(%a: tensor<127x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<127x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, ko, kb) -> (m * 2, ko, kb)>, #rhs,
                                        affine_map<(m, n, ko, kb) -> (m * 2, ko)>, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<127x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<127x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// Rounding to bf16 may carry into the exponent, which is what is taken of such a scale.
// CHECK-LABEL: util.func public @rounded_scales(
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "scale type f32: expected f8E8M0FNU"}
util.func @rounded_scales(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<64x8xf32>,
    %bs: tensor<128x8xf32>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<64x8xf32>, tensor<128x8xf32>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f32, %ys: f32, %acc: f32):
    %xs16 = arith.truncf %xs : f32 to bf16
    %ys16 = arith.truncf %ys : f32 to bf16
    %0 = arith.scaling_extf %x, %xs16 : f4E2M1FN, bf16 to f32
    %1 = arith.scaling_extf %y, %ys16 : f4E2M1FN, bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

#bytes = affine_map<(n, ko, kb) -> (n, ko, kb)>
#rows = affine_map<(n, ko) -> (n, ko)>

// Bytes as transformers dequantises them for GPT-OSS: what is in the table may be anything.
// CHECK-LABEL: util.func public @table(
// CHECK: linalg.matmul
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "a factor is made of stored bytes by a table of 16 values at {{.*}}recognise_left.mlir:{{.*}}, and multiplied as floats: weights that are to stay in MX are those of mxcomp.torch.ScaledLinear (see mxcomp.torch.load), or of arith.scaling_extf"}
util.func @table(%a: tensor<64x128xf32>, %plain: tensor<128x128xf32>, %blocks: tensor<128x4x16xi8>, %scales: tensor<128x4xf32>, %table: tensor<16xf32>) -> tensor<64x128xf32> {
  %fifteen = arith.constant 15 : i8
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<128x4x16xf32>
  %low = linalg.generic {indexing_maps = [#bytes, #bytes], iterator_types = ["parallel", "parallel", "parallel"]} ins(%blocks : tensor<128x4x16xi8>) outs(%e : tensor<128x4x16xf32>) {
  ^bb0(%x: i8, %out: f32):
    %0 = arith.andi %x, %fifteen : i8
    %1 = arith.index_castui %0 : i8 to index
    %2 = tensor.extract %table[%1] : tensor<16xf32>
    linalg.yield %2 : f32
  } -> tensor<128x4x16xf32>
  %b = tensor.empty() : tensor<128x4x32xf32>
  %c = tensor.insert_slice %low into %b[0, 0, 0] [128, 4, 16] [1, 1, 2] : tensor<128x4x16xf32> into tensor<128x4x32xf32>
  %d = tensor.insert_slice %low into %c[0, 0, 1] [128, 4, 16] [1, 1, 2] : tensor<128x4x16xf32> into tensor<128x4x32xf32>
  %f = tensor.collapse_shape %d [[0], [1, 2]] : tensor<128x4x32xf32> into tensor<128x128xf32>
  %empty = tensor.empty() : tensor<64x128xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x128xf32>) -> tensor<64x128xf32>
  %r = linalg.matmul ins(%a, %f : tensor<64x128xf32>, tensor<128x128xf32>) outs(%init : tensor<64x128xf32>) -> tensor<64x128xf32>
  // The second product's factor comes from the first one, not from the bytes.
  // CHECK: linalg.matmul ins
  %s = linalg.matmul ins(%r, %plain : tensor<64x128xf32>, tensor<128x128xf32>) outs(%init : tensor<64x128xf32>) -> tensor<64x128xf32>
  util.return %s : tensor<64x128xf32>
}

// CHECK-LABEL: util.func public @shifted_exponents(
// CHECK: linalg.matmul
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "a factor is made of stored bytes by shifted bits at {{.*}}recognise_left.mlir:
util.func @shifted_exponents(%a: tensor<64x128xf32>, %b: tensor<128x4xf32>, %scales: tensor<128x4xi8>, %init: tensor<64x4xf32>) -> tensor<64x4xf32> {
  %bits = arith.constant 23 : i32
  %e = tensor.empty() : tensor<128x4xf32>
  %f = linalg.generic {indexing_maps = [#rows, #rows, #rows], iterator_types = ["parallel", "parallel"]} ins(%b, %scales : tensor<128x4xf32>, tensor<128x4xi8>) outs(%e : tensor<128x4xf32>) {
  ^bb0(%x: f32, %s: i8, %out: f32):
    %0 = arith.extui %s : i8 to i32
    %1 = arith.shli %0, %bits : i32
    %2 = arith.bitcast %1 : i32 to f32
    %3 = arith.mulf %x, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<128x4xf32>
  %r = linalg.matmul ins(%a, %f : tensor<64x128xf32>, tensor<128x4xf32>) outs(%init : tensor<64x4xf32>) -> tensor<64x4xf32>
  util.return %r : tensor<64x4xf32>
}

// CHECK-LABEL: util.func public @powers_of_two(
// CHECK: linalg.matmul
// CHECK-SAME: mxcomp.scaled_matmul = {reason = "a factor is made of stored bytes by powers of two at {{.*}}recognise_left.mlir:
util.func @powers_of_two(%a: tensor<64x128xf32>, %b: tensor<128x4xf32>, %scales: tensor<128x4xi8>, %init: tensor<64x4xf32>) -> tensor<64x4xf32> {
  %two = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<128x4xf32>
  %f = linalg.generic {indexing_maps = [#rows, #rows, #rows], iterator_types = ["parallel", "parallel"]} ins(%b, %scales : tensor<128x4xf32>, tensor<128x4xi8>) outs(%e : tensor<128x4xf32>) {
  ^bb0(%x: f32, %s: i8, %out: f32):
    %0 = arith.sitofp %s : i8 to f32
    %1 = math.powf %two, %0 : f32
    %2 = arith.mulf %x, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<128x4xf32>
  %r = linalg.matmul ins(%a, %f : tensor<64x128xf32>, tensor<128x4xf32>) outs(%init : tensor<64x4xf32>) -> tensor<64x4xf32>
  util.return %r : tensor<64x4xf32>
}

// Weights of 8 bits with a scale, an embedding of 16 rows, and positions to powers of two are nothing of the kind.
// CHECK-LABEL: util.func public @others(
// CHECK-NOT: mxcomp.scaled_matmul
// CHECK: util.return
util.func @others(%a: tensor<64x128xf32>, %w: tensor<128x4xi8>, %scale: f32, %rows: tensor<16x4xf32>, %ids: tensor<128x4xi8>, %exponents: tensor<128x4xf32>, %init: tensor<64x4xf32>)
    -> (tensor<64x4xf32>, tensor<64x4xf32>, tensor<64x4xf32>) {
  %two = arith.constant 2.0 : f32
  %zero = arith.constant 0 : index
  %e = tensor.empty() : tensor<128x4xf32>
  %f = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<128x4xi8>) outs(%e : tensor<128x4xf32>) {
  ^bb0(%x: i8, %out: f32):
    %0 = arith.sitofp %x : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<128x4xf32>
  %g = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]} ins(%ids : tensor<128x4xi8>) outs(%e : tensor<128x4xf32>) {
  ^bb0(%x: i8, %out: f32):
    %0 = arith.index_castui %x : i8 to index
    %1 = tensor.extract %rows[%0, %zero] : tensor<16x4xf32>
    linalg.yield %1 : f32
  } -> tensor<128x4xf32>
  %h = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]} ins(%exponents : tensor<128x4xf32>) outs(%e : tensor<128x4xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = math.powf %two, %x : f32
    linalg.yield %0 : f32
  } -> tensor<128x4xf32>
  %r0 = linalg.matmul ins(%a, %f : tensor<64x128xf32>, tensor<128x4xf32>) outs(%init : tensor<64x4xf32>) -> tensor<64x4xf32>
  %r1 = linalg.matmul ins(%a, %g : tensor<64x128xf32>, tensor<128x4xf32>) outs(%init : tensor<64x4xf32>) -> tensor<64x4xf32>
  %r2 = linalg.matmul ins(%a, %h : tensor<64x128xf32>, tensor<128x4xf32>) outs(%init : tensor<64x4xf32>) -> tensor<64x4xf32>
  util.return %r0, %r1, %r2 : tensor<64x4xf32>, tensor<64x4xf32>, tensor<64x4xf32>
}
