// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-overwriting,mxcomp-legalise-sorts)' | filecheck %s

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
