// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-fold-gathers)' | filecheck %s

// A workgroup reads the matrix of its expert where it lies, for whatever is in the ids.
// CHECK-LABEL: func.func @grouped(
// CHECK-SAME: %[[IDS:[a-z0-9]+]]: tensor<5xi32>
// CHECK: scf.forall (%[[B:.+]], %[[N:.+]]) in (5, 3)
// CHECK: %[[ID:.+]] = tensor.extract_slice %[[IDS]][%[[B]]] [1] [1]
// CHECK: %[[ALL:.+]] = tensor.extract_slice %{{.+}}[0, %[[N]], 0, 0, 0, 0, 0, 0, 0, 0] [7, 1, 2, 1, 2, 4, 2, 4, 16, 32]
// CHECK: %[[GIVEN:.+]] = tensor.extract %[[ID]][%{{.+}}] : tensor<1xi32>
// CHECK: %[[C0:.+]] = arith.constant 0 : i32
// CHECK: %[[LOW:.+]] = arith.maxsi %[[GIVEN]], %[[C0]]
// CHECK: %[[C6:.+]] = arith.constant 6 : i32
// CHECK: %[[CLAMPED:.+]] = arith.minsi %[[LOW]], %[[C6]]
// CHECK: %[[EXPERT:.+]] = arith.index_cast %[[CLAMPED]]
// CHECK: %[[W:.+]] = tensor.extract_slice %[[ALL]][%[[EXPERT]], 0, 0, 0, 0, 0, 0, 0, 0, 0] [1, 1, 2, 1, 2, 4, 2, 4, 16, 32]
// CHECK: iree_codegen.inner_tiled ins(%{{.+}}, %[[W]], %{{.+}}, %{{.+}})
// CHECK-NOT: iree_linalg_ext.gather

#lhs = affine_map<(b, m, n, k, kb) -> (b, m, k, kb)>
#rhs = affine_map<(b, m, n, k, kb) -> (b, n, k, kb)>
#lhs_scale = affine_map<(b, m, n, k, kb) -> (b, m, k)>
#rhs_scale = affine_map<(b, m, n, k, kb) -> (b, n, k)>
#out = affine_map<(b, m, n, k, kb) -> (b, m, n)>
func.func @grouped(%lhs: tensor<5x1x2x1x2x2x4x16x32xf4E2M1FN>, %w: tensor<7x3x2x1x2x4x2x4x16x32xf4E2M1FN>,
    %lhs_scale: tensor<5x1x2x4x16x2x2xf8E8M0FNU>, %w_scale: tensor<5x3x2x2x4x16x4x2xf8E8M0FNU>,
    %ids: tensor<5xi32>, %acc: tensor<5x1x3x2x2x4x4x16x4xf32>) -> tensor<5x1x3x2x2x4x4x16x4xf32> {
  %empty = tensor.empty() : tensor<5x3x2x1x2x4x2x4x16x32xf4E2M1FN>
  %g = iree_linalg_ext.gather dimension_map = [0]
    ins(%w, %ids : tensor<7x3x2x1x2x4x2x4x16x32xf4E2M1FN>, tensor<5xi32>)
    outs(%empty : tensor<5x3x2x1x2x4x2x4x16x32xf4E2M1FN>) -> tensor<5x3x2x1x2x4x2x4x16x32xf4E2M1FN>
  %r = iree_codegen.inner_tiled ins(%lhs, %g, %lhs_scale, %w_scale) outs(%acc) <
      indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
      iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>,
        #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>, #linalg.iterator_type<reduction>],
      kind = #iree_gpu.data_tiled_scaled_mma_layout<intrinsic = MFMA_SCALE_F32_16x16x128_B32,
        lhs_elem_type = f4E2M1FN, rhs_elem_type = f4E2M1FN, acc_elem_type = f32, intrinsics_m = 2, intrinsics_n = 4,
        subgroups_n = 2, intrinsics_k = 2, operands_interleaving_intrinsics_m = [2],
        operands_interleaving_intrinsics_n = [3], operands_interleaving_intrinsics_k = [2, 3]>,
      semantics = #iree_gpu.mma_semantics<distributed = false, opaque = false>> {
      lowering_config = #iree_gpu.lowering_config<{workgroup = [1, 1, 1, 0, 0]}>}
    : tensor<5x1x2x1x2x2x4x16x32xf4E2M1FN>, tensor<5x3x2x1x2x4x2x4x16x32xf4E2M1FN>,
      tensor<5x1x2x4x16x2x2xf8E8M0FNU>, tensor<5x3x2x2x4x16x4x2xf8E8M0FNU>
      into tensor<5x1x3x2x2x4x4x16x4xf32>
  return %r : tensor<5x1x3x2x2x4x4x16x4xf32>
}

// Where nothing reads the product of a block without an expert, nothing of its K is left.
// CHECK-LABEL: func.func @skipped(
// CHECK: %[[LHS:.+]] = tensor.extract_slice %{{.+}} [1, 1, 2, 1, 2, 2, 4, 16, 32]
// CHECK: %[[ID:.+]] = tensor.extract %{{.+}} : tensor<1xi32>
// CHECK: %[[NONE:.+]] = arith.constant 0 : i32
// CHECK: %[[HAS:.+]] = arith.cmpi sge, %[[ID]], %[[NONE]]
// CHECK: %[[SIZE:.+]] = arith.select %[[HAS]], %{{.+}}, %{{.+}} : index
// CHECK: %[[PART:.+]] = tensor.extract_slice %[[LHS]][0, 0, 0, 0, 0, 0, 0, 0, 0] [1, 1, %[[SIZE]], 1, 2, 2, 4, 16, 32]
// CHECK: iree_codegen.inner_tiled ins(%[[PART]],
// CHECK-NOT: skips_negative
func.func @skipped(%lhs: tensor<5x1x2x1x2x2x4x16x32xf4E2M1FN>, %w: tensor<7x3x2x1x2x4x2x4x16x32xf4E2M1FN>,
    %lhs_scale: tensor<5x1x2x4x16x2x2xf8E8M0FNU>, %w_scale: tensor<5x3x2x2x4x16x4x2xf8E8M0FNU>,
    %ids: tensor<5xi32>, %acc: tensor<5x1x3x2x2x4x4x16x4xf32>) -> tensor<5x1x3x2x2x4x4x16x4xf32> {
  %empty = tensor.empty() : tensor<5x3x2x1x2x4x2x4x16x32xf4E2M1FN>
  %g = iree_linalg_ext.gather dimension_map = [0]
    ins(%w, %ids : tensor<7x3x2x1x2x4x2x4x16x32xf4E2M1FN>, tensor<5xi32>)
    outs(%empty : tensor<5x3x2x1x2x4x2x4x16x32xf4E2M1FN>) -> tensor<5x3x2x1x2x4x2x4x16x32xf4E2M1FN>
  %r = iree_codegen.inner_tiled ins(%lhs, %g, %lhs_scale, %w_scale) outs(%acc) <
      indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
      iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>,
        #linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>, #linalg.iterator_type<reduction>],
      kind = #iree_gpu.data_tiled_scaled_mma_layout<intrinsic = MFMA_SCALE_F32_16x16x128_B32,
        lhs_elem_type = f4E2M1FN, rhs_elem_type = f4E2M1FN, acc_elem_type = f32, intrinsics_m = 2, intrinsics_n = 4,
        subgroups_n = 2, intrinsics_k = 2, operands_interleaving_intrinsics_m = [2],
        operands_interleaving_intrinsics_n = [3], operands_interleaving_intrinsics_k = [2, 3]>,
      semantics = #iree_gpu.mma_semantics<distributed = false, opaque = false>> {
      lowering_config = #iree_gpu.lowering_config<{workgroup = [1, 1, 1, 0, 0]}>, mxcomp.skips_negative}
    : tensor<5x1x2x1x2x2x4x16x32xf4E2M1FN>, tensor<5x3x2x1x2x4x2x4x16x32xf4E2M1FN>,
      tensor<5x1x2x4x16x2x2xf8E8M0FNU>, tensor<5x3x2x2x4x16x4x2xf8E8M0FNU>
      into tensor<5x1x3x2x2x4x4x16x4xf32>
  return %r : tensor<5x1x3x2x2x4x4x16x4xf32>
}

// A matmul of activations as they are is a generic, behind which IREE would move slices that it sees. It has nothing left
// of the weights' K where it skips.
// CHECK-LABEL: func.func @activations(
// CHECK: %[[X:.+]] = tensor.extract_slice %{{.+}} [1, 64, 16] [1, 1, 1]
// CHECK: %[[ID:.+]] = tensor.extract %{{.+}} : tensor<1xi32>
// CHECK: arith.maxsi %[[ID]]
// CHECK: arith.minsi
// CHECK: %[[W:.+]] = tensor.extract_slice %{{.+}} [1, 2, 4, 4, 1024] [1, 1, 1, 1, 1]
// CHECK: %[[S:.+]] = tensor.extract_slice %{{.+}} [1, 2, 4, 256] [1, 1, 1, 1]
// CHECK: arith.cmpi sge, %[[ID]], %{{.+}}
// CHECK: %[[SIZE:.+]] = arith.select
// CHECK: %[[PART:.+]] = tensor.extract_slice %[[W]][0, 0, 0, 0, 0] [1, 2, %[[SIZE]], 4, 1024]
// CHECK: %[[SCALES:.+]] = tensor.extract_slice %[[S]][0, 0, 0, 0] [1, 2, %[[SIZE]], 256]
// CHECK-DAG: %[[XD:.+]] = tensor.cast %[[X]] : tensor<1x64x16xi32> to tensor<?x?x?xi32>
// CHECK-DAG: %[[WD:.+]] = tensor.cast %[[PART]] :
// CHECK-DAG: %[[SD:.+]] = tensor.cast %[[SCALES]] :
// CHECK: linalg.generic {{.*}} ins(%[[XD]], %[[WD]], %[[SD]] :
// CHECK-NOT: skips_negative
func.func @activations(%x: tensor<5x64x16xi32>, %w: tensor<7x8x4x4x1024xi8>, %ws: tensor<7x8x4x256xi8>, %ids: tensor<5xi32>,
    %acc: tensor<5x8x4x16x4xf32>) -> tensor<5x8x4x16x4xf32> {
  %we = tensor.empty() : tensor<5x8x4x4x1024xi8>
  %wg = iree_linalg_ext.gather dimension_map = [0] ins(%w, %ids : tensor<7x8x4x4x1024xi8>, tensor<5xi32>)
    outs(%we : tensor<5x8x4x4x1024xi8>) -> tensor<5x8x4x4x1024xi8>
  %se = tensor.empty() : tensor<5x8x4x256xi8>
  %sg = iree_linalg_ext.gather dimension_map = [0] ins(%ws, %ids : tensor<7x8x4x256xi8>, tensor<5xi32>)
    outs(%se : tensor<5x8x4x256xi8>) -> tensor<5x8x4x256xi8>
  %r = linalg.generic {
      indexing_maps = [affine_map<(b, u, g, r, v, xb, xa, k, s, e, c) -> (b, xb, xa)>,
                       affine_map<(b, u, g, r, v, xb, xa, k, s, e, c) -> (b, u, k, s, e)>,
                       affine_map<(b, u, g, r, v, xb, xa, k, s, e, c) -> (b, u, k, c)>,
                       affine_map<(b, u, g, r, v, xb, xa, k, s, e, c) -> (b, u, g, r, v)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction",
                        "reduction", "reduction", "reduction"]}
      ins(%x, %wg, %sg : tensor<5x64x16xi32>, tensor<5x8x4x4x1024xi8>, tensor<5x8x4x256xi8>)
      outs(%acc : tensor<5x8x4x16x4xf32>)
      attrs = {lowering_config = #iree_gpu.lowering_config<{workgroup = [1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]}>,
               mxcomp.quantiser = "", mxcomp.skips_negative} {
  ^bb0(%a: i32, %e: i8, %s: i8, %o: f32):
    %p = arith.muli %e, %s : i8
    %q = arith.extui %p : i8 to i32
    %t = arith.muli %a, %q : i32
    %f = arith.sitofp %t : i32 to f32
    %n = arith.addf %o, %f : f32
    linalg.yield %n : f32
  } -> tensor<5x8x4x16x4xf32>
  return %r : tensor<5x8x4x16x4xf32>
}

// A gather without a matmul is somebody else's.
// CHECK-LABEL: func.func @alone(
// CHECK: iree_linalg_ext.gather
func.func @alone(%w: tensor<7x3xf32>, %ids: tensor<5xi32>) -> tensor<5x3xf32> {
  %empty = tensor.empty() : tensor<5x3xf32>
  %g = iree_linalg_ext.gather dimension_map = [0] ins(%w, %ids : tensor<7x3xf32>, tensor<5xi32>)
    outs(%empty : tensor<5x3xf32>) -> tensor<5x3xf32>
  return %g : tensor<5x3xf32>
}
