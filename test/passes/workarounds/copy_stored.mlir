// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-copy-stored)' | filecheck %s

util.global private mutable @a : tensor<4x2xf32>
util.global private mutable @b : tensor<4x2xf32>
util.global private mutable @c : tensor<8xf32>
util.global private mutable @count = 0 : index

// Exchanged, one in another shape.

// CHECK-LABEL: @exchange
// CHECK-DAG: %[[A:.+]] = util.global.load @a
// CHECK-DAG: %[[C:.+]] = util.global.load @c
// CHECK: %[[V:.+]] = tensor.expand_shape %[[C]]
// CHECK: %[[B:.+]] = util.optimization_barrier %[[V]]
// CHECK: %[[COPY:.+]] = flow.dispatch.region
// CHECK: linalg.generic {{.*}} ins(%[[B]]
// CHECK: util.global.store %[[COPY]], @a
// CHECK: flow.dispatch.region
// CHECK: util.global.store %{{.+}}, @c
func.func @exchange() {
  %a = util.global.load @a : tensor<4x2xf32>
  %c = util.global.load @c : tensor<8xf32>
  %0 = tensor.expand_shape %c [[0, 1]] output_shape [4, 2] : tensor<8xf32> into tensor<4x2xf32>
  %1 = tensor.collapse_shape %a [[0, 1]] : tensor<4x2xf32> into tensor<8xf32>
  util.global.store %0, @a : tensor<4x2xf32>
  util.global.store %1, @c : tensor<8xf32>
  return
}

// One value for two: the first has it, and the second a copy.

// CHECK-LABEL: @both
// CHECK-SAME: (%[[X:.+]]: tensor<4x2xf32>)
// CHECK-NEXT: util.global.store %[[X]], @a
// CHECK: %[[COPY:.+]] = flow.dispatch.region
// CHECK: util.global.store %[[COPY]], @b
func.func @both(%x: tensor<4x2xf32>) {
  util.global.store %x, @a : tensor<4x2xf32>
  util.global.store %x, @b : tensor<4x2xf32>
  return
}

// What is computed of another one, stored back, or no tensor.

// CHECK-LABEL: @others
// CHECK-NOT: flow.dispatch.region
// CHECK: return
func.func @others(%i: index) {
  %a = util.global.load @a : tensor<4x2xf32>
  util.global.store %a, @a : tensor<4x2xf32>
  %0 = arith.addf %a, %a : tensor<4x2xf32>
  util.global.store %0, @b : tensor<4x2xf32>
  %count = util.global.load @count : index
  util.global.store %count, @count : index
  return
}

// What is computed of constants, but for one that is the same everywhere, which IREE fills memory with.

// CHECK-LABEL: @constants
// CHECK: %[[TWICE:.+]] = arith.addf
// CHECK: %[[B:.+]] = util.optimization_barrier %[[TWICE]]
// CHECK: %[[COPY:.+]] = flow.dispatch.region
// CHECK: linalg.generic {{.*}} ins(%[[B]]
// CHECK: util.global.store %[[COPY]], @c
// CHECK-NOT: flow.dispatch.region
// CHECK: return
func.func @constants() {
  %k = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf32>
  %0 = arith.addf %k, %k : tensor<8xf32>
  util.global.store %0, @c : tensor<8xf32>
  %1 = arith.constant dense<0.0> : tensor<4x2xf32>
  util.global.store %1, @a : tensor<4x2xf32>
  return
}
