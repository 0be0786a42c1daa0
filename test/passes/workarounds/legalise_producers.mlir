// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-producers)' | filecheck %s

// What a map_store writes over is filled in a kernel of its own.

// CHECK-LABEL: @filled
// CHECK: %[[F:.+]] = linalg.fill
// CHECK: %[[B:.+]] = util.optimization_barrier %[[F]]
// CHECK: %[[T:.+]] = flow.tensor.tie_shape %[[B]]
// CHECK: iree_linalg_ext.map_store %arg0 into %[[T]]
func.func @filled(%x: tensor<?x4xf32>, %n: index) -> tensor<?x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  %r = iree_linalg_ext.map_store %x into %f {
  ^bb0(%i: index, %j: index):
    %true = arith.constant true
    iree_linalg_ext.yield %i, %j, %true : index, index, i1
  } : tensor<?x4xf32> into tensor<?x4xf32> -> tensor<?x4xf32>
  return %r : tensor<?x4xf32>
}

// So are constants, and through reshapes.

// CHECK-LABEL: @constant
// CHECK: %[[C:.+]] = tensor.expand_shape
// CHECK: %[[B:.+]] = util.optimization_barrier %[[C]]
// CHECK: iree_linalg_ext.map_store %arg0 into %[[B]]
func.func @constant(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %c = arith.constant dense<1.0> : tensor<32xf32>
  %f = tensor.expand_shape %c [[0, 1]] output_shape [8, 4] : tensor<32xf32> into tensor<8x4xf32>
  %r = iree_linalg_ext.map_store %x into %f {
  ^bb0(%i: index, %j: index):
    %true = arith.constant true
    iree_linalg_ext.yield %i, %j, %true : index, index, i1
  } : tensor<8x4xf32> into tensor<8x4xf32> -> tensor<8x4xf32>
  return %r : tensor<8x4xf32>
}

// Nothing is to be computed of empty tensors and arguments, nor of what a map_store stores.

// CHECK-LABEL: @given
// CHECK-NOT: util.optimization_barrier
// CHECK: return
func.func @given(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x4xf32>) -> tensor<8x4xf32>
  %r = iree_linalg_ext.map_store %x into %e {
  ^bb0(%i: index, %j: index):
    %true = arith.constant true
    iree_linalg_ext.yield %i, %j, %true : index, index, i1
  } : tensor<8x4xf32> into tensor<8x4xf32> -> tensor<8x4xf32>
  %s = iree_linalg_ext.map_store %f into %y {
  ^bb0(%i: index, %j: index):
    %true = arith.constant true
    iree_linalg_ext.yield %i, %j, %true : index, index, i1
  } : tensor<8x4xf32> into tensor<8x4xf32> -> tensor<8x4xf32>
  return %r, %s : tensor<8x4xf32>, tensor<8x4xf32>
}

// Nor is anything done inside of dispatches.

// CHECK-LABEL: @dispatched
// CHECK-NOT: util.optimization_barrier
// CHECK: return
func.func @dispatched(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %d = flow.dispatch.region -> (tensor<8x4xf32>) {
    %zero = arith.constant dense<0.0> : tensor<8x4xf32>
    %r = iree_linalg_ext.map_store %x into %zero {
    ^bb0(%i: index, %j: index):
      %true = arith.constant true
      iree_linalg_ext.yield %i, %j, %true : index, index, i1
    } : tensor<8x4xf32> into tensor<8x4xf32> -> tensor<8x4xf32>
    flow.return %r : tensor<8x4xf32>
  }
  return %d : tensor<8x4xf32>
}

// A map_load writes all of its result, over nothing that is there.

// CHECK-LABEL: @loaded
// CHECK: %[[F:.+]] = linalg.fill
// CHECK: %[[E:.+]] = tensor.empty() : tensor<8x4xf32>
// CHECK: iree_linalg_ext.map_load %arg0 into %[[E]]
// CHECK: %[[B:.+]] = util.optimization_barrier %[[F]]
// CHECK: iree_linalg_ext.map_load %[[B]] into %arg0
func.func @loaded(%x: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x4xf32>) -> tensor<8x4xf32>
  %r = iree_linalg_ext.map_load %x into %f {
  ^bb0(%i: index, %j: index):
    iree_linalg_ext.yield %i, %j, %zero : index, index, f32
  } : tensor<8x4xf32> into tensor<8x4xf32> -> tensor<8x4xf32>
  %s = iree_linalg_ext.map_load %f into %x {
  ^bb0(%i: index, %j: index):
    iree_linalg_ext.yield %i, %j, %zero : index, index, f32
  } : tensor<8x4xf32> into tensor<8x4xf32> -> tensor<8x4xf32>
  return %r, %s : tensor<8x4xf32>, tensor<8x4xf32>
}

// Rows that are gathered are so in a kernel of their own.

// CHECK-LABEL: @gathered
// CHECK: %[[G:.+]] = iree_linalg_ext.gather
// CHECK: %[[B:.+]] = util.optimization_barrier %[[G]]
// CHECK: iree_linalg_ext.scatter {{.*}} ins(%[[B]],
func.func @gathered(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>, %ids: tensor<8x1xi32>) -> tensor<8x4xf32> {
  %none = tensor.empty() : tensor<8x4xf32>
  %0 = iree_linalg_ext.gather dimension_map = [0] ins(%x, %ids : tensor<8x4xf32>, tensor<8x1xi32>) outs(%none : tensor<8x4xf32>) -> tensor<8x4xf32>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true)
      ins(%0, %ids : tensor<8x4xf32>, tensor<8x1xi32>) outs(%y : tensor<8x4xf32>) {
  ^bb0(%a: f32, %b: f32):
    iree_linalg_ext.yield %a : f32
  } -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// Rows are scattered into a part of a tensor that is there; fills IREE computes apart itself.

// CHECK-LABEL: @scattered_into_part
// CHECK: %[[S:.+]] = tensor.extract_slice
// CHECK: %[[B:.+]] = util.optimization_barrier %[[S]]
// CHECK: iree_linalg_ext.scatter {{.*}} outs(%[[B]] :
// CHECK: %[[F:.+]] = linalg.fill
// CHECK: iree_linalg_ext.scatter {{.*}} outs(%[[F]] :
func.func @scattered_into_part(%x: tensor<8x4xf32>, %y: tensor<8x6xf32>, %ids: tensor<8x1xi32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %part = tensor.extract_slice %y[0, 1] [8, 4] [1, 1] : tensor<8x6xf32> to tensor<8x4xf32>
  %0 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true)
      ins(%x, %ids : tensor<8x4xf32>, tensor<8x1xi32>) outs(%part : tensor<8x4xf32>) {
  ^bb0(%a: f32, %b: f32):
    iree_linalg_ext.yield %a : f32
  } -> tensor<8x4xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x4xf32>) -> tensor<8x4xf32>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true)
      ins(%x, %ids : tensor<8x4xf32>, tensor<8x1xi32>) outs(%f : tensor<8x4xf32>) {
  ^bb0(%a: f32, %b: f32):
    iree_linalg_ext.yield %a : f32
  } -> tensor<8x4xf32>
  return %0, %1 : tensor<8x4xf32>, tensor<8x4xf32>
}

// A part is sorted in a kernel of its own.

// CHECK-LABEL: @part
// CHECK: %[[S:.+]] = tensor.extract_slice
// CHECK: %[[B:.+]] = util.optimization_barrier %[[S]]
// CHECK: %[[T:.+]] = flow.tensor.tie_shape %[[B]]
// CHECK: iree_linalg_ext.sort dimension(1) outs(%[[T]] :
func.func @part(%x: tensor<?x6xi64>, %n: index) -> tensor<?x2xi64> {
  %0 = tensor.extract_slice %x[0, 0] [%n, 2] [1, 1] : tensor<?x6xi64> to tensor<?x2xi64>
  %1 = iree_linalg_ext.sort dimension(1) outs(%0 : tensor<?x2xi64>) {
  ^bb0(%a: i64, %b: i64):
    %2 = arith.cmpi sle, %a, %b : i64
    iree_linalg_ext.yield %2 : i1
  } -> tensor<?x2xi64>
  return %1 : tensor<?x2xi64>
}
