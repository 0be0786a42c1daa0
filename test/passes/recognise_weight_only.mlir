// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise)' | filecheck %s
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise{reference=true})' | filecheck %s --check-prefix=REFERENCE

// Activations of bf16 as they are, times dequantised weights: an LHS with scales of 1, for few rows.

#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#out = affine_map<(m, n, k) -> (m, n)>
#element = affine_map<(n, ko, kb) -> (n, ko, kb)>
#block = affine_map<(n, ko, kb) -> (n, ko)>

// CHECK-LABEL: util.func public @few_rows(
// CHECK-SAME: %[[X:[^:]+]]: tensor<4x1024xbf16>, %[[W:[^:]+]]: tensor<64x32x32xf4E2M1FN>, %[[WS:[^:]+]]: tensor<64x32xf8E8M0FNU>
// CHECK-DAG: %[[ONE:.+]] = arith.constant 1.000000e+00 : f8E8M0FNU
// CHECK-DAG: %[[LHS:.+]] = iree_tensor_ext.bitcast %[[X]] : tensor<4x1024xbf16> -> tensor<4x32x32xbf16>
// CHECK: %[[ONES:.+]] = linalg.fill ins(%[[ONE]]
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[LHS]], %[[W]], %[[ONES]], %[[WS]] :
// CHECK-SAME: mxcomp.scaled_matmul = {}
// REFERENCE-LABEL: util.func public @few_rows(
// REFERENCE: mxcomp.scaled_matmul = {reason = "expected element {{.*}} got a plain bf16 operand"}
util.func @few_rows(%x: tensor<4x1024xbf16>, %w: tensor<64x32x32xf4E2M1FN>, %ws: tensor<64x32xf8E8M0FNU>) -> tensor<4x64xf32> {
  %e = tensor.empty() : tensor<64x32x32xbf16>
  %d = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %ws : tensor<64x32x32xf4E2M1FN>, tensor<64x32xf8E8M0FNU>) outs(%e : tensor<64x32x32xbf16>) {
  ^bb0(%i: f4E2M1FN, %s: f8E8M0FNU, %o: bf16):
    %v = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to bf16
    linalg.yield %v : bf16
  } -> tensor<64x32x32xbf16>
  %c = tensor.collapse_shape %d [[0], [1, 2]] : tensor<64x32x32xbf16> into tensor<64x1024xbf16>
  %init = arith.constant dense<0.0> : tensor<4x64xf32>
  %r = linalg.generic {indexing_maps = [#x, #w, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %c : tensor<4x1024xbf16>, tensor<64x1024xbf16>) outs(%init : tensor<4x64xf32>) {
  ^bb0(%a: bf16, %b: bf16, %acc: f32):
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %b : bf16 to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<4x64xf32>
  util.return %r : tensor<4x64xf32>
}

// The same of each matrix of a batch.
// CHECK-LABEL: util.func public @batch(
// CHECK-SAME: %[[X:[^:]+]]: tensor<2x4x1024xbf16>, %[[W:[^:]+]]: tensor<2x64x32x32xf4E2M1FN>, %[[WS:[^:]+]]: tensor<2x64x32xf8E8M0FNU>
// CHECK: %[[LHS:.+]] = iree_tensor_ext.bitcast %[[X]] : tensor<2x4x1024xbf16> -> tensor<2x4x32x32xbf16>
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[LHS]], %[[W]], %{{.+}}, %[[WS]] :
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @batch(%x: tensor<2x4x1024xbf16>, %w: tensor<2x64x32x32xf4E2M1FN>, %ws: tensor<2x64x32xf8E8M0FNU>) -> tensor<2x4x64xf32> {
  %e = tensor.empty() : tensor<2x64x32x32xbf16>
  %d = linalg.generic {indexing_maps = [affine_map<(b, n, ko, kb) -> (b, n, ko, kb)>, affine_map<(b, n, ko, kb) -> (b, n, ko)>,
                                        affine_map<(b, n, ko, kb) -> (b, n, ko, kb)>],
                       iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w, %ws : tensor<2x64x32x32xf4E2M1FN>, tensor<2x64x32xf8E8M0FNU>) outs(%e : tensor<2x64x32x32xbf16>) {
  ^bb0(%i: f4E2M1FN, %s: f8E8M0FNU, %o: bf16):
    %v = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to bf16
    linalg.yield %v : bf16
  } -> tensor<2x64x32x32xbf16>
  %c = tensor.collapse_shape %d [[0], [1], [2, 3]] : tensor<2x64x32x32xbf16> into tensor<2x64x1024xbf16>
  %init = arith.constant dense<0.0> : tensor<2x4x64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, n, k)>,
                                        affine_map<(b, m, n, k) -> (b, m, n)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %c : tensor<2x4x1024xbf16>, tensor<2x64x1024xbf16>) outs(%init : tensor<2x4x64xf32>) {
  ^bb0(%a: bf16, %b: bf16, %acc: f32):
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %b : bf16 to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<2x4x64xf32>
  util.return %r : tensor<2x4x64xf32>
}

// Any number of rows.
// CHECK-LABEL: util.func public @many_rows(
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @many_rows(%x: tensor<65x1024xbf16>, %w: tensor<64x32x32xf4E2M1FN>, %ws: tensor<64x32xf8E8M0FNU>) -> tensor<65x64xf32> {
  %e = tensor.empty() : tensor<64x32x32xbf16>
  %d = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %ws : tensor<64x32x32xf4E2M1FN>, tensor<64x32xf8E8M0FNU>) outs(%e : tensor<64x32x32xbf16>) {
  ^bb0(%i: f4E2M1FN, %s: f8E8M0FNU, %o: bf16):
    %v = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to bf16
    linalg.yield %v : bf16
  } -> tensor<64x32x32xbf16>
  %c = tensor.collapse_shape %d [[0], [1, 2]] : tensor<64x32x32xbf16> into tensor<64x1024xbf16>
  %init = arith.constant dense<0.0> : tensor<65x64xf32>
  %r = linalg.generic {indexing_maps = [#x, #w, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %c : tensor<65x1024xbf16>, tensor<64x1024xbf16>) outs(%init : tensor<65x64xf32>) {
  ^bb0(%a: bf16, %b: bf16, %acc: f32):
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %b : bf16 to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<65x64xf32>
  util.return %r : tensor<65x64xf32>
}

// CHECK-LABEL: util.func public @any_rows(
// CHECK: linalg.generic {{.+}}iterator_types = ["parallel", "parallel", "reduction", "reduction"]
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @any_rows(%x: tensor<?x1024xbf16>, %w: tensor<64x32x32xf4E2M1FN>, %ws: tensor<64x32xf8E8M0FNU>) -> tensor<?x64xf32> {
  %e = tensor.empty() : tensor<64x32x32xbf16>
  %d = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %ws : tensor<64x32x32xf4E2M1FN>, tensor<64x32xf8E8M0FNU>) outs(%e : tensor<64x32x32xbf16>) {
  ^bb0(%i: f4E2M1FN, %s: f8E8M0FNU, %o: bf16):
    %v = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to bf16
    linalg.yield %v : bf16
  } -> tensor<64x32x32xbf16>
  %c = tensor.collapse_shape %d [[0], [1, 2]] : tensor<64x32x32xbf16> into tensor<64x1024xbf16>
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x1024xbf16>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty(%m) : tensor<?x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x64xf32>) -> tensor<?x64xf32>
  %r = linalg.generic {indexing_maps = [#x, #w, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %c : tensor<?x1024xbf16>, tensor<64x1024xbf16>) outs(%init : tensor<?x64xf32>) {
  ^bb0(%a: bf16, %b: bf16, %acc: f32):
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %b : bf16 to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<?x64xf32>
  util.return %r : tensor<?x64xf32>
}

// Not of more rows than a workgroup takes, of each matrix of a batch.
// CHECK-LABEL: util.func public @many_rows_of_a_batch(
// CHECK: mxcomp.scaled_matmul = {reason = "bf16 activations are not quantised: expected 1 to 64 rows of each matrix, got 65"}
util.func @many_rows_of_a_batch(%x: tensor<2x65x1024xbf16>, %w: tensor<2x64x32x32xf4E2M1FN>, %ws: tensor<2x64x32xf8E8M0FNU>) -> tensor<2x65x64xf32> {
  %e = tensor.empty() : tensor<2x64x32x32xbf16>
  %d = linalg.generic {indexing_maps = [affine_map<(b, n, ko, kb) -> (b, n, ko, kb)>, affine_map<(b, n, ko, kb) -> (b, n, ko)>,
                                        affine_map<(b, n, ko, kb) -> (b, n, ko, kb)>],
                       iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w, %ws : tensor<2x64x32x32xf4E2M1FN>, tensor<2x64x32xf8E8M0FNU>) outs(%e : tensor<2x64x32x32xbf16>) {
  ^bb0(%i: f4E2M1FN, %s: f8E8M0FNU, %o: bf16):
    %v = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to bf16
    linalg.yield %v : bf16
  } -> tensor<2x64x32x32xbf16>
  %c = tensor.collapse_shape %d [[0], [1], [2, 3]] : tensor<2x64x32x32xbf16> into tensor<2x64x1024xbf16>
  %init = arith.constant dense<0.0> : tensor<2x65x64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, n, k)>,
                                        affine_map<(b, m, n, k) -> (b, m, n)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %c : tensor<2x65x1024xbf16>, tensor<2x64x1024xbf16>) outs(%init : tensor<2x65x64xf32>) {
  ^bb0(%a: bf16, %b: bf16, %acc: f32):
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %b : bf16 to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<2x65x64xf32>
  util.return %r : tensor<2x65x64xf32>
}
