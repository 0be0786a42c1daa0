// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{data-tiling=off})' | filecheck %s --check-prefix=OFF
// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good --data-tiling=off \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode)' | filecheck %s --check-prefix=OFF
// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{ukernels=none})' | filecheck %s --check-prefix=NONE
// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{data-tiling=off ukernels=none})' | filecheck %s --check-prefix=NEITHER
// RUN: mxcomp-opt %s --ukernels=test_tile \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{ukernel-dir=%S/../registry/inputs/good})' | filecheck %s --check-prefix=NAMED
// RUN: mxcomp-opt %s --ukernels=test_tile --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{ukernels=test_old_scales})' | filecheck %s --check-prefix=OLD
// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{ukernels=test_row_major})' | filecheck %s --check-prefix=ROW
// RUN: not mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{ukernels=no_such})' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not mxcomp-opt %s --ukernel-dir=%S/no_such_directory \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 | filecheck %s --check-prefix=NO-DIR

// What the options change. The second matmul fits none of the ukernels in inputs/good.

// UNKNOWN: mxcomp-opt: error: unknown ukernel 'no_such': known are {{.*}}test_old_scales, test_row_major, test_tile, test_wide
// NO-DIR: mxcomp-opt: error: ukernel directory {{.*}}no_such_directory does not exist

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// OFF-LABEL: util.func public @even(
// OFF-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// OFF-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>)
// OFF-NOT: iree_encoding
// OFF: linalg.generic
// OFF-SAME: ins(%[[A]], %[[B]], %[[AS]], %[[BS]] :
// OFF-SAME: mxcomp.scaled_matmul = {index = 0 : i64, plan = "row_major", tile = [32, 128, 256], ukernel = "test_row_major", workgroup_size = [128, 1, 1]}
// OFF-NOT: iree_encoding

// NONE-LABEL: util.func public @even(
// NONE: iree_encoding.set_encoding
// NONE: linalg.generic
// NONE-NOT: ukernel =
// NONE-SAME: mxcomp.scaled_matmul = {index = 0 : i64, layout = {intrinsic = "MFMA_SCALE_F32_{{.+}}", {{.*}}}, {{.*}}plan = "data_tiled",
// NONE-SAME: reason = "--ukernels=none"
// NONE-NOT: ukernel =
// NONE: iree_encoding.unset_encoding

// NEITHER-LABEL: util.func public @even(
// NEITHER-NOT: iree_encoding
// NEITHER: mxcomp.scaled_matmul = {index = 0 : i64, reason = "left to IREE: --data-tiling=off and --ukernels=none"}

// NAMED-LABEL: util.func public @even(
// NAMED: mxcomp.scaled_matmul = {index = 0 : i64, {{.*}}ukernel = "test_tile"

// OLD-LABEL: util.func public @even(
// OLD: mxcomp.scaled_matmul = {index = 0 : i64,
// OLD-SAME: layout = {intrinsic = "MFMA_SCALE_F32_16x16x128_B32", intrinsics_k = 2 : i64, intrinsics_m = 2 : i64,
// OLD-SAME: intrinsics_n = 2 : i64, scale_permutation = [3, 0, 1, 2]}, plan = "data_tiled", ukernel = "test_old_scales"

// ROW-LABEL: util.func public @even(
// ROW-NOT: ukernel =
// ROW: plan = "data_tiled", reason = "test_row_major: it takes row_major operands, not data_tiled"
// ROW-NOT: ukernel =
// ROW: util.return
util.func @even(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
    %as: tensor<64x8xf8E8M0FNU>, %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64x128xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x128xf32>) -> tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
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

// OFF-LABEL: util.func public @odd(
// OFF-NOT: iree_encoding
// OFF: mxcomp.scaled_matmul = {index = 1 : i64, reason = "left to IREE: --data-tiling=off and {{.*}}test_row_major: K = 224 is not a multiple of 256"}

// NONE-LABEL: util.func public @odd(
// NONE: reason = "--ukernels=none"

// NAMED-LABEL: util.func public @odd(
// NAMED-NOT: ukernel =
// NAMED: plan = "data_tiled", reason = "test_tile: N = 126 is not a multiple of 128"
// NAMED-NOT: ukernel =
// NAMED: util.return

// OLD-LABEL: util.func public @odd(
// OLD: ukernel = "test_old_scales"
util.func @odd(%a: tensor<63x7x32xf4E2M1FN>, %b: tensor<126x7x32xf4E2M1FN>,
    %as: tensor<63x7xf8E8M0FNU>, %bs: tensor<126x7xf8E8M0FNU>) -> tensor<63x126xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<63x126xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<63x126xf32>) -> tensor<63x126xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<63x7x32xf4E2M1FN>, tensor<126x7x32xf4E2M1FN>,
                             tensor<63x7xf8E8M0FNU>, tensor<126x7xf8E8M0FNU>)
      outs(%init : tensor<63x126xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<63x126xf32>
  util.return %r : tensor<63x126xf32>
}
