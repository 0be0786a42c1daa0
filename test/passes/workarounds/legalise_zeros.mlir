// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-zeros)' | filecheck %s

// Elementwise operations read operands by loops alone: IREE takes a subscript 0 for a loop.

#mn = affine_map<(m, n) -> (m, n)>

// CHECK: #[[COLUMN:.+]] = affine_map<(d0, d1) -> (d1)>
// CHECK: #[[NONE:.+]] = affine_map<(d0, d1) -> ()>
// CHECK: #[[ROW:.+]] = affine_map<(d0, d1) -> (d0)>

// CHECK-LABEL: util.func public @bias(
// CHECK: %[[B:.+]] = tensor.collapse_shape %arg1 {{\[\[}}0, 1]] : tensor<1x?xf32> into tensor<?xf32>
// CHECK: %[[S:.+]] = tensor.collapse_shape %arg2 [] : tensor<1x1xf32> into tensor<f32>
// CHECK: linalg.generic {indexing_maps = [#{{.+}}, #[[COLUMN]], #[[NONE]], #{{.+}}], {{.*}} ins(%arg0, %[[B]], %[[S]] :
util.func @bias(%x: tensor<64x?xf32>, %b: tensor<1x?xf32>, %s: tensor<1x1xf32>, %e: tensor<64x?xf32>) -> tensor<64x?xf32> {
  %r = linalg.generic {indexing_maps = [#mn, affine_map<(m, n) -> (0, n)>, affine_map<(m, n) -> (0, 0)>, #mn],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %b, %s : tensor<64x?xf32>, tensor<1x?xf32>, tensor<1x1xf32>) outs(%e : tensor<64x?xf32>) {
  ^bb0(%i: f32, %j: f32, %k: f32, %o: f32):
    %0 = arith.addf %i, %j : f32
    %1 = arith.mulf %0, %k : f32
    linalg.yield %1 : f32
  } -> tensor<64x?xf32>
  util.return %r : tensor<64x?xf32>
}

// The first column of many.
// CHECK-LABEL: util.func public @first(
// CHECK: %[[M:.+]] = tensor.dim %arg0, %
// CHECK: %[[F:.+]] = tensor.extract_slice %arg0[0, 0] [%[[M]], 1] [1, 1] : tensor<?x127xf32> to tensor<?xf32>
// CHECK: linalg.generic {indexing_maps = [#{{.+}}, #[[ROW]], #{{.+}}], {{.*}} ins(%arg0, %[[F]] :
util.func @first(%x: tensor<?x127xf32>, %e: tensor<?x127xf32>) -> tensor<?x127xf32> {
  %r = linalg.generic {indexing_maps = [#mn, affine_map<(m, n) -> (m, 0)>, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%x, %x : tensor<?x127xf32>, tensor<?x127xf32>) outs(%e : tensor<?x127xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %0 = arith.subf %i, %j : f32
    linalg.yield %0 : f32
  } -> tensor<?x127xf32>
  util.return %r : tensor<?x127xf32>
}

// A slice of elements below 8 bits is what IREE cannot do, and a reduction moves no transposition.
// CHECK-LABEL: util.func public @others(
// CHECK-NOT: tensor.extract_slice
// CHECK-NOT: tensor.collapse_shape
// CHECK: util.return
util.func @others(%x: tensor<8x32xf4E2M1FN>, %e: tensor<8x32xf32>, %y: tensor<1x32xf32>, %f: tensor<f32>) -> (tensor<8x32xf32>, tensor<f32>) {
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (0, n)>, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x32xf4E2M1FN>) outs(%e : tensor<8x32xf32>) {
  ^bb0(%i: f4E2M1FN, %o: f32):
    %0 = arith.extf %i : f4E2M1FN to f32
    linalg.yield %0 : f32
  } -> tensor<8x32xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(n) -> (0, n)>, affine_map<(n) -> ()>], iterator_types = ["reduction"]}
      ins(%y : tensor<1x32xf32>) outs(%f : tensor<f32>) {
  ^bb0(%i: f32, %o: f32):
    %0 = arith.addf %i, %o : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  util.return %r, %s : tensor<8x32xf32>, tensor<f32>
}
