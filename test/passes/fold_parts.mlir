// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-fold-gathers)' | filecheck %s

// K in two parts: a workgroup of matrix p takes tiles 2 p and 2 p + 1 of four along K, of all operands.
// CHECK-LABEL: func.func @in_parts(
// CHECK: scf.forall (%[[P:.+]], %{{.+}}, %[[N:.+]]) in (2, 3, 5)
// CHECK: %[[LHS_K:.+]] = affine.apply #{{.+}}(%[[P]])
// CHECK: %[[LHS:.+]] = tensor.extract_slice %{{.+}}[0, 0, 0, %[[LHS_K]], 0, 0, 0, 0, 0] [1, 1, 1, 2, 1, 4, 4, 16, 32]
// CHECK: %[[RHS_K:.+]] = affine.apply #{{.+}}(%[[P]])
// CHECK: %[[RHS:.+]] = tensor.extract_slice %{{.+}}[0, 0, 0, %[[RHS_K]], 0, 0, 0, 0, 0] [1, 1, 2, 2, 1, 4, 4, 16, 32]
// CHECK: %[[LHS_SCALE:.+]] = tensor.extract_slice %{{.+}} [1, 1, 1, 2, 4, 16, 4]
// CHECK: %[[RHS_SCALE:.+]] = tensor.extract_slice %{{.+}} [1, 1, 2, 2, 4, 16, 4]
// CHECK: iree_codegen.inner_tiled ins(%[[LHS]], %[[RHS]], %[[LHS_SCALE]], %[[RHS_SCALE]])
// CHECK-NOT: mxcomp.in_parts
// CHECK-NOT: iree_linalg_ext.gather

#lhs = affine_map<(b, m, n, mu, nu, k, kb) -> (b, m, mu, k, kb)>
#rhs = affine_map<(b, m, n, mu, nu, k, kb) -> (b, n, nu, k, kb)>
#lhs_scale = affine_map<(b, m, n, mu, nu, k, kb) -> (b, m, mu, k)>
#rhs_scale = affine_map<(b, m, n, mu, nu, k, kb) -> (b, n, nu, k)>
#out = affine_map<(b, m, n, mu, nu, k, kb) -> (b, m, n, mu, nu)>
func.func @in_parts(%lhs: tensor<1x3x1x4x1x4x4x16x32xf4E2M1FN>, %rhs: tensor<1x5x2x4x1x4x4x16x32xf4E2M1FN>,
    %lhs_scale: tensor<1x3x1x4x4x16x4xf8E8M0FNU>, %rhs_scale: tensor<1x5x2x4x4x16x4xf8E8M0FNU>,
    %acc: tensor<2x3x5x1x2x4x16x4xf32>) -> tensor<2x3x5x1x2x4x16x4xf32> {
  %parts = arith.constant dense<[0, 1]> : tensor<2xi32>
  %0 = tensor.empty() : tensor<2x3x1x4x1x4x4x16x32xf4E2M1FN>
  %1 = tensor.empty() : tensor<2x5x2x4x1x4x4x16x32xf4E2M1FN>
  %2 = tensor.empty() : tensor<2x3x1x4x4x16x4xf8E8M0FNU>
  %3 = tensor.empty() : tensor<2x5x2x4x4x16x4xf8E8M0FNU>
  %a = iree_linalg_ext.gather dimension_map = [0] ins(%lhs, %parts : tensor<1x3x1x4x1x4x4x16x32xf4E2M1FN>, tensor<2xi32>)
    outs(%0 : tensor<2x3x1x4x1x4x4x16x32xf4E2M1FN>) -> tensor<2x3x1x4x1x4x4x16x32xf4E2M1FN>
  %b = iree_linalg_ext.gather dimension_map = [0] ins(%rhs, %parts : tensor<1x5x2x4x1x4x4x16x32xf4E2M1FN>, tensor<2xi32>)
    outs(%1 : tensor<2x5x2x4x1x4x4x16x32xf4E2M1FN>) -> tensor<2x5x2x4x1x4x4x16x32xf4E2M1FN>
  %as = iree_linalg_ext.gather dimension_map = [0] ins(%lhs_scale, %parts : tensor<1x3x1x4x4x16x4xf8E8M0FNU>, tensor<2xi32>)
    outs(%2 : tensor<2x3x1x4x4x16x4xf8E8M0FNU>) -> tensor<2x3x1x4x4x16x4xf8E8M0FNU>
  %bs = iree_linalg_ext.gather dimension_map = [0] ins(%rhs_scale, %parts : tensor<1x5x2x4x4x16x4xf8E8M0FNU>, tensor<2xi32>)
    outs(%3 : tensor<2x5x2x4x4x16x4xf8E8M0FNU>) -> tensor<2x5x2x4x4x16x4xf8E8M0FNU>
  %r = iree_codegen.inner_tiled ins(%a, %b, %as, %bs) outs(%acc) <
      indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
      iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>,
        #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>,
        #linalg.iterator_type<reduction>, #linalg.iterator_type<reduction>],
      kind = #iree_gpu.data_tiled_scaled_mma_layout<intrinsic = MFMA_SCALE_F32_16x16x128_B32,
        lhs_elem_type = f4E2M1FN, rhs_elem_type = f4E2M1FN, acc_elem_type = f32, intrinsics_k = 4,
        operands_interleaving_intrinsics_k = [2, 3]>,
      semantics = #iree_gpu.mma_semantics<distributed = false, opaque = false>> {mxcomp.in_parts,
      lowering_config = #iree_gpu.lowering_config<{workgroup = [1, 1, 1, 0, 0, 0, 0]}>}
    : tensor<2x3x1x4x1x4x4x16x32xf4E2M1FN>, tensor<2x5x2x4x1x4x4x16x32xf4E2M1FN>, tensor<2x3x1x4x4x16x4xf8E8M0FNU>,
      tensor<2x5x2x4x4x16x4xf8E8M0FNU> into tensor<2x3x5x1x2x4x16x4xf32>
  return %r : tensor<2x3x5x1x2x4x16x4xf32>
}
