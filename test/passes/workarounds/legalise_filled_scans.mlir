// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-filled-scans)' | filecheck %s

// CHECK-LABEL: @inclusive
// CHECK-NOT: util.optimization_barrier
func.func @inclusive(%x: tensor<8xf32>, %start: tensor<f32>, %out: tensor<8xf32>) -> tensor<8xf32> {
  %r:2 = iree_linalg_ext.scan dimension(0) inclusive(true) ins(%x : tensor<8xf32>) outs(%out, %start : tensor<8xf32>, tensor<f32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %a, %b : f32
    iree_linalg_ext.yield %0 : f32
  } -> tensor<8xf32>, tensor<f32>
  return %r#0 : tensor<8xf32>
}

// A scan of one value, or of a part of a tensor of one, has it from a kernel before.

// CHECK-LABEL: @of_one_value
// CHECK: %[[F:.+]] = linalg.fill
// CHECK: %[[P:.+]] = tensor.extract_slice %[[F]]
// CHECK: %[[X:.+]] = util.optimization_barrier %[[P]]
// CHECK: iree_linalg_ext.scan dimension(0) inclusive(true) ins(%[[X]] :
func.func @of_one_value(%one: f32, %start: tensor<f32>, %out: tensor<8xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<9xf32>
  %f = linalg.fill ins(%one : f32) outs(%e : tensor<9xf32>) -> tensor<9xf32>
  %x = tensor.extract_slice %f[1] [8] [1] : tensor<9xf32> to tensor<8xf32>
  %r:2 = iree_linalg_ext.scan dimension(0) inclusive(true) ins(%x : tensor<8xf32>) outs(%out, %start : tensor<8xf32>, tensor<f32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %a, %b : f32
    iree_linalg_ext.yield %0 : f32
  } -> tensor<8xf32>, tensor<f32>
  return %r#0 : tensor<8xf32>
}
