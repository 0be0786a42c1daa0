// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{ukernels=test_tile},mxcomp-materialise)' | filecheck %s

// A constant operand is packed outside of any region, where IREE evaluates it; what is loaded at run time or may change
// is packed in a dispatch, like an argument.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK-LABEL: util.func public @constant(
// CHECK: %[[B:.+]] = arith.constant dense<17> : tensor<128x128xi8>
// CHECK: flow.dispatch.region -> (tensor<2x1x2x2x4x16x4xi32>)
// CHECK: %[[W:.+]] = iree_tensor_ext.bitcast %[[B]] : tensor<128x128xi8> -> tensor<128x8x4xi32>
// CHECK-NOT: flow.dispatch.region
// CHECK: %[[P:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<1x1x2x4x2x4x16x4xi32>)
// CHECK: tensor.extract %[[W]]
// CHECK: iree_tensor_ext.bitcast %[[P]] : tensor<1x1x2x4x2x4x16x4xi32>
// CHECK: flow.dispatch.region -> (tensor<2x1x4x16x1xi32>)
// CHECK: flow.dispatch.region -> (tensor<1x1x2x4x16x2xi32>)
// CHECK: flow.dispatch.region -> (tensor<64x128xf32>)
util.func @constant(%a: tensor<64x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %b8 = arith.constant dense<17> : tensor<128x128xi8>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>
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

// CHECK-LABEL: util.func public @constant_global(
// CHECK: flow.dispatch.region -> (tensor<2x1x2x2x4x16x4xi32>)
// CHECK-NOT: flow.dispatch.region -> (tensor<1x1x2x4x2x4x16x4xi32>)
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<1x1x2x4x2x4x16x4xi32>)
// CHECK-NOT: flow.dispatch.region -> (tensor<1x1x2x4x2x4x16x4xi32>)
// CHECK: util.return
util.global private @immutable = dense<17> : tensor<128x128xi8>
util.func @constant_global(%a: tensor<64x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %b8 = util.global.load @immutable : tensor<128x128xi8>
  %b = flow.tensor.bitcast %b8 : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>
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

// CHECK-LABEL: util.func public @mutable_global(
// CHECK: flow.dispatch.region -> (tensor<1x1x2x4x2x4x16x4xi32>)
util.global private mutable @mutable = dense<17> : tensor<128x128xi8>
util.func @mutable_global(%a: tensor<64x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %b8 = util.global.load @mutable : tensor<128x128xi8>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>
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

// CHECK-LABEL: util.func public @parameter(
// CHECK: flow.dispatch.region -> (tensor<1x1x2x4x2x4x16x4xi32>)
util.global private @weight = #flow.parameter.named<"model"::"weight"> : tensor<128x128xi8>
util.func @parameter(%a: tensor<64x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %b8 = util.global.load @weight : tensor<128x128xi8>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>
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
