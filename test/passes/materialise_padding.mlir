// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{ukernels=test_old_scales},mxcomp-materialise)' | filecheck %s

// Rows and blocks beyond the operands are zero in the packed tensors and cut off the result. The order of scales in
// this ukernel is one that no attribute of IREE's expresses, so the layout is opaque to it.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK-DAG: #[[LHS_ROWS:.+]] = affine_map<(d0) -> (d0, 49)>
// CHECK-DAG: #[[RHS_ROWS:.+]] = affine_map<(d0) -> (d0, 119)>
// CHECK-DAG: #[[BLOCKS:.+]] = affine_map<(d0) -> (d0, 8)>
// CHECK-DAG: #iree_gpu.lowering_config<{workgroup = [1, 1, 0, 0]}>

// CHECK-LABEL: util.func public @padded(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<50x9x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<120x9x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<50x9xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<120x9xf8E8M0FNU>)
// CHECK: %[[AW:.+]] = iree_tensor_ext.bitcast %[[A]] : tensor<50x9x32xf4E2M1FN> -> tensor<50x9x4xi32>
// CHECK-NEXT: flow.dispatch.region -> (tensor<2x2x2x2x4x16x4xi32>) {
// CHECK: %[[ROW:.+]] = affine.apply
// CHECK: %[[IN_M:.+]] = arith.cmpi slt, %[[ROW]], %c50
// CHECK-NEXT: %[[SAFE_ROW:.+]] = affine.min #[[LHS_ROWS]](%[[ROW]])
// CHECK-NEXT: %[[BLOCK:.+]] = affine.apply
// CHECK: %[[IN_K:.+]] = arith.cmpi slt, %[[BLOCK]], %c9
// CHECK-NEXT: %[[SAFE_BLOCK:.+]] = affine.min #[[BLOCKS]](%[[BLOCK]])
// CHECK-NEXT: %[[V:.+]] = tensor.extract %[[AW]][%[[SAFE_ROW]], %[[SAFE_BLOCK]], %
// CHECK-NEXT: %[[IN:.+]] = arith.andi %[[IN_M]], %[[IN_K]] : i1
// CHECK-NEXT: %[[Z:.+]] = arith.constant 0 : i32
// CHECK-NEXT: %[[S:.+]] = arith.select %[[IN]], %[[V]], %[[Z]] : i32
// CHECK-NEXT: linalg.yield %[[S]] : i32

// CHECK: %[[BW:.+]] = iree_tensor_ext.bitcast %[[B]] : tensor<120x9x32xf4E2M1FN> -> tensor<120x9x4xi32>
// CHECK-NEXT: flow.dispatch.region -> (tensor<4x2x2x2x4x16x4xi32>) {
// CHECK: affine.min #[[RHS_ROWS]](
// CHECK: affine.min #[[BLOCKS]](
// CHECK-NEXT: tensor.extract %[[BW]]
// CHECK: arith.select

// CHECK: %[[ASB:.+]] = iree_tensor_ext.bitcast %[[AS]] : tensor<50x9xf8E8M0FNU> -> tensor<50x9xi8>
// CHECK-NEXT: flow.dispatch.region -> (tensor<2x2x4x2x8xi32>) {
// CHECK-COUNT-4: arith.select %{{.+}}, %{{.+}}, %{{.+}} : i8
// CHECK: iree_tensor_ext.bitcast %{{.+}} : tensor<2x2x4x2x8xi32> -> tensor<2x2x4x2x16x2xf8E8M0FNU>

// CHECK: iree_tensor_ext.bitcast %[[BS]] : tensor<120x9xf8E8M0FNU> -> tensor<120x9xi8>
// CHECK-NEXT: flow.dispatch.region -> (tensor<4x2x4x2x8xi32>) {
// CHECK-COUNT-4: arith.select %{{.+}}, %{{.+}}, %{{.+}} : i8

// CHECK: flow.dispatch.region -> (tensor<50x120xf32>) {
// CHECK: iree_codegen.inner_tiled
// CHECK-SAME: semantics = #iree_gpu.mma_semantics<distributed = false, opaque = true>
// CHECK-SAME: iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"test_old_scales", tensor>
// CHECK: %[[C:.+]] = tensor.collapse_shape {{.*}} into tensor<64x128xf32>
// CHECK-NEXT: %[[SLICE:.+]] = tensor.extract_slice %[[C]][0, 0] [50, 120] [1, 1] : tensor<64x128xf32> to tensor<50x120xf32>
// CHECK-NEXT: flow.return %[[SLICE]]
util.func @padded(%a: tensor<50x9x32xf4E2M1FN>, %b: tensor<120x9x32xf4E2M1FN>,
    %as: tensor<50x9xf8E8M0FNU>, %bs: tensor<120x9xf8E8M0FNU>) -> tensor<50x120xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<50x120xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<50x120xf32>) -> tensor<50x120xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<50x9x32xf4E2M1FN>, tensor<120x9x32xf4E2M1FN>,
                             tensor<50x9xf8E8M0FNU>, tensor<120x9xf8E8M0FNU>)
      outs(%init : tensor<50x120xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<50x120xf32>
  util.return %r : tensor<50x120xf32>
}
