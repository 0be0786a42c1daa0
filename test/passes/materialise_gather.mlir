// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{ukernels=test_tile},mxcomp-materialise)' | filecheck %s

// An operand in another order is packed from its bytes, one or two elements to a byte; no gather remains.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// The RHS is K x N: a byte of two elements has a neighbour along N.
// CHECK-LABEL: util.func public @turned(
// CHECK-SAME: %[[B:[a-z0-9]+]]: tensor<8x32x128xf4E2M1FN>
// CHECK-NOT: mxcomp.gather
// CHECK: %[[BYTES:.+]] = iree_tensor_ext.bitcast %[[B]] : tensor<8x32x128xf4E2M1FN> -> tensor<16384xi8>
// CHECK: flow.dispatch.region -> (tensor<1x1x2x4x2x4x16x16xi8>) {
// CHECK: tensor.extract %[[BYTES]][
// CHECK: arith.shrui
// CHECK: tensor.extract %[[BYTES]][
// CHECK: arith.shrui
// CHECK: arith.trunci {{.*}} : i32 to i8
// CHECK: %[[SCALES:.+]] = iree_tensor_ext.bitcast %{{.+}} : tensor<8x128xf8E8M0FNU> -> tensor<8x128xi8>
// CHECK: flow.dispatch.region -> (tensor<1x1x2x4x16x2xi32>) {
// CHECK-COUNT-4: tensor.extract %[[SCALES]][
// CHECK: iree_codegen.inner_tiled
// CHECK-NOT: mxcomp.gather
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

// A constant RHS is packed where IREE evaluates it, outside of regions.
// CHECK-LABEL: util.func public @constant(
// CHECK: %[[W:.+]] = arith.constant dense<17>
// CHECK: flow.dispatch.region -> (tensor<1x1x2x2x4x16x4xi32>) {
// CHECK: %[[WB:.+]] = iree_tensor_ext.bitcast %[[W]] : tensor<8x32x64xi8> -> tensor<16384xi8>
// CHECK-NOT: flow.dispatch.region
// CHECK: tensor.extract %[[WB]][
// CHECK: flow.dispatch.region -> (tensor<1x1x4x16x1xi32>) {
// CHECK: flow.dispatch.region -> (tensor<32x128xf32>) {
// CHECK: iree_codegen.inner_tiled
util.func @constant(%a: tensor<32x8x32xf4E2M1FN>, %as: tensor<32x8xf8E8M0FNU>) -> tensor<32x128xf32> {
  %b_bytes = arith.constant dense<17> : tensor<8x32x64xi8>
  %bs_bytes = arith.constant dense<127> : tensor<8x128xi8>
  %b = iree_tensor_ext.bitcast %b_bytes : tensor<8x32x64xi8> -> tensor<8x32x128xf4E2M1FN>
  %bs = iree_tensor_ext.bitcast %bs_bytes : tensor<8x128xi8> -> tensor<8x128xf8E8M0FNU>
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
