// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-truncations)' | filecheck %s

// Conversions to fp4 get a scale of 1, as IREE gets others wrong; they start from f32.

#id = affine_map<(m, k) -> (m, k)>

// CHECK-LABEL: util.func public @scalars(
// CHECK: ^bb0(%[[X:.+]]: bf16, %{{.+}}: f4E2M1FN):
// CHECK-NEXT: %[[WIDE:.+]] = arith.extf %[[X]] : bf16 to f32
// CHECK-NEXT: %[[ONE:.+]] = arith.constant 1.000000e+00 : f8E8M0FNU
// CHECK-NEXT: %[[Q:.+]] = arith.scaling_truncf %[[WIDE]], %[[ONE]] : f32, f8E8M0FNU to f4E2M1FN
// CHECK-NEXT: linalg.yield %[[Q]]
util.func @scalars(%x: tensor<64x32xbf16>) -> tensor<64x32xf4E2M1FN> {
  %e = tensor.empty() : tensor<64x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x32xbf16>) outs(%e : tensor<64x32xf4E2M1FN>) {
  ^bb0(%i: bf16, %o: f4E2M1FN):
    %t = arith.truncf %i : bf16 to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<64x32xf4E2M1FN>
  util.return %q : tensor<64x32xf4E2M1FN>
}

// CHECK-LABEL: util.func public @tensors(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<64x32xf32>
// CHECK: %[[ONES:.+]] = linalg.fill ins(%{{.+}} : f8E8M0FNU)
// CHECK: arith.scaling_truncf %[[X]], %[[ONES]] : tensor<64x32xf32>, tensor<64x32xf8E8M0FNU> to tensor<64x32xf4E2M1FN>
util.func @tensors(%x: tensor<64x32xf32>) -> tensor<64x32xf4E2M1FN> {
  %q = arith.truncf %x : tensor<64x32xf32> to tensor<64x32xf4E2M1FN>
  util.return %q : tensor<64x32xf4E2M1FN>
}

// CHECK-LABEL: util.func public @others(
// CHECK: arith.truncf %{{.+}} : tensor<64x32xf32> to tensor<64x32xf8E4M3FN>
util.func @others(%x: tensor<64x32xf32>) -> tensor<64x32xf8E4M3FN> {
  %q = arith.truncf %x : tensor<64x32xf32> to tensor<64x32xf8E4M3FN>
  util.return %q : tensor<64x32xf8E4M3FN>
}
