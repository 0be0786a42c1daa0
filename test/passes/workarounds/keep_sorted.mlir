// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-keep-sorted)' | filecheck %s

// The keys of an argsort are read, where nothing but their sizes is asked for.

// CHECK-LABEL: @keys
// CHECK: %[[R:.+]]:2 = iree_linalg_ext.sort
// CHECK: util.optimization_barrier %[[R]]#0 : tensor<?x32xf32>
// CHECK-NOT: util.optimization_barrier
// CHECK: return %[[R]]#1
func.func @keys(%x: tensor<?x32xf32>, %i: tensor<?x32xi32>) -> (tensor<?x32xi32>, index) {
  %0:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : tensor<?x32xf32>, tensor<?x32xi32>) {
  ^bb0(%a: f32, %b: f32, %c: i32, %d: i32):
    %1 = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %1 : i1
  } -> tensor<?x32xf32>, tensor<?x32xi32>
  %zero = arith.constant 0 : index
  %m = tensor.dim %x, %zero : tensor<?x32xf32>
  %first = tensor.extract_slice %0#0[0, 0] [%m, 4] [1, 1] : tensor<?x32xf32> to tensor<?x4xf32>
  %n = tensor.dim %0#0, %zero : tensor<?x32xf32>
  return %0#1, %n : tensor<?x32xi32>, index
}

// Nor are results kept that are read, or those of an operation that is not needed at all.

// CHECK-LABEL: @read
// CHECK-NOT: util.optimization_barrier
func.func @read(%x: tensor<8x32xf32>, %i: tensor<8x32xi32>) -> (tensor<8x32xf32>, tensor<8x32xi32>) {
  %0:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : tensor<8x32xf32>, tensor<8x32xi32>) {
  ^bb0(%a: f32, %b: f32, %c: i32, %d: i32):
    %1 = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %1 : i1
  } -> tensor<8x32xf32>, tensor<8x32xi32>
  %2:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : tensor<8x32xf32>, tensor<8x32xi32>) {
  ^bb0(%a: f32, %b: f32, %c: i32, %d: i32):
    %1 = arith.cmpf ogt, %a, %b : f32
    iree_linalg_ext.yield %1 : i1
  } -> tensor<8x32xf32>, tensor<8x32xi32>
  return %0#0, %0#1 : tensor<8x32xf32>, tensor<8x32xi32>
}

// What nothing comes of may be removed, also where other dead code takes it.

// CHECK-LABEL: @unused
// CHECK-NOT: util.optimization_barrier
// CHECK: return
func.func @unused(%x: tensor<4x4xf32>, %i: tensor<4x4xi32>) -> tensor<4x4xf32> {
  %0:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : tensor<4x4xf32>, tensor<4x4xi32>) {
  ^bb0(%a: f32, %b: f32, %c: i32, %d: i32):
    %1 = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %1 : i1
  } -> tensor<4x4xf32>, tensor<4x4xi32>
  %2 = tensor.extract_slice %0#1[0, 0] [2, 4] [1, 1] : tensor<4x4xi32> to tensor<2x4xi32>
  return %x : tensor<4x4xf32>
}
