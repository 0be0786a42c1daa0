// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-keep-from-one-scale)' | filecheck %s

#mn = affine_map<(m, n) -> (m, n)>

// One scale for all: what is converted was computed before. A stored operand, and rows with scales of their own, stay.
// CHECK-LABEL: util.func public @one_scale(
// CHECK: %[[T:.+]] = linalg.generic
// CHECK: %[[H:.+]] = util.optimization_barrier %[[T]] : tensor<2x32xf32>
// CHECK: linalg.generic {{.*}} ins(%[[H]], %{{.+}} :
// CHECK: linalg.generic {{.*}} ins(%arg0, %{{.+}} :
// CHECK: linalg.generic {{.*}} ins(%[[T]], %arg2 :
util.func @one_scale(%x: tensor<2x32xf32>, %s: tensor<1x1xf8E8M0FNU>, %t: tensor<2xf8E8M0FNU>, %e: tensor<2x32xi8>, %f: tensor<2x32xf32>)
    -> (tensor<2x32xi8>, tensor<2x32xi8>, tensor<2x32xi8>) {
  %twice = linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<2x32xf32>) outs(%f : tensor<2x32xf32>) {
  ^bb0(%i: f32, %o: f32):
    %0 = arith.addf %i, %i : f32
    linalg.yield %0 : f32
  } -> tensor<2x32xf32>
  %a = linalg.generic {indexing_maps = [#mn, affine_map<(m, n) -> (0, 0)>, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%twice, %s : tensor<2x32xf32>, tensor<1x1xf8E8M0FNU>) outs(%e : tensor<2x32xi8>) {
  ^bb0(%i: f32, %j: f8E8M0FNU, %o: i8):
    %0 = arith.scaling_truncf %i, %j : f32, f8E8M0FNU to f4E2M1FN
    %1 = arith.bitcast %0 : f4E2M1FN to i4
    %2 = arith.extui %1 : i4 to i8
    linalg.yield %2 : i8
  } -> tensor<2x32xi8>
  %b = linalg.generic {indexing_maps = [#mn, affine_map<(m, n) -> (0, 0)>, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<2x32xf32>, tensor<1x1xf8E8M0FNU>) outs(%e : tensor<2x32xi8>) {
  ^bb0(%i: f32, %j: f8E8M0FNU, %o: i8):
    %0 = arith.scaling_truncf %i, %j : f32, f8E8M0FNU to f4E2M1FN
    %1 = arith.bitcast %0 : f4E2M1FN to i4
    %2 = arith.extui %1 : i4 to i8
    linalg.yield %2 : i8
  } -> tensor<2x32xi8>
  %c = linalg.generic {indexing_maps = [#mn, affine_map<(m, n) -> (m)>, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%twice, %t : tensor<2x32xf32>, tensor<2xf8E8M0FNU>) outs(%e : tensor<2x32xi8>) {
  ^bb0(%i: f32, %j: f8E8M0FNU, %o: i8):
    %0 = arith.scaling_truncf %i, %j : f32, f8E8M0FNU to f4E2M1FN
    %1 = arith.bitcast %0 : f4E2M1FN to i4
    %2 = arith.extui %1 : i4 to i8
    linalg.yield %2 : i8
  } -> tensor<2x32xi8>
  util.return %a, %b, %c : tensor<2x32xi8>, tensor<2x32xi8>, tensor<2x32xi8>
}
