// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-topk)' | filecheck %s

// Places are made, rows sorted by value, then place, and the first taken.

// CHECK-LABEL: @places
// CHECK: linalg.index 1
// CHECK: %[[S:.+]]:2 = iree_linalg_ext.sort dimension(1) outs(%arg0, %{{.+}} : tensor<?x64xf32>, tensor<?x64xi32>) {
// CHECK-NEXT: ^bb0(%[[A:.+]]: f32, %[[B:.+]]: f32, %[[C:.+]]: i32, %[[D:.+]]: i32):
// CHECK-NEXT: %[[F:.+]] = arith.cmpf ogt, %[[A]], %[[B]] : f32
// CHECK-NEXT: arith.cmpf ogt, %[[B]], %[[A]] : f32
// CHECK-NEXT: arith.cmpi slt, %[[C]], %[[D]] : i32
// CHECK: arith.ori %[[F]],
// CHECK: tensor.extract_slice %[[S]]#0[0, 0] [%{{.+}}, 4] [1, 1] : tensor<?x64xf32> to tensor<?x4xf32>
// CHECK: tensor.extract_slice %[[S]]#1[0, 0] [%{{.+}}, 4] [1, 1] : tensor<?x64xi32> to tensor<?x4xi32>
// CHECK-NOT: iree_linalg_ext.topk
func.func @places(%x: tensor<?x64xf32>, %n: index) -> (tensor<?x4xf32>, tensor<?x4xi32>) {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0 : i32
  %0 = tensor.empty(%n) : tensor<?x4xf32>
  %1 = tensor.empty(%n) : tensor<?x4xi32>
  %v = linalg.fill ins(%least : f32) outs(%0 : tensor<?x4xf32>) -> tensor<?x4xf32>
  %i = linalg.fill ins(%zero : i32) outs(%1 : tensor<?x4xi32>) -> tensor<?x4xi32>
  %r:2 = iree_linalg_ext.topk dimension(1) ins(%x : tensor<?x64xf32>) outs(%v, %i : tensor<?x4xf32>, tensor<?x4xi32>) {
  ^bb0(%a: f32, %b: f32):
    %2 = arith.cmpf ogt, %a, %b : f32
    iree_linalg_ext.yield %2 : i1
  } -> tensor<?x4xf32>, tensor<?x4xi32>
  return %r#0, %r#1 : tensor<?x4xf32>, tensor<?x4xi32>
}

// What is given with the elements is what comes out.

// CHECK-LABEL: @given
// CHECK-NOT: linalg.index
// CHECK: iree_linalg_ext.sort dimension(0) outs(%arg0, %arg1 : tensor<64xf32>, tensor<64xi32>)
func.func @given(%x: tensor<64xf32>, %given: tensor<64xi32>) -> tensor<4xi32> {
  %v = arith.constant dense<0xFF800000> : tensor<4xf32>
  %i = arith.constant dense<0> : tensor<4xi32>
  %r:2 = iree_linalg_ext.topk_v2 dimension(0) is_sorted ins(%x, %given : tensor<64xf32>, tensor<64xi32>) outs(%v, %i : tensor<4xf32>, tensor<4xi32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.cmpf ogt, %a, %b : f32
    iree_linalg_ext.yield %0 : i1
  } -> tensor<4xf32>, tensor<4xi32>
  return %r#1 : tensor<4xi32>
}
