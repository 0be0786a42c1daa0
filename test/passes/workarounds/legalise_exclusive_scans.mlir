// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-exclusive-scans)' | filecheck %s

// A scan without the element itself is one with it, of what is in front.

// CHECK-LABEL: @exclusive
// CHECK: tensor.insert_slice %arg1 into %{{.+}}[0, 0] [%{{.+}}, 1] [1, 1] : tensor<?xf32> into tensor<?x8xf32>
// CHECK: tensor.extract_slice %arg0[0, 0] [%{{.+}}, 7] [1, 1] : tensor<?x8xf32> to tensor<?x7xf32>
// CHECK: %[[X:.+]] = tensor.insert_slice %{{.+}} into %{{.+}}[0, 1] [%{{.+}}, 7] [1, 1] : tensor<?x7xf32> into tensor<?x8xf32>
// CHECK: iree_linalg_ext.scan dimension(1) inclusive(true) ins(%[[X]] :
func.func @exclusive(%x: tensor<?x8xf32>, %start: tensor<?xf32>, %out: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %r:2 = iree_linalg_ext.scan dimension(1) inclusive(false) ins(%x : tensor<?x8xf32>) outs(%out, %start : tensor<?x8xf32>, tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %a, %b : f32
    iree_linalg_ext.yield %0 : f32
  } -> tensor<?x8xf32>, tensor<?xf32>
  return %r#0 : tensor<?x8xf32>
}

// CHECK-LABEL: @of_any_length
// CHECK: arith.subi
// CHECK: iree_linalg_ext.scan dimension(0) inclusive(true)
func.func @of_any_length(%x: tensor<?xf32>, %start: tensor<f32>, %out: tensor<?xf32>) -> tensor<?xf32> {
  %r:2 = iree_linalg_ext.scan dimension(0) inclusive(false) ins(%x : tensor<?xf32>) outs(%out, %start : tensor<?xf32>, tensor<f32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %a, %b : f32
    iree_linalg_ext.yield %0 : f32
  } -> tensor<?xf32>, tensor<f32>
  return %r#0 : tensor<?xf32>
}

// CHECK-LABEL: @inclusive
// CHECK-NOT: tensor.insert_slice
func.func @inclusive(%x: tensor<8xf32>, %start: tensor<f32>, %out: tensor<8xf32>) -> tensor<8xf32> {
  %r:2 = iree_linalg_ext.scan dimension(0) inclusive(true) ins(%x : tensor<8xf32>) outs(%out, %start : tensor<8xf32>, tensor<f32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %a, %b : f32
    iree_linalg_ext.yield %0 : f32
  } -> tensor<8xf32>, tensor<f32>
  return %r#0 : tensor<8xf32>
}
