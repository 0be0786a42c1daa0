// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-lookups)' | filecheck %s

#id = affine_map<(d0) -> (d0)>

// The first columns, as of a top-k.

// CHECK-LABEL: @columns
// CHECK: linalg.generic
// CHECK: tensor.extract %arg0[%{{.+}}, %arg2] : tensor<?x6xi64>
func.func @columns(%x: tensor<?x6xi64>, %n: index, %j: index, %out: tensor<?xi64>) -> tensor<?xi64> {
  %0 = tensor.extract_slice %x[0, 0] [%n, 2] [1, 1] : tensor<?x6xi64> to tensor<?x2xi64>
  %1 = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%out : tensor<?xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 0 : index
    %2 = tensor.extract %0[%i, %j] : tensor<?x2xi64>
    linalg.yield %2 : i64
  } -> tensor<?xi64>
  return %1 : tensor<?xi64>
}

// Offsets and steps, known or not; a dimension of which there is one element; a part of a part, and a cast.

// CHECK-LABEL: @parts
// CHECK-SAME: (%[[X:.+]]: tensor<3x8x12xf32>, %[[O:.+]]: index, %[[I:.+]]: index, %[[J:.+]]: index)
// CHECK: %[[I1:.+]] = arith.muli %[[I]], %{{.+}}
// CHECK: %[[I2:.+]] = arith.addi %[[I1]], %[[O]]
// CHECK: %[[J1:.+]] = arith.addi %[[J]], %{{.+}}
// CHECK: tensor.extract %[[X]][%{{.+}}, %[[I2]], %[[J1]]] : tensor<3x8x12xf32>
func.func @parts(%x: tensor<3x8x12xf32>, %o: index, %i: index, %j: index) -> f32 {
  %0 = tensor.extract_slice %x[2, 0, 5] [1, 8, 4] [1, 1, 1] : tensor<3x8x12xf32> to tensor<8x4xf32>
  %1 = tensor.cast %0 : tensor<8x4xf32> to tensor<?x4xf32>
  %2 = tensor.extract_slice %1[%o, 0] [3, 4] [2, 1] : tensor<?x4xf32> to tensor<3x4xf32>
  %3 = tensor.extract %2[%i, %j] : tensor<3x4xf32>
  return %3 : f32
}

// What is reshaped in between is kept, unless it is one piece.

// CHECK-LABEL: @reshaped
// CHECK: %[[C:.+]] = tensor.collapse_shape
// CHECK: %[[B:.+]] = util.optimization_barrier %[[C]]
// CHECK: tensor.extract %[[B]]
func.func @reshaped(%x: tensor<5x6xi64>, %i: index) -> i64 {
  %0 = tensor.extract_slice %x[0, 0] [5, 2] [1, 1] : tensor<5x6xi64> to tensor<5x2xi64>
  %1 = tensor.collapse_shape %0 [[0, 1]] : tensor<5x2xi64> into tensor<10xi64>
  %2 = tensor.extract %1[%i] : tensor<10xi64>
  return %2 : i64
}

// A transposition of dimensions of size 1 is a reshape to IREE; others are kernels of their own.

// CHECK-LABEL: @transposed
// CHECK: linalg.transpose
// CHECK-NEXT: %[[B:.+]] = util.optimization_barrier %{{.+}} : tensor<1x5x2xi64>
// CHECK: %[[T:.+]] = linalg.transpose
// CHECK-NEXT: tensor.extract %[[B]]
// CHECK: tensor.extract %[[T]]
func.func @transposed(%x: tensor<5x1x6xi64>, %i: index, %e: tensor<1x5x2xi64>, %f: tensor<1x2x5xi64>) -> (i64, i64) {
  %c0 = arith.constant 0 : index
  %0 = tensor.extract_slice %x[0, 0, 0] [5, 1, 2] [1, 1, 1] : tensor<5x1x6xi64> to tensor<5x1x2xi64>
  %1 = linalg.transpose ins(%0 : tensor<5x1x2xi64>) outs(%e : tensor<1x5x2xi64>) permutation = [1, 0, 2]
  %2 = linalg.transpose ins(%0 : tensor<5x1x2xi64>) outs(%f : tensor<1x2x5xi64>) permutation = [1, 2, 0]
  %3 = tensor.extract %1[%c0, %i, %c0] : tensor<1x5x2xi64>
  %4 = tensor.extract %2[%c0, %c0, %i] : tensor<1x2x5xi64>
  return %3, %4 : i64, i64
}

// CHECK-LABEL: @one_piece
// CHECK-NOT: util.optimization_barrier
func.func @one_piece(%x: tensor<3x5x6xi64>, %i: index) -> i64 {
  %0 = tensor.extract_slice %x[1, 2, 0] [1, 2, 6] [1, 1, 1] : tensor<3x5x6xi64> to tensor<2x6xi64>
  %1 = tensor.collapse_shape %0 [[0, 1]] : tensor<2x6xi64> into tensor<12xi64>
  %2 = tensor.extract %1[%i] : tensor<12xi64>
  return %2 : i64
}

// A layer of a stack is a tensor of its own.

// CHECK-LABEL: @layer
// CHECK: %[[S:.+]] = tensor.extract_slice
// CHECK: tensor.extract %[[S]]
func.func @layer(%x: tensor<3x5x6xi64>, %i: index) -> i64 {
  %0 = tensor.extract_slice %x[1, 0, 0] [1, 5, 6] [1, 1, 1] : tensor<3x5x6xi64> to tensor<5x6xi64>
  %1 = tensor.extract %0[%i, %i] : tensor<5x6xi64>
  return %1 : i64
}

// But not of columns.

// CHECK-LABEL: @rows_of_columns
// CHECK: tensor.extract %arg0[%{{.+}}, %arg1]
func.func @rows_of_columns(%x: tensor<5x6xi64>, %i: index) -> i64 {
  %0 = tensor.extract_slice %x[0, 0] [5, 2] [1, 1] : tensor<5x6xi64> to tensor<5x2xi64>
  %1 = tensor.extract_slice %0[2, 0] [3, 2] [1, 1] : tensor<5x2xi64> to tensor<3x2xi64>
  %2 = tensor.extract %1[%i, %i] : tensor<3x2xi64>
  return %2 : i64
}
