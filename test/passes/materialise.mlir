// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{ukernels=test_tile},mxcomp-materialise)' | filecheck %s

// Whole tiles of 32 x 128 x 256: one dispatch packs each operand, one multiplies and unpacks.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// Elements: rows are tile, intrinsic (and subgroup), lane; blocks are tile, intrinsic, lane; then words of a block.
// CHECK-DAG: #[[LHS_ROW:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0 * 32 + d2 * 16 + d5)>
// CHECK-DAG: #[[LHS_BLOCK:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1 * 8 + d3 * 4 + d4)>
// CHECK-DAG: #[[RHS_ROW:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d0 * 128 + d2 * 64 + d3 * 16 + d6)>
// CHECK-DAG: #[[RHS_BLOCK:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, d6, d7) -> (d1 * 8 + d4 * 4 + d5)>
// Scales: the four bytes of a word are two intrinsics in M times two in K.
// CHECK-DAG: #[[S_ROW:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d0 * 32 + d3)>
// CHECK-DAG: #[[S_NEXT_ROW:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d0 * 32 + d3 + 16)>
// CHECK-DAG: #[[S_BLOCK:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d1 * 8 + d2)>
// CHECK-DAG: #[[S_NEXT_BLOCK:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d1 * 8 + d2 + 4)>
// CHECK-DAG: #[[TRANSLATION:.+]] = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [128, 1, 1] subgroup_size = 64,
// CHECK: #[[INFO:.+]] = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{workgroup = [1, 1, 0, 0]}>, translation_info = #[[TRANSLATION]]>

// CHECK-LABEL: util.func public @even(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>)
// CHECK-NOT: iree_encoding
// CHECK-NOT: mxcomp.scaled_matmul
// CHECK-NOT: arith.select

// CHECK: %[[AW:.+]] = iree_tensor_ext.bitcast %[[A]] : tensor<64x8x32xf4E2M1FN> -> tensor<64x8x4xi32>
// CHECK-NEXT: %[[AP:.+]] = flow.dispatch.region -> (tensor<2x1x2x2x4x16x4xi32>) {
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<2x1x2x2x4x16x4xi32>) {
// CHECK: %[[W:.+]] = linalg.index 6 : index
// CHECK: %[[ROW:.+]] = affine.apply #[[LHS_ROW]](
// CHECK: %[[BLOCK:.+]] = affine.apply #[[LHS_BLOCK]](
// CHECK-NEXT: %[[V:.+]] = tensor.extract %[[AW]][%[[ROW]], %[[BLOCK]], %[[W]]] : tensor<64x8x4xi32>
// CHECK-NEXT: linalg.yield %[[V]] : i32
// CHECK: flow.return
// CHECK: %[[ABYTES:.+]] = iree_tensor_ext.bitcast %[[AP]] : tensor<2x1x2x2x4x16x4xi32> -> tensor<2x1x1x2x2x4x16x16xi8>

// CHECK: %[[BW:.+]] = iree_tensor_ext.bitcast %[[B]] : tensor<128x8x32xf4E2M1FN> -> tensor<128x8x4xi32>
// CHECK-NEXT: %[[BP:.+]] = flow.dispatch.region -> (tensor<1x1x2x4x2x4x16x4xi32>) {
// CHECK: %[[W:.+]] = linalg.index 7 : index
// CHECK: %[[ROW:.+]] = affine.apply #[[RHS_ROW]](
// CHECK: %[[BLOCK:.+]] = affine.apply #[[RHS_BLOCK]](
// CHECK-NEXT: %{{.+}} = tensor.extract %[[BW]][%[[ROW]], %[[BLOCK]], %[[W]]] : tensor<128x8x4xi32>
// CHECK: flow.return
// CHECK: %[[BBYTES:.+]] = iree_tensor_ext.bitcast %[[BP]] : tensor<1x1x2x4x2x4x16x4xi32> -> tensor<1x1x1x2x4x2x4x16x16xi8>

// CHECK: %[[ASB:.+]] = iree_tensor_ext.bitcast %[[AS]] : tensor<64x8xf8E8M0FNU> -> tensor<64x8xi8>
// CHECK-NEXT: %[[ASW:.+]] = flow.dispatch.region -> (tensor<2x1x4x16x1xi32>) {
// CHECK: affine.apply #[[S_ROW]](
// CHECK-NEXT: affine.apply #[[S_BLOCK]](
// CHECK-NEXT: tensor.extract %[[ASB]]
// CHECK: affine.apply #[[S_ROW]](
// CHECK-NEXT: affine.apply #[[S_NEXT_BLOCK]](
// CHECK-NEXT: tensor.extract %[[ASB]]
// CHECK: arith.constant 8 : i32
// CHECK: arith.shli
// CHECK: affine.apply #[[S_NEXT_ROW]](
// CHECK-NEXT: affine.apply #[[S_BLOCK]](
// CHECK-NEXT: tensor.extract %[[ASB]]
// CHECK: arith.constant 16 : i32
// CHECK: affine.apply #[[S_NEXT_ROW]](
// CHECK-NEXT: affine.apply #[[S_NEXT_BLOCK]](
// CHECK-NEXT: tensor.extract %[[ASB]]
// CHECK: arith.constant 24 : i32
// CHECK: arith.ori
// CHECK-NEXT: linalg.yield
// CHECK: flow.return
// CHECK: %[[ASP:.+]] = iree_tensor_ext.bitcast %[[ASW]] : tensor<2x1x4x16x1xi32> -> tensor<2x1x4x16x2x2xf8E8M0FNU>

// CHECK: %[[BSB:.+]] = iree_tensor_ext.bitcast %[[BS]] : tensor<128x8xf8E8M0FNU> -> tensor<128x8xi8>
// CHECK-NEXT: %[[BSW:.+]] = flow.dispatch.region -> (tensor<1x1x2x4x16x2xi32>) {
// CHECK-COUNT-4: tensor.extract %[[BSB]]
// CHECK: %[[BSP:.+]] = iree_tensor_ext.bitcast %[[BSW]] : tensor<1x1x2x4x16x2xi32> -> tensor<1x1x2x4x16x4x2xf8E8M0FNU>

// CHECK: %[[R:.+]] = flow.dispatch.region -> (tensor<64x128xf32>) {
// CHECK-NEXT: %[[AT:.+]] = iree_tensor_ext.bitcast %[[ABYTES]] : tensor<2x1x1x2x2x4x16x16xi8> -> tensor<2x1x1x2x2x4x16x32xf4E2M1FN>
// CHECK-NEXT: %[[BT:.+]] = iree_tensor_ext.bitcast %[[BBYTES]] : tensor<1x1x1x2x4x2x4x16x16xi8> -> tensor<1x1x1x2x4x2x4x16x32xf4E2M1FN>
// CHECK: %[[ZERO:.+]] = linalg.fill {{.*}} -> tensor<2x1x2x2x4x4x16x4xf32>
// CHECK-NEXT: %[[T:.+]] = iree_codegen.inner_tiled ins(%[[AT]], %[[BT]], %[[ASP]], %[[BSP]]) outs(%[[ZERO]])
// CHECK-SAME: kind = #iree_gpu.data_tiled_scaled_mma_layout<intrinsic = MFMA_SCALE_F32_16x16x128_B32,
// CHECK-SAME: intrinsics_m = 2, intrinsics_n = 4, subgroups_n = 2, intrinsics_k = 2,
// CHECK-SAME: operands_interleaving_intrinsics_m = [2], operands_interleaving_intrinsics_n = [3], operands_interleaving_intrinsics_k = [2, 3]>,
// CHECK-SAME: #iree_gpu.mma_semantics<distributed = false, opaque = false>
// CHECK-SAME: {compilation_info = #[[INFO]], iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"test_tile", tensor>}
// CHECK: %[[U:.+]] = linalg.transpose ins(%[[T]] : tensor<2x1x2x2x4x4x16x4xf32>)
// CHECK-SAME: outs({{.*}} : tensor<2x2x4x4x1x2x4x16xf32>) permutation = [0, 3, 5, 7, 1, 2, 4, 6]
// CHECK-NEXT: %[[C:.+]] = tensor.collapse_shape %[[U]] {{\[}}[0, 1, 2, 3], [4, 5, 6, 7]] : {{.*}} into tensor<64x128xf32>
// CHECK-NOT: tensor.extract_slice
// CHECK: flow.return %[[C]]
// CHECK: util.return %[[R]]
// CHECK-NOT: iree_encoding
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
