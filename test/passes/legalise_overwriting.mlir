// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-overwriting)' | filecheck %s

// A part of a tensor in another place of it: a copy is written over.

// CHECK-LABEL: @shifted
// CHECK: %[[C:.+]] = flow.dispatch.region -> (tensor<?x4xf32>
// CHECK: linalg.generic
// CHECK: tensor.insert_slice %{{.+}} into %[[C]]
func.func @shifted(%x: tensor<?x4xf32>, %n: index) -> tensor<?x4xf32> {
  %0 = tensor.extract_slice %x[0, 0] [%n, 2] [1, 1] : tensor<?x4xf32> to tensor<?x2xf32>
  %1 = tensor.insert_slice %0 into %x[0, 1] [%n, 2] [1, 1] : tensor<?x2xf32> into tensor<?x4xf32>
  return %1 : tensor<?x4xf32>
}

// CHECK-LABEL: @another
// CHECK-NOT: flow.dispatch.region
func.func @another(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = tensor.extract_slice %y[0, 0] [8, 2] [1, 1] : tensor<8x4xf32> to tensor<8x2xf32>
  %1 = tensor.insert_slice %0 into %x[0, 1] [8, 2] [1, 1] : tensor<8x2xf32> into tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// CHECK-LABEL: @scattered
// CHECK: %[[C:.+]] = flow.dispatch.region -> (tensor<8x4xf32>)
// CHECK: iree_linalg_ext.scatter {{.*}} ins(%arg0, %arg1 : {{.*}}) outs(%[[C]] :
func.func @scattered(%x: tensor<8x4xf32>, %ids: tensor<8x1xi32>) -> tensor<8x4xf32> {
  %0 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true)
      ins(%x, %ids : tensor<8x4xf32>, tensor<8x1xi32>) outs(%x : tensor<8x4xf32>) {
  ^bb0(%a: f32, %b: f32):
    iree_linalg_ext.yield %a : f32
  } -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// A tensor is sorted once, whatever the order of what is sorted.

// CHECK-LABEL: @twice
// CHECK: %[[R:.+]]:2 = iree_linalg_ext.sort dimension(1) outs(%arg0, %arg1 : tensor<8x4xf32>, tensor<8x4xi32>) {
// CHECK-NEXT: ^bb0(%[[A:.+]]: f32, %[[B:.+]]: f32, %[[C:.+]]: i32, %[[D:.+]]: i32):
// CHECK-NEXT: arith.cmpf olt, %[[A]], %[[B]] : f32
// CHECK-NEXT: arith.cmpi slt, %[[C]], %[[D]] : i32
// CHECK: return %[[R]]#1, %[[R]]#1, %[[R]]#0
func.func @twice(%x: tensor<8x4xf32>, %i: tensor<8x4xi32>) -> (tensor<8x4xi32>, tensor<8x4xi32>, tensor<8x4xf32>) {
  %0:4 = iree_linalg_ext.sort dimension(1) outs(%x, %i, %i, %x : tensor<8x4xf32>, tensor<8x4xi32>, tensor<8x4xi32>, tensor<8x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: i32, %d: i32, %e: i32, %f: i32, %g: f32, %h: f32):
    %1 = arith.cmpf olt, %g, %h : f32
    %2 = arith.cmpi slt, %e, %f : i32
    %3 = arith.andi %1, %2 : i1
    iree_linalg_ext.yield %3 : i1
  } -> tensor<8x4xf32>, tensor<8x4xi32>, tensor<8x4xi32>, tensor<8x4xf32>
  return %0#1, %0#2, %0#3 : tensor<8x4xi32>, tensor<8x4xi32>, tensor<8x4xf32>
}

// Two tables that are computed alike are one, as CSE makes them later.

// CHECK-LABEL: @alike
// CHECK: %[[I:.+]] = linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: %[[R:.+]] = iree_linalg_ext.sort dimension(1) outs(%[[I]] : tensor<8x4xi32>)
// CHECK: return %[[R]], %[[R]]
func.func @alike() -> (tensor<8x4xi32>, tensor<8x4xi32>) {
  %none = tensor.empty() : tensor<8x4xi32>
  %i = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} outs(%none : tensor<8x4xi32>) {
  ^bb0(%a: i32):
    %1 = linalg.index 1 : index
    %2 = arith.index_cast %1 : index to i32
    linalg.yield %2 : i32
  } -> tensor<8x4xi32>
  %j = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} outs(%none : tensor<8x4xi32>) {
  ^bb0(%a: i32):
    %1 = linalg.index 1 : index
    %2 = arith.index_cast %1 : index to i32
    linalg.yield %2 : i32
  } -> tensor<8x4xi32>
  %0:2 = iree_linalg_ext.sort dimension(1) outs(%i, %j : tensor<8x4xi32>, tensor<8x4xi32>) {
  ^bb0(%a: i32, %b: i32, %c: i32, %d: i32):
    %1 = arith.cmpi sgt, %a, %b : i32
    iree_linalg_ext.yield %1 : i1
  } -> tensor<8x4xi32>, tensor<8x4xi32>
  return %0#0, %0#1 : tensor<8x4xi32>, tensor<8x4xi32>
}

// What is alike stays as it is where nothing writes over it.

// CHECK-LABEL: @alike_and_read
// CHECK: tensor.extract_slice
// CHECK: tensor.extract_slice
// CHECK: return
func.func @alike_and_read(%x: tensor<8x6xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %0 = tensor.extract_slice %x[0, 0] [8, 4] [1, 1] : tensor<8x6xf32> to tensor<8x4xf32>
  %1 = tensor.extract_slice %x[0, 0] [8, 4] [1, 1] : tensor<8x6xf32> to tensor<8x4xf32>
  return %0, %1 : tensor<8x4xf32>, tensor<8x4xf32>
}

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
