// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-keep-slices-behind)' | filecheck %s

// A slice of a result, or of what is computed from it, is taken behind it; slices of other values stay.

#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>
#out = affine_map<(m, n, k) -> (m, n)>

// CHECK-LABEL: util.func public @slices(
// CHECK: %[[R:.+]] = linalg.generic
// CHECK: %[[H:.+]] = util.optimization_barrier %[[R]]
// CHECK: tensor.extract_slice %[[H]][0, 5] [16, 9] [1, 1]
// CHECK: tensor.extract_slice %arg0
util.func @slices(%a: tensor<16x64xf32>, %b: tensor<32x64xf32>, %zero: tensor<16x32xf32>) -> (tensor<16x9xf32>, tensor<16x9xf32>) {
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<16x64xf32>, tensor<32x64xf32>) outs(%zero : tensor<16x32xf32>)
      attrs = {mxcomp.scaled_matmul = {index = 0 : i64, reason = "why"}} {
  ^bb0(%i: f32, %j: f32, %acc: f32):
    %0 = arith.mulf %i, %j : f32
    %1 = arith.addf %acc, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<16x32xf32>
  %s = tensor.extract_slice %r[0, 5] [16, 9] [1, 1] : tensor<16x32xf32> to tensor<16x9xf32>
  %t = tensor.extract_slice %a[0, 5] [16, 9] [1, 1] : tensor<16x64xf32> to tensor<16x9xf32>
  util.return %s, %t : tensor<16x9xf32>, tensor<16x9xf32>
}
