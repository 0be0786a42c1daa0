// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-keep-splats)' | filecheck %s

#id = affine_map<(m, k) -> (m, k)>

// A factor whose elements are all the same; the other one and sums of one tensor stay.
// CHECK-LABEL: util.func public @same(
// CHECK: %[[X:.+]] = arith.constant dense<2.0{{.*}}> : tensor<128xf32>
// CHECK: %[[E:.+]] = tensor.expand_shape %[[X]]
// CHECK: %[[H:.+]] = util.optimization_barrier %[[E]] : tensor<4x32xf32>
// CHECK: linalg.matmul ins(%[[H]], %arg0 :
// CHECK: linalg.reduce {{.*}}ins(%[[E]] :
util.func @same(%w: tensor<32x16xf32>, %init: tensor<4x16xf32>, %sums: tensor<4xf32>) -> (tensor<4x16xf32>, tensor<4xf32>) {
  %x = arith.constant dense<2.0> : tensor<128xf32>
  %e = tensor.expand_shape %x [[0, 1]] output_shape [4, 32] : tensor<128xf32> into tensor<4x32xf32>
  %r = linalg.matmul ins(%e, %w : tensor<4x32xf32>, tensor<32x16xf32>) outs(%init : tensor<4x16xf32>) -> tensor<4x16xf32>
  %s = linalg.reduce { arith.addf } ins(%e : tensor<4x32xf32>) outs(%sums : tensor<4xf32>) dimensions = [1]
  util.return %r, %s : tensor<4x16xf32>, tensor<4xf32>
}

// What a reduction starts from is neither a factor nor a choice: a maximum, and where it is.
// CHECK-LABEL: util.func public @largest(
// CHECK-NOT: util.optimization_barrier
// CHECK: util.return
#row = affine_map<(m, k) -> (m)>
util.func @largest(%x: tensor<4x64xf32>) -> (tensor<4xf32>, tensor<4xi64>) {
  %least = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<4xf32>
  %values = linalg.fill ins(%least : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %places = arith.constant dense<0> : tensor<4xi64>
  %r:2 = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x64xf32>) outs(%values, %places : tensor<4xf32>, tensor<4xi64>) {
  ^bb0(%in: f32, %largest: f32, %place: i64):
    %i = linalg.index 1 : index
    %at = arith.index_cast %i : index to i64
    %above = arith.cmpf ogt, %in, %largest : f32
    %m = arith.select %above, %in, %largest : f32
    %p = arith.select %above, %at, %place : i64
    linalg.yield %m, %p : f32, i64
  } -> (tensor<4xf32>, tensor<4xi64>)
  util.return %r#0, %r#1 : tensor<4xf32>, tensor<4xi64>
}
