// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-initializers)' | filecheck %s

// Scales and elements of constants are computed as bytes; what depends on arguments, and f32, stay as they are.

#id = affine_map<(i, j) -> (i, j)>

// CHECK-LABEL: util.func public @scales(
// CHECK: %[[BYTES:.+]] = linalg.generic {{.+}} ins(%{{.+}} : tensor<4x8xf32>) outs(%{{.+}} : tensor<4x8xi8>)
// CHECK: %[[SCALE:.+]] = arith.truncf %{{.+}} : f32 to f8E8M0FNU
// CHECK-NEXT: %[[BYTE:.+]] = arith.bitcast %[[SCALE]] : f8E8M0FNU to i8
// CHECK-NEXT: linalg.yield %[[BYTE]] : i8
// CHECK: %[[R:.+]] = iree_tensor_ext.bitcast %[[BYTES]] : tensor<4x8xi8> -> tensor<4x8xf8E8M0FNU>
// CHECK: util.return %[[R]]
util.func @scales() -> tensor<4x8xf8E8M0FNU> {
  %x = arith.constant dense<4.0> : tensor<4x8xf32>
  %e = tensor.empty() : tensor<4x8xf8E8M0FNU>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf8E8M0FNU>) {
  ^bb0(%i: f32, %o: f8E8M0FNU):
    %t = arith.truncf %i : f32 to f8E8M0FNU
    linalg.yield %t : f8E8M0FNU
  } -> tensor<4x8xf8E8M0FNU>
  util.return %y : tensor<4x8xf8E8M0FNU>
}

// CHECK-LABEL: util.func public @tensors(
// CHECK: linalg.generic {{.+}} outs(%{{.+}} : tensor<4x8xi8>)
// CHECK: iree_tensor_ext.bitcast %{{.+}} : tensor<4x8xi8> -> tensor<4x8xf8E4M3FN>
util.func @tensors() -> tensor<4x8xf8E4M3FN> {
  %x = arith.constant dense<4.0> : tensor<4x8xf32>
  %y = arith.truncf %x : tensor<4x8xf32> to tensor<4x8xf8E4M3FN>
  util.return %y : tensor<4x8xf8E4M3FN>
}

// CHECK-LABEL: util.func public @number(
// CHECK: iree_tensor_ext.bitcast %{{.+}} : tensor<i8> -> tensor<f8E8M0FNU>
util.func @number() -> tensor<f8E8M0FNU> {
  %x = arith.constant dense<4.0> : tensor<f32>
  %y = arith.truncf %x : tensor<f32> to tensor<f8E8M0FNU>
  util.return %y : tensor<f8E8M0FNU>
}

// CHECK-LABEL: util.func public @of_arguments(
// CHECK-NEXT: arith.truncf %{{.+}} : tensor<4x8xf32> to tensor<4x8xf8E4M3FN>
// CHECK-NEXT: util.return
util.func @of_arguments(%x: tensor<4x8xf32>) -> tensor<4x8xf8E4M3FN> {
  %y = arith.truncf %x : tensor<4x8xf32> to tensor<4x8xf8E4M3FN>
  util.return %y : tensor<4x8xf8E4M3FN>
}

// CHECK-LABEL: util.func public @wide(
// CHECK-NOT: iree_tensor_ext.bitcast
// CHECK: util.return
util.func @wide() -> tensor<4x8xf16> {
  %x = arith.constant dense<4.0> : tensor<4x8xf32>
  %y = arith.truncf %x : tensor<4x8xf32> to tensor<4x8xf16>
  util.return %y : tensor<4x8xf16>
}
