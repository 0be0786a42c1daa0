// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-keep-transposes-behind)' | filecheck %s

// A batch that is read in another order is kept; one that is read in its own is not.

#lhs = affine_map<(b, m, n, k) -> (b, m, k)>
#rhs = affine_map<(b, m, n, k) -> (b, n, k)>
#out = affine_map<(b, m, n, k) -> (b, m, n)>

// CHECK-LABEL: util.func public @turned(
// CHECK: %[[R:.+]] = linalg.generic
// CHECK: %[[H:.+]] = util.optimization_barrier %[[R]] : tensor<2x16x32xf32>
// CHECK: linalg.generic {{.*}} ins(%[[H]] : {{.*}} outs({{.*}} : tensor<16x2x32xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[R]] : {{.*}} outs({{.*}} : tensor<2x16x32xf32>)
util.func @turned(%a: tensor<2x16x64xf32>, %b: tensor<2x32x64xf32>, %zero: tensor<2x16x32xf32>) -> (tensor<16x2x32xf32>, tensor<2x16x32xf32>) {
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<2x16x64xf32>, tensor<2x32x64xf32>) outs(%zero : tensor<2x16x32xf32>)
      attrs = {mxcomp.scaled_matmul = {index = 0 : i64, reason = "why"}} {
  ^bb0(%i: f32, %j: f32, %acc: f32):
    %0 = arith.mulf %i, %j : f32
    %1 = arith.addf %acc, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x16x32xf32>
  %e = tensor.empty() : tensor<16x2x32xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(m, b, n) -> (b, m, n)>, affine_map<(m, b, n) -> (m, b, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<2x16x32xf32>) outs(%e : tensor<16x2x32xf32>) {
  ^bb0(%i: f32, %o: f32):
    %0 = arith.negf %i : f32
    linalg.yield %0 : f32
  } -> tensor<16x2x32xf32>
  %f = tensor.empty() : tensor<2x16x32xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<2x16x32xf32>) outs(%f : tensor<2x16x32xf32>) {
  ^bb0(%i: f32, %o: f32):
    %0 = arith.negf %i : f32
    linalg.yield %0 : f32
  } -> tensor<2x16x32xf32>
  util.return %t, %s : tensor<16x2x32xf32>, tensor<2x16x32xf32>
}
