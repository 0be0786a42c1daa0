// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-sorts,mxcomp-copy-constants)' | filecheck %s

// Constants are copied, but for those of one value.

// CHECK-LABEL: @constant
// CHECK: %[[K:.+]] = arith.constant dense<{{\[\[}}
// CHECK: %[[B:.+]] = util.optimization_barrier %[[K]]
// CHECK: %[[C:.+]] = flow.dispatch.region
// CHECK: linalg.generic {{.*}} ins(%[[B]]
// CHECK: tensor.insert_slice %{{.+}} into %[[C]]
func.func @constant(%x: tensor<1x1xf32>) -> tensor<1x2xf32> {
  %0 = arith.constant dense<[[1.0, 2.0]]> : tensor<1x2xf32>
  %1 = tensor.insert_slice %x into %0[0, 1] [1, 1] [1, 1] : tensor<1x1xf32> into tensor<1x2xf32>
  return %1 : tensor<1x2xf32>
}

// CHECK-LABEL: @splat
// CHECK-NOT: flow.dispatch.region
// CHECK: return
func.func @splat(%x: tensor<1x1xf32>) -> tensor<1x2xf32> {
  %0 = arith.constant dense<1.0> : tensor<1x2xf32>
  %1 = tensor.insert_slice %x into %0[0, 1] [1, 1] [1, 1] : tensor<1x1xf32> into tensor<1x2xf32>
  return %1 : tensor<1x2xf32>
}

// A constant that is sorted twice is copied once.

// CHECK-LABEL: @constant_twice
// CHECK: util.optimization_barrier
// CHECK-NOT: util.optimization_barrier
// CHECK: %[[C:.+]] = flow.dispatch.region
// CHECK: iree_linalg_ext.sort dimension(1) outs(%[[C]] :
func.func @constant_twice() -> (tensor<1x2xf32>, tensor<1x2xf32>) {
  %0 = arith.constant dense<[[1.0, 2.0]]> : tensor<1x2xf32>
  %1:2 = iree_linalg_ext.sort dimension(1) outs(%0, %0 : tensor<1x2xf32>, tensor<1x2xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %d: f32):
    %2 = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %2 : i1
  } -> tensor<1x2xf32>, tensor<1x2xf32>
  return %1#0, %1#1 : tensor<1x2xf32>, tensor<1x2xf32>
}
