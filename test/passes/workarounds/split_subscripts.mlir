// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-split-subscripts)' | filecheck %s

// What many steps of loops reduce, or is computed element by element for that, is read by one loop for each dimension.

#flat = affine_map<(m, b, i) -> (m, b * 32 + i)>
#blocks = affine_map<(m, b, i) -> (m, b, i)>
#scales = affine_map<(m, b, i) -> (m, b)>
#row = affine_map<(m, b, i) -> (b, i)>
#sums = affine_map<(m, b, i) -> (m)>

// CHECK-DAG: #[[BLOCKS:.+]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-DAG: #[[FLAT:.+]] = affine_map<(d0, d1, d2) -> (d0, d1 * 32 + d2)>

// CHECK-LABEL: util.func public @producer(
// CHECK: %[[M:.+]] = tensor.dim %arg0, %
// CHECK: %[[E:.+]] = tensor.expand_shape %arg0 {{\[\[}}0], [1, 2]] output_shape [%[[M]], 4, 32] : tensor<?x128xbf16> into tensor<?x4x32xbf16>
// CHECK: %[[Q:.+]] = linalg.generic {indexing_maps = [#[[BLOCKS]], #{{.+}}, #[[BLOCKS]]], {{.*}} ins(%[[E]], %arg1 :
// CHECK: linalg.generic {indexing_maps = [#[[BLOCKS]], {{.*}} ins(%[[Q]], %arg2 :
util.func @producer(%x: tensor<?x128xbf16>, %s: tensor<?x4xbf16>, %w: tensor<4x32xbf16>, %e: tensor<?x4x32xf32>, %z: tensor<?xf32>) -> tensor<?xf32> {
  %q = linalg.generic {indexing_maps = [#flat, #scales, #blocks], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s : tensor<?x128xbf16>, tensor<?x4xbf16>) outs(%e : tensor<?x4x32xf32>) {
  ^bb0(%a: bf16, %b: bf16, %o: f32):
    %0 = arith.mulf %a, %b : bf16
    %1 = arith.extf %0 : bf16 to f32
    linalg.yield %1 : f32
  } -> tensor<?x4x32xf32>
  %r = linalg.generic {indexing_maps = [#blocks, #row, #sums], iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%q, %w : tensor<?x4x32xf32>, tensor<4x32xbf16>) outs(%z : tensor<?xf32>) {
  ^bb0(%a: f32, %b: bf16, %o: f32):
    %0 = arith.extf %b : bf16 to f32
    %1 = arith.mulf %a, %0 : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<?xf32>
  util.return %r : tensor<?xf32>
}

// Three loops for one dimension, and one for the other.
// CHECK-LABEL: util.func public @itself(
// CHECK: %[[E:.+]] = tensor.expand_shape %arg0 {{\[\[}}0, 1, 2], [3]] output_shape [3, 4, 32, 7] : tensor<384x7xf32> into tensor<3x4x32x7xf32>
// CHECK: linalg.generic {{.*}} ins(%[[E]], %arg1 :
util.func @itself(%x: tensor<384x7xf32>, %w: tensor<3x4x32xf32>, %z: tensor<7xf32>) -> tensor<7xf32> {
  %r = linalg.generic {indexing_maps = [affine_map<(n, g, b, i) -> (i + g * 128 + b * 32, n)>, affine_map<(n, g, b, i) -> (g, b, i)>,
                                        affine_map<(n, g, b, i) -> (n)>],
                       iterator_types = ["parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<384x7xf32>, tensor<3x4x32xf32>) outs(%z : tensor<7xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<7xf32>
  util.return %r : tensor<7xf32>
}

// Elements that overlap, are only part of what there is, or of which no number is known.
// CHECK-LABEL: util.func public @others(
// CHECK-NOT: tensor.expand_shape
// CHECK: util.return
util.func @others(%x: tensor<3x67xf32>, %y: tensor<3x130xf32>, %d: tensor<3x?xf32>, %w: tensor<4x32xf32>, %v: tensor<?x32xf32>, %z: tensor<3xf32>) -> tensor<3xf32> {
  %r = linalg.generic {indexing_maps = [affine_map<(m, b, i) -> (m, b * 8 + i)>, #flat, #row, #sums],
                       iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%x, %y, %w : tensor<3x67xf32>, tensor<3x130xf32>, tensor<4x32xf32>) outs(%z : tensor<3xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.mulf %0, %c : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<3xf32>
  %s = linalg.generic {indexing_maps = [#flat, #row, #sums], iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%d, %v : tensor<3x?xf32>, tensor<?x32xf32>) outs(%r : tensor<3xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3xf32>
  util.return %s : tensor<3xf32>
}

// A quantiser whose result is not reduced, and the scale of a block.
// CHECK-LABEL: util.func public @unshared(
// CHECK-NOT: tensor.expand_shape
// CHECK: linalg.generic {indexing_maps = [#[[FLAT]],
// CHECK: linalg.generic {indexing_maps = [#[[FLAT]],
// CHECK: util.return
util.func @unshared(%x: tensor<8x128xf32>, %s: tensor<8x4xf32>, %e: tensor<8x4x32xf32>) -> (tensor<8x4xf32>, tensor<8x4x32xf32>) {
  %m = linalg.generic {indexing_maps = [#flat, #blocks, #scales], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %e : tensor<8x128xf32>, tensor<8x4x32xf32>) outs(%s : tensor<8x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.maxnumf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x4xf32>
  %q = linalg.generic {indexing_maps = [#flat, #scales, #blocks], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %m : tensor<8x128xf32>, tensor<8x4xf32>) outs(%e : tensor<8x4x32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8x4x32xf32>
  util.return %m, %q : tensor<8x4xf32>, tensor<8x4x32xf32>
}
