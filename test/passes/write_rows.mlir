// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-write-rows)' | filecheck %s
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-write-rows{ukernels=none})' | filecheck %s --check-prefix=OFF

// OFF-NOT: mx_write_rows

#l = affine_map<(l) -> (l)>
#none = affine_map<(l) -> ()>
#all = affine_map<(h, l, d) -> (h, l, d)>
#of_h = affine_map<(h, l, d) -> (h)>
#of_l = affine_map<(h, l, d) -> (l)>
#of_d = affine_map<(h, l, d) -> (d)>
#swap = affine_map<(l, h, d) -> (h, l, d)>

// Subscripts of a scatter, which are loops but for the position, are not computed. Both caches are written by one kernel.

// CHECK-LABEL: func.func @copied
// CHECK-SAME: %[[KEYS:.+]]: tensor<4x16x8xf32>, %[[VALUES:.+]]: tensor<4x16x8xf32>, %[[K:.+]]: tensor<4x1x8xf32>, %[[V:.+]]: tensor<4x1x8xf32>, %[[AT:.+]]: tensor<1xi64>
// CHECK-NOT: linalg.generic
// CHECK-DAG: %[[PLACES:.+]] = iree_tensor_ext.bitcast %[[AT]] : tensor<1xi64> -> tensor<2xi32>
// CHECK: flow.dispatch.region -> (tensor<4x16x8xf32>, tensor<4x16x8xf32>)
// CHECK-NEXT: linalg.generic
// CHECK-SAME: "parallel", "parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"
// CHECK-SAME: ins(%{{.+}}, %{{.+}}, %[[PLACES]] : tensor<32xf32>, tensor<32xf32>, tensor<2xi32>) outs(%{{.+}}, %{{.+}} : tensor<4x16x8xf32>, tensor<4x16x8xf32>)
// CHECK-SAME: iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_write_rows_r1_d8_
// CHECK-SAME: mxcomp.kernel = "
// CHECK-NOT: iree_linalg_ext.scatter
// CHECK: return
func.func @copied(%keys: tensor<4x16x8xf32>, %values: tensor<4x16x8xf32>, %k: tensor<4x1x8xf32>, %v: tensor<4x1x8xf32>, %at: tensor<1xi64>) -> (tensor<4x16x8xf32>, tensor<4x16x8xf32>) {
  %e4 = tensor.empty() : tensor<4xi64>
  %head = linalg.generic {indexing_maps = [#l], iterator_types = ["parallel"]} outs(%e4 : tensor<4xi64>) {
  ^bb0(%o: i64):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    linalg.yield %1 : i64
  } -> tensor<4xi64>
  %e8 = tensor.empty() : tensor<8xi64>
  %element = linalg.generic {indexing_maps = [#l], iterator_types = ["parallel"]} outs(%e8 : tensor<8xi64>) {
  ^bb0(%o: i64):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    linalg.yield %1 : i64
  } -> tensor<8xi64>
  %e = tensor.empty() : tensor<4x1x8xi64>
  %heads = linalg.generic {indexing_maps = [#of_h, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%head : tensor<4xi64>) outs(%e : tensor<4x1x8xi64>) {
  ^bb0(%x: i64, %o: i64):
    linalg.yield %x : i64
  } -> tensor<4x1x8xi64>
  %places = linalg.generic {indexing_maps = [#of_l, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%at : tensor<1xi64>) outs(%e : tensor<4x1x8xi64>) {
  ^bb0(%x: i64, %o: i64):
    linalg.yield %x : i64
  } -> tensor<4x1x8xi64>
  %elements = linalg.generic {indexing_maps = [#of_d, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%element : tensor<8xi64>) outs(%e : tensor<4x1x8xi64>) {
  ^bb0(%x: i64, %o: i64):
    linalg.yield %x : i64
  } -> tensor<4x1x8xi64>
  %f0 = tensor.collapse_shape %heads [[0, 1, 2]] : tensor<4x1x8xi64> into tensor<32xi64>
  %f1 = tensor.collapse_shape %places [[0, 1, 2]] : tensor<4x1x8xi64> into tensor<32xi64>
  %f2 = tensor.collapse_shape %elements [[0, 1, 2]] : tensor<4x1x8xi64> into tensor<32xi64>
  %c0 = tensor.expand_shape %f0 [[0, 1]] output_shape [32, 1] : tensor<32xi64> into tensor<32x1xi64>
  %c1 = tensor.expand_shape %f1 [[0, 1]] output_shape [32, 1] : tensor<32xi64> into tensor<32x1xi64>
  %c2 = tensor.expand_shape %f2 [[0, 1]] output_shape [32, 1] : tensor<32xi64> into tensor<32x1xi64>
  %all = tensor.concat dim(1) %c0, %c1, %c2 : (tensor<32x1xi64>, tensor<32x1xi64>, tensor<32x1xi64>) -> tensor<32x3xi64>
  %fk = tensor.collapse_shape %k [[0, 1, 2]] : tensor<4x1x8xf32> into tensor<32xf32>
  %fv = tensor.collapse_shape %v [[0, 1, 2]] : tensor<4x1x8xf32> into tensor<32xf32>
  %uk = iree_linalg_ext.scatter dimension_map = [0, 1, 2] unique_indices(true) ins(%fk, %all : tensor<32xf32>, tensor<32x3xi64>) outs(%keys : tensor<4x16x8xf32>) {
  ^bb0(%new: f32, %old: f32):
    iree_linalg_ext.yield %new : f32
  } -> tensor<4x16x8xf32>
  %uv = iree_linalg_ext.scatter dimension_map = [0, 1, 2] unique_indices(true) ins(%fv, %all : tensor<32xf32>, tensor<32x3xi64>) outs(%values : tensor<4x16x8xf32>) {
  ^bb0(%new: f32, %old: f32):
    iree_linalg_ext.yield %new : f32
  } -> tensor<4x16x8xf32>
  return %uk, %uv : tensor<4x16x8xf32>, tensor<4x16x8xf32>
}

// A table says where each row goes (pages, for example). One group of places is shared by workgroups.

// CHECK-LABEL: func.func @paged
// CHECK: flow.dispatch.region -> (tensor<8x4x16xbf16>)
// CHECK: ins(%{{.+}}, %{{.+}} : tensor<48xbf16>, tensor<6xi32>) outs(%{{.+}} : tensor<8x4x16xbf16>)
// CHECK-SAME: "mx_write_rows_r3_d16_
func.func @paged(%cache: tensor<32x16xbf16>, %rows: tensor<3x16xbf16>, %slots: tensor<3xi64>) -> tensor<32x16xbf16> {
  %0 = tensor.expand_shape %slots [[0, 1]] output_shape [3, 1] : tensor<3xi64> into tensor<3x1xi64>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%rows, %0 : tensor<3x16xbf16>, tensor<3x1xi64>) outs(%cache : tensor<32x16xbf16>) {
  ^bb0(%new: bf16, %old: bf16):
    iree_linalg_ext.yield %new : bf16
  } -> tensor<32x16xbf16>
  return %1 : tensor<32x16xbf16>
}

// A position of each sequence. The cache is not transposed for it.

// CHECK-LABEL: func.func @by_sequence
// CHECK-NOT: linalg.transpose
// CHECK: %[[NEW:.+]] = flow.dispatch.region -> (tensor<4x16x8xf32>)
// CHECK: ins(%{{.+}}, %{{.+}} : tensor<32xf32>, tensor<8xi32>)
// CHECK-NOT: linalg.transpose
// CHECK: return
func.func @by_sequence(%cache: tensor<4x16x8xf32>, %rows: tensor<4x8xf32>, %at: tensor<4xi64>) -> tensor<4x16x8xf32> {
  %e4 = tensor.empty() : tensor<4xi64>
  %sequence = linalg.generic {indexing_maps = [#l], iterator_types = ["parallel"]} outs(%e4 : tensor<4xi64>) {
  ^bb0(%o: i64):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    linalg.yield %1 : i64
  } -> tensor<4xi64>
  %c0 = tensor.expand_shape %at [[0, 1]] output_shape [4, 1] : tensor<4xi64> into tensor<4x1xi64>
  %c1 = tensor.expand_shape %sequence [[0, 1]] output_shape [4, 1] : tensor<4xi64> into tensor<4x1xi64>
  %all = tensor.concat dim(1) %c0, %c1 : (tensor<4x1xi64>, tensor<4x1xi64>) -> tensor<4x2xi64>
  %e = tensor.empty() : tensor<16x4x8xf32>
  %t = linalg.transpose ins(%cache : tensor<4x16x8xf32>) outs(%e : tensor<16x4x8xf32>) permutation = [1, 0, 2]
  %u = iree_linalg_ext.scatter dimension_map = [0, 1] unique_indices(true) ins(%rows, %all : tensor<4x8xf32>, tensor<4x2xi64>) outs(%t : tensor<16x4x8xf32>) {
  ^bb0(%new: f32, %old: f32):
    iree_linalg_ext.yield %new : f32
  } -> tensor<16x4x8xf32>
  %b = tensor.empty() : tensor<4x16x8xf32>
  %r = linalg.transpose ins(%u : tensor<16x4x8xf32>) outs(%b : tensor<4x16x8xf32>) permutation = [1, 0, 2]
  return %r : tensor<4x16x8xf32>
}

// What is added to a row, and not written over it, is left as it is.

// CHECK-LABEL: func.func @added
// CHECK-NOT: flow.dispatch.region
// CHECK: iree_linalg_ext.scatter
func.func @added(%cache: tensor<32x16xf32>, %rows: tensor<3x16xf32>, %slots: tensor<3xi64>) -> tensor<32x16xf32> {
  %0 = tensor.expand_shape %slots [[0, 1]] output_shape [3, 1] : tensor<3xi64> into tensor<3x1xi64>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%rows, %0 : tensor<3x16xf32>, tensor<3x1xi64>) outs(%cache : tensor<32x16xf32>) {
  ^bb0(%new: f32, %old: f32):
    %2 = arith.addf %new, %old : f32
    iree_linalg_ext.yield %2 : f32
  } -> tensor<32x16xf32>
  return %1 : tensor<32x16xf32>
}

// Nor are rows that may go to one place, the last of which counts.

// CHECK-LABEL: func.func @repeated
// CHECK-NOT: flow.dispatch.region
// CHECK: iree_linalg_ext.scatter
func.func @repeated(%cache: tensor<32x16xf32>, %rows: tensor<3x16xf32>, %slots: tensor<3xi64>) -> tensor<32x16xf32> {
  %0 = tensor.expand_shape %slots [[0, 1]] output_shape [3, 1] : tensor<3xi64> into tensor<3x1xi64>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(false) ins(%rows, %0 : tensor<3x16xf32>, tensor<3x1xi64>) outs(%cache : tensor<32x16xf32>) {
  ^bb0(%new: f32, %old: f32):
    iree_linalg_ext.yield %new : f32
  } -> tensor<32x16xf32>
  return %1 : tensor<32x16xf32>
}
