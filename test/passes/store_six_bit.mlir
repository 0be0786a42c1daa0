// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-fall-back)' | filecheck %s

// 6-bit tensors that are computed and stored are computed as codes, and stored without gaps.

#element = affine_map<(m, ko, kb) -> (m, ko, kb)>
#block = affine_map<(m, ko, kb) -> (m, ko)>
#id = affine_map<(m, k) -> (m, k)>

// CHECK-DAG: #[[BIT:.+]] = affine_map<(d0, d1) -> (d0 * -64 + d1 * 6)>
// CHECK-LABEL: util.func public @scaled(
// CHECK: %[[CODES:.+]] = linalg.generic {{.*}} ins(%{{.+}}, %{{.+}} : tensor<64x8x32xf32>, tensor<64x8xf8E8M0FNU>) outs(%{{.+}} : tensor<64x8x32xi8>)
// CHECK-NOT: arith.scaling_truncf
// CHECK: math.roundeven
// CHECK: %[[WORDS:.+]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%[[CODES]] : tensor<64x8x32xi8>) outs(%{{.+}} : tensor<64x8x3xi64>)
// CHECK: affine.apply #[[BIT]]
// CHECK: arith.ori
// CHECK: iree_tensor_ext.bitcast %[[WORDS]] : tensor<64x8x3xi64> -> tensor<64x8x32xf6E2M3FN>
util.func @scaled(%x: tensor<64x8x32xf32>, %s: tensor<64x8xf8E8M0FNU>) -> tensor<64x8x24xi8> {
  %e = tensor.empty() : tensor<64x8x32xf6E2M3FN>
  %q = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s : tensor<64x8x32xf32>, tensor<64x8xf8E8M0FNU>) outs(%e : tensor<64x8x32xf6E2M3FN>) {
  ^bb0(%i: f32, %j: f8E8M0FNU, %o: f6E2M3FN):
    %t = arith.scaling_truncf %i, %j : f32, f8E8M0FNU to f6E2M3FN
    linalg.yield %t : f6E2M3FN
  } -> tensor<64x8x32xf6E2M3FN>
  %b = iree_tensor_ext.bitcast %q : tensor<64x8x32xf6E2M3FN> -> tensor<64x8x24xi8>
  util.return %b : tensor<64x8x24xi8>
}

// Blocks are found in rows; M may be dynamic.
// CHECK-LABEL: util.func public @rows(
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<?x64xi8>)
// CHECK: tensor.expand_shape {{.*}} : tensor<?x64xi8> into tensor<?x2x32xi8>
// CHECK: iree_tensor_ext.bitcast %{{.+}} : tensor<?x2x3xi64>{{.*}} -> tensor<?x64xf6E3M2FN>
util.func @rows(%x: tensor<?x64xbf16>, %m: index) -> tensor<?x48xi8> {
  %e = tensor.empty(%m) : tensor<?x64xf6E3M2FN>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x64xbf16>) outs(%e : tensor<?x64xf6E3M2FN>) {
  ^bb0(%i: bf16, %o: f6E3M2FN):
    %t = arith.truncf %i : bf16 to f6E3M2FN
    linalg.yield %t : f6E3M2FN
  } -> tensor<?x64xf6E3M2FN>
  %b = iree_tensor_ext.bitcast %q : tensor<?x64xf6E3M2FN>{%m} -> tensor<?x48xi8>{%m}
  util.return %b : tensor<?x48xi8>
}

// Other widths stay as they are, and so does what only moves 6-bit elements.
// CHECK-LABEL: util.func public @others(
// CHECK: arith.truncf %{{.+}} : f32 to f4E2M1FN
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<64x8xf6E2M3FN>)
util.func @others(%x: tensor<64x32xf32>, %y: tensor<8x64xf6E2M3FN>) -> (tensor<64x32xf4E2M1FN>, tensor<64x8xf6E2M3FN>) {
  %e = tensor.empty() : tensor<64x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x32xf32>) outs(%e : tensor<64x32xf4E2M1FN>) {
  ^bb0(%i: f32, %o: f4E2M1FN):
    %t = arith.truncf %i : f32 to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<64x32xf4E2M1FN>
  %f = tensor.empty() : tensor<64x8xf6E2M3FN>
  %z = linalg.generic {indexing_maps = [affine_map<(m, k) -> (k, m)>, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<8x64xf6E2M3FN>) outs(%f : tensor<64x8xf6E2M3FN>) {
  ^bb0(%i: f6E2M3FN, %o: f6E2M3FN):
    linalg.yield %i : f6E2M3FN
  } -> tensor<64x8xf6E2M3FN>
  util.return %q, %z : tensor<64x32xf4E2M1FN>, tensor<64x8xf6E2M3FN>
}
