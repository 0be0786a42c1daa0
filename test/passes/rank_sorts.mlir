// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-rank-sorts)' | filecheck %s

// A top-k: elements count those before them, and only as many places are found as are taken.

// CHECK-LABEL: @largest
// CHECK-SAME: (%[[X:.+]]: tensor<8x64xf32>, %[[I:.+]]: tensor<8x64xi64>)
// CHECK: %[[XS:.+]] = util.optimization_barrier %[[X]]
// CHECK: %[[IS:.+]] = util.optimization_barrier %[[I]]
// CHECK: %[[N:.+]] = linalg.generic {{.+}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[XS]], %[[XS]] : tensor<8x64xf32>, tensor<8x64xf32>)
// CHECK: arith.cmpf uno
// CHECK: arith.cmpf ogt
// CHECK: %[[P:.+]] = linalg.generic {{.+}} ins(%[[N]] : tensor<8x64xi32>) outs(%{{.+}} : tensor<8x4xi32>) attrs = {mxcomp.places = true}
// CHECK: %[[V:.+]] = linalg.generic {{.+}} ins(%[[P]] : tensor<8x4xi32>) outs(%{{.+}} : tensor<8x4xf32>)
// CHECK: tensor.extract %[[XS]][
// CHECK: %[[E:.+]] = linalg.generic {{.+}} ins(%[[P]] : tensor<8x4xi32>) outs(%{{.+}} : tensor<8x4xi64>)
// CHECK: tensor.extract %[[IS]][
// CHECK: tensor.extract_slice %[[E]][0, 0] [8, 2] [1, 1]
// CHECK-NOT: iree_linalg_ext.sort
// CHECK: return
func.func @largest(%x: tensor<8x64xf32>, %i: tensor<8x64xi64>) -> (tensor<8x4xf32>, tensor<8x2xi64>) {
  %s:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : tensor<8x64xf32>, tensor<8x64xi64>) {
  ^bb0(%a: f32, %b: f32, %c: i64, %d: i64):
    %0 = arith.cmpf oge, %a, %b : f32
    iree_linalg_ext.yield %0 : i1
  } -> tensor<8x64xf32>, tensor<8x64xi64>
  %v = tensor.extract_slice %s#0[0, 0] [8, 4] [1, 1] : tensor<8x64xf32> to tensor<8x4xf32>
  %e = tensor.extract_slice %s#1[0, 0] [8, 2] [1, 1] : tensor<8x64xi64> to tensor<8x2xi64>
  return %v, %e : tensor<8x4xf32>, tensor<8x2xi64>
}

// Rows of a number that the program knows, all of whose elements are taken, the least first, of integers without a sign.

// CHECK-LABEL: @least
// CHECK: arith.cmpi ugt
// CHECK: arith.cmpi eq
// CHECK: linalg.generic {{.+}} outs(%{{.+}} : tensor<?x64xi32>)
// CHECK-NOT: mxcomp.places
// CHECK-NOT: iree_linalg_ext.sort
// CHECK: return
func.func @least(%x: tensor<?x64xi32>) -> tensor<?x64xi32> {
  %s = iree_linalg_ext.sort dimension(1) outs(%x : tensor<?x64xi32>) {
  ^bb0(%a: i32, %b: i32):
    %0 = arith.cmpi ult, %a, %b : i32
    iree_linalg_ext.yield %0 : i1
  } -> tensor<?x64xi32>
  return %s : tensor<?x64xi32>
}

// These stay: rows that are too long, or of unknown length, and orders that are more than one comparison.

// CHECK-LABEL: @others
// CHECK-COUNT-4: iree_linalg_ext.sort
func.func @others(%long: tensor<1025xf32>, %some: tensor<?xf32>, %x: tensor<64xf32>, %i: tensor<64xi32>)
    -> (tensor<1025xf32>, tensor<?xf32>, tensor<64xf32>, tensor<64xf32>) {
  %0 = iree_linalg_ext.sort dimension(0) outs(%long : tensor<1025xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.cmpf ogt, %a, %b : f32
    iree_linalg_ext.yield %c : i1
  } -> tensor<1025xf32>
  %1 = iree_linalg_ext.sort dimension(0) outs(%some : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.cmpf ogt, %a, %b : f32
    iree_linalg_ext.yield %c : i1
  } -> tensor<?xf32>
  %2:2 = iree_linalg_ext.sort dimension(0) outs(%x, %i : tensor<64xf32>, tensor<64xi32>) {
  ^bb0(%a: f32, %b: f32, %p: i32, %q: i32):
    %c = arith.cmpf ogt, %a, %b : f32
    %d = arith.cmpi slt, %p, %q : i32
    %e = arith.ori %c, %d : i1
    iree_linalg_ext.yield %e : i1
  } -> tensor<64xf32>, tensor<64xi32>
  %3 = iree_linalg_ext.sort dimension(0) outs(%x : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.cmpf one, %a, %b : f32
    iree_linalg_ext.yield %c : i1
  } -> tensor<64xf32>
  return %0, %1, %2#0, %3 : tensor<1025xf32>, tensor<?xf32>, tensor<64xf32>, tensor<64xf32>
}
