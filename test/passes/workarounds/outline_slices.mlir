// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-outline-slices)' | filecheck %s

// A slice that a contraction reads that is none of ours is taken in front of its dispatch; other operands stay.

#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>
#out = affine_map<(m, n, k) -> (m, n)>

// CHECK-LABEL: util.func public @slice(
// CHECK: %[[S:.+]] = tensor.extract_slice %arg0
// CHECK: %[[H:.+]] = util.optimization_barrier %[[S]] : tensor<16x64xf32>
// CHECK-NOT: util.optimization_barrier
// CHECK: linalg.generic {{.*}} ins(%[[H]], %arg1 :
util.func @slice(%x: tensor<16x80xf32>, %b: tensor<32x64xf32>, %zero: tensor<16x32xf32>) -> tensor<16x32xf32> {
  %a = tensor.extract_slice %x[0, 3] [16, 64] [1, 1] : tensor<16x80xf32> to tensor<16x64xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<16x64xf32>, tensor<32x64xf32>) outs(%zero : tensor<16x32xf32>)
      attrs = {mxcomp.scaled_matmul = {reason = "why"}} {
  ^bb0(%i: f32, %j: f32, %acc: f32):
    %0 = arith.mulf %i, %j : f32
    %1 = arith.addf %acc, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<16x32xf32>
  util.return %r : tensor<16x32xf32>
}

// What is recognised and has become a product of values reads what was computed for it; other sums are none of ours.
// CHECK-LABEL: util.func public @others(
// CHECK-NOT: util.optimization_barrier
// CHECK: util.return
util.func @others(%x: tensor<16x80xf32>, %b: tensor<32x64xf32>, %zero: tensor<16x32xf32>) -> (tensor<16x32xf32>, tensor<16x32xf32>) {
  %a = tensor.extract_slice %x[0, 3] [16, 64] [1, 1] : tensor<16x80xf32> to tensor<16x64xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<16x64xf32>, tensor<32x64xf32>) outs(%zero : tensor<16x32xf32>)
      attrs = {mxcomp.scaled_matmul = {index = 0 : i64, reason = "why"}} {
  ^bb0(%i: f32, %j: f32, %acc: f32):
    %0 = arith.mulf %i, %j : f32
    %1 = arith.addf %acc, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<16x32xf32>
  %s = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<16x64xf32>, tensor<32x64xf32>) outs(%zero : tensor<16x32xf32>) {
  ^bb0(%i: f32, %j: f32, %acc: f32):
    %0 = arith.mulf %i, %j : f32
    %1 = arith.addf %acc, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<16x32xf32>
  util.return %r, %s : tensor<16x32xf32>, tensor<16x32xf32>
}
