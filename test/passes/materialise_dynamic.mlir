// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{ukernels=test_old_scales},mxcomp-materialise)' | filecheck %s

// A dynamic M is asserted to lie within what buffer offsets allow, and is assumed to from there on. N is a whole number
// of tiles, so only the rows of the result are cut.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK-DAG: #[[TILES:.+]] = affine_map<(d0) -> (d0 ceildiv 32)>
// CHECK-DAG: #[[CLAMP:.+]] = affine_map<(d0, d1) -> (d0, d1 - 1)>

// CHECK-LABEL: util.func public @dynamic(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<?x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<?x8xf8E8M0FNU>,
// CHECK: %[[LOW:.+]] = arith.cmpi sge, %[[DIM:.+]], %c1
// CHECK: %[[HIGH:.+]] = arith.cmpi sle, %[[DIM]], %c4194272
// CHECK: %[[OK:.+]] = arith.andi %[[LOW]], %[[HIGH]] : i1
// CHECK: cf.assert %[[OK]], "mxcomp: M must be between 1 and 4194272"
// CHECK: %[[M:.+]] = util.assume.int %[[DIM]]<umin = 1, umax = 4194272> : index
// CHECK: %[[T:.+]] = affine.apply #[[TILES]](%[[M]])
// CHECK: %[[AW:.+]] = iree_tensor_ext.bitcast %[[A]] : tensor<?x8x32xf4E2M1FN>{%[[M]]} -> tensor<?x8x4xi32>{%[[M]]}
// CHECK: flow.dispatch.region -> (tensor<?x1x2x2x4x16x4xi32>{%[[T]]}) {
// CHECK: %[[IN:.+]] = arith.cmpi slt, %[[ROW:.+]], %[[M]] : index
// CHECK-NEXT: %[[SAFE:.+]] = affine.min #[[CLAMP]](%[[ROW]], %[[M]])
// CHECK: %[[V:.+]] = tensor.extract %[[AW]][%[[SAFE]], %
// CHECK: arith.select %[[IN]], %[[V]], %
// The RHS is whole tiles.
// CHECK: iree_tensor_ext.bitcast %[[B]] :
// CHECK-NOT: arith.select
// CHECK: iree_tensor_ext.bitcast %[[AS]] : tensor<?x8xf8E8M0FNU>{%[[M]]} -> tensor<?x8xi8>{%[[M]]}
// CHECK: flow.dispatch.region -> (tensor<?x1x4x2x8xi32>{
// CHECK: %[[R:.+]] = flow.dispatch.region -> (tensor<?x128xf32>{%[[M]]}) {
// CHECK: iree_codegen.inner_tiled
// CHECK-SAME: mxcomp.workgroup_order = {band = 4 : i64, xcds = 8 : i64}
// CHECK: %[[C:.+]] = tensor.collapse_shape {{.*}} into tensor<?x128xf32>
// CHECK-NEXT: %[[SLICE:.+]] = tensor.extract_slice %[[C]][0, 0] [%[[M]], 128] [1, 1] : tensor<?x128xf32> to tensor<?x128xf32>
// CHECK-NEXT: flow.return %[[SLICE]]
// CHECK: util.return %[[R]]
util.func @dynamic(%a: tensor<?x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
    %as: tensor<?x8xf8E8M0FNU>, %bs: tensor<128x8xf8E8M0FNU>) -> tensor<?x128xf32> {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %a, %c0 : tensor<?x8x32xf4E2M1FN>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty(%m) : tensor<?x128xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x128xf32>) -> tensor<?x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<?x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<?x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<?x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?x128xf32>
  util.return %r : tensor<?x128xf32>
}
