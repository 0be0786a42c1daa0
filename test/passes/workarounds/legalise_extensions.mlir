// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-extensions)' | filecheck %s

// f8 elements are extended to f16 by way of f32, which represents them all; to f32 and bf16 they are as they were.

#id = affine_map<(i) -> (i)>

// CHECK-LABEL: util.func public @to_f16(
// CHECK: ^bb0(%[[X:.+]]: f8E4M3FN, %{{.+}}: f16):
// CHECK-NEXT: %[[WIDE:.+]] = arith.extf %[[X]] : f8E4M3FN to f32
// CHECK-NEXT: %[[Y:.+]] = arith.truncf %[[WIDE]] : f32 to f16
// CHECK-NEXT: linalg.yield %[[Y]]
util.func @to_f16(%x: tensor<64xf8E4M3FN>) -> tensor<64xf16> {
  %e = tensor.empty() : tensor<64xf16>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf8E4M3FN>) outs(%e : tensor<64xf16>) {
  ^bb0(%i: f8E4M3FN, %o: f16):
    %t = arith.extf %i : f8E4M3FN to f16
    linalg.yield %t : f16
  } -> tensor<64xf16>
  util.return %y : tensor<64xf16>
}

// CHECK-LABEL: util.func public @to_bf16(
// CHECK: arith.extf %{{.+}} : f8E5M2 to bf16
// CHECK-NOT: arith.truncf
// CHECK: util.return
util.func @to_bf16(%x: tensor<64xf8E5M2>) -> tensor<64xbf16> {
  %e = tensor.empty() : tensor<64xbf16>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf8E5M2>) outs(%e : tensor<64xbf16>) {
  ^bb0(%i: f8E5M2, %o: bf16):
    %t = arith.extf %i : f8E5M2 to bf16
    linalg.yield %t : bf16
  } -> tensor<64xbf16>
  util.return %y : tensor<64xbf16>
}
