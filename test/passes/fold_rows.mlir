// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-fold-rows)' | filecheck %s

// A workgroup reads its rows of LHS where they are stored: 16 units of 16 rows of 512 bytes, two K tiles of 256 of them.
// CHECK-LABEL: func.func @in_rows(
// CHECK: %[[BYTES:.+]] = hal.interface.binding.subspan {{.*}} binding(0) {{.*}} : memref<300x512xi8, #hal.descriptor_type<storage_buffer>>
// CHECK: %[[BUFFER:.+]] = amdgpu.fat_raw_buffer_cast %[[BYTES]] resetOffset
// CHECK-SAME: to memref<300x512xi8, #amdgpu.address_space<fat_raw_buffer>>
// CHECK: scf.forall (%[[I:.+]], %[[J:.+]]) in (2, 3)
// CHECK: %[[SCALES:.+]] = tensor.extract_slice %{{.+}}[%[[I]], 0, 0, 0, 0, 0] [1, 16, 2, 4, 16, 4]
// CHECK: %[[OFFSET:.+]] = affine.apply #{{.+}}(%[[I]])
// CHECK: %[[ROWS:.+]] = memref.reinterpret_cast %[[BUFFER]] to offset: [%[[OFFSET]]], sizes: [1, 16, 2, 1, 4, 4, 16, 16],
// CHECK-SAME: strides: [131072, 8192, 256, 256, 64, 16, 512, 1]
// CHECK: %[[LOADED:.+]] = iree_codegen.load_from_buffer %[[ROWS]] {{.*}} -> tensor<1x16x2x1x4x4x16x16xi8>
// CHECK: %[[LHS:.+]] = iree_tensor_ext.bitcast %[[LOADED]] : tensor<1x16x2x1x4x4x16x16xi8> -> tensor<1x16x2x1x4x4x16x32xf4E2M1FN>
// CHECK-NOT: tensor.extract %
// CHECK: iree_codegen.inner_tiled ins(%[[LHS]], %{{.+}}, %[[SCALES]], %{{.+}})
// CHECK-NOT: mxcomp.lhs_row_major

#lhs = affine_map<(m, n, mu, nu, k, kb) -> (m, mu, k, kb)>
#rhs = affine_map<(m, n, mu, nu, k, kb) -> (n, nu, k, kb)>
#lhs_scale = affine_map<(m, n, mu, nu, k, kb) -> (m, mu, k)>
#rhs_scale = affine_map<(m, n, mu, nu, k, kb) -> (n, nu, k)>
#out = affine_map<(m, n, mu, nu, k, kb) -> (m, n, mu, nu)>
#layout = #hal.pipeline.layout<bindings = [#hal.pipeline.binding<storage_buffer, "ReadOnly|Indirect">], flags = Indirect>
#units = affine_map<(a, b, c, d, e, f, g, h) -> (a, b, c, d, e, f, g, h)>
func.func @in_rows(%rhs: tensor<3x16x2x1x4x4x16x32xf4E2M1FN>, %lhs_scale: tensor<2x16x2x4x16x4xf8E8M0FNU>,
    %rhs_scale: tensor<3x16x2x4x16x4xf8E8M0FNU>, %acc: tensor<2x3x16x16x4x16x4xf32>) -> tensor<2x3x16x16x4x16x4xf32> {
  %c0 = arith.constant 0 : index
  %binding = hal.interface.binding.subspan layout(#layout) binding(0) alignment(64) offset(%c0) flags("ReadOnly|Indirect")
    : memref<300x1024xf4E2M1FN, #hal.descriptor_type<storage_buffer>>
  %buffer = amdgpu.fat_raw_buffer_cast %binding resetOffset : memref<300x1024xf4E2M1FN, #hal.descriptor_type<storage_buffer>>
    to memref<300x1024xf4E2M1FN, #amdgpu.address_space<fat_raw_buffer>>
  %a = iree_codegen.load_from_buffer %buffer
    : memref<300x1024xf4E2M1FN, #amdgpu.address_space<fat_raw_buffer>> -> tensor<300x1024xf4E2M1FN>
  %empty = tensor.empty() : tensor<2x16x2x1x4x4x16x32xf4E2M1FN>
  %lhs = linalg.generic {indexing_maps = [#units], iterator_types = ["parallel", "parallel", "parallel", "parallel",
      "parallel", "parallel", "parallel", "parallel"]} outs(%empty : tensor<2x16x2x1x4x4x16x32xf4E2M1FN>) {
  ^bb0(%out: f4E2M1FN):
    %t = linalg.index 0 : index
    %u = linalg.index 1 : index
    %kt = linalg.index 2 : index
    %s = linalg.index 4 : index
    %b = linalg.index 5 : index
    %r = linalg.index 6 : index
    %e = linalg.index 7 : index
    %row = affine.min affine_map<(t, u, r) -> (299, t * 256 + u * 16 + r)>(%t, %u, %r)
    %k = affine.apply affine_map<(kt, s, b, e) -> (kt * 512 + s * 128 + b * 32 + e)>(%kt, %s, %b, %e)
    %x = tensor.extract %a[%row, %k] : tensor<300x1024xf4E2M1FN>
    linalg.yield %x : f4E2M1FN
  } -> tensor<2x16x2x1x4x4x16x32xf4E2M1FN>
  %result = iree_codegen.inner_tiled ins(%lhs, %rhs, %lhs_scale, %rhs_scale) outs(%acc) <
      indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
      iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>,
        #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>, #linalg.iterator_type<reduction>],
      kind = #iree_gpu.data_tiled_scaled_mma_layout<intrinsic = MFMA_SCALE_F32_16x16x128_B32,
        lhs_elem_type = f4E2M1FN, rhs_elem_type = f4E2M1FN, acc_elem_type = f32, intrinsics_k = 4,
        operands_interleaving_intrinsics_k = [2, 3]>,
      semantics = #iree_gpu.mma_semantics<distributed = false, opaque = false>> {mxcomp.lhs_row_major,
      lowering_config = #iree_gpu.lowering_config<{workgroup = [1, 1, 0, 0, 0, 0]}>}
    : tensor<2x16x2x1x4x4x16x32xf4E2M1FN>, tensor<3x16x2x1x4x4x16x32xf4E2M1FN>,
      tensor<2x16x2x4x16x4xf8E8M0FNU>, tensor<3x16x2x4x16x4xf8E8M0FNU>
      into tensor<2x3x16x16x4x16x4xf32>
  return %result : tensor<2x3x16x16x4x16x4xf32>
}
