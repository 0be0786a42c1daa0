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
#of_block = affine_map<(r, b, k) -> (r, b)>
#blocks = affine_map<(r, b) -> (r, b)>

// Subscripts of a scatter, which are loops but for the position, are not computed. Both caches are written by one kernel.

// CHECK-LABEL: func.func @copied
// CHECK-SAME: %[[KEYS:.+]]: tensor<4x16x8xf32>, %[[VALUES:.+]]: tensor<4x16x8xf32>, %[[K:.+]]: tensor<4x1x8xf32>, %[[V:.+]]: tensor<4x1x8xf32>, %[[AT:.+]]: tensor<1xi64>
// CHECK-NOT: linalg.generic
// CHECK: flow.dispatch.region -> (tensor<4x16x8xf32>, tensor<4x16x8xf32>)
// CHECK-NEXT: linalg.generic
// CHECK-SAME: "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "reduction", "reduction"
// CHECK-SAME: ins(%{{.+}}, %{{.+}}, %[[AT]] : tensor<4x8xf32>, tensor<4x8xf32>, tensor<1xi64>) outs(%{{.+}}, %{{.+}} : tensor<4x16x8xf32>, tensor<4x16x8xf32>)
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

// A table says where each row goes (pages, for example).

// CHECK-LABEL: func.func @paged
// CHECK: flow.dispatch.region -> (tensor<1x32x16xbf16>)
// CHECK: ins(%{{.+}}, %{{.+}} : tensor<3x16xbf16>, tensor<3xi64>) outs(%{{.+}} : tensor<1x32x16xbf16>)
// CHECK-SAME: "mx_write_rows_r3_d16_
func.func @paged(%cache: tensor<32x16xbf16>, %rows: tensor<3x16xbf16>, %slots: tensor<3xi64>) -> tensor<32x16xbf16> {
  %0 = tensor.expand_shape %slots [[0, 1]] output_shape [3, 1] : tensor<3xi64> into tensor<3x1xi64>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%rows, %0 : tensor<3x16xbf16>, tensor<3x1xi64>) outs(%cache : tensor<32x16xbf16>) {
  ^bb0(%new: bf16, %old: bf16):
    iree_linalg_ext.yield %new : bf16
  } -> tensor<32x16xbf16>
  return %1 : tensor<32x16xbf16>
}

// A cache that is read where it is stored is not written with a later one.

util.global private mutable @first : tensor<32x16xbf16>
util.global private mutable @second : tensor<32x16xbf16>
// CHECK-LABEL: func.func @read_in_between
// CHECK: %[[FIRST:.+]] = flow.dispatch.region -> (tensor<1x32x16xbf16>)
// CHECK: util.global.store %{{.+}}, @first
// CHECK: %[[READ:.+]] = util.global.load @first
// CHECK: flow.dispatch.region -> (tensor<1x32x16xbf16>)
// CHECK: util.global.store %{{.+}}, @second
// CHECK: return %[[READ]]
func.func @read_in_between(%one: tensor<3x16xbf16>, %other: tensor<3x16xbf16>, %slots: tensor<3xi64>) -> tensor<32x16xbf16> {
  %first = util.global.load @first : tensor<32x16xbf16>
  %second = util.global.load @second : tensor<32x16xbf16>
  %0 = tensor.expand_shape %slots [[0, 1]] output_shape [3, 1] : tensor<3xi64> into tensor<3x1xi64>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%one, %0 : tensor<3x16xbf16>, tensor<3x1xi64>) outs(%first : tensor<32x16xbf16>) {
  ^bb0(%new: bf16, %old: bf16):
    iree_linalg_ext.yield %new : bf16
  } -> tensor<32x16xbf16>
  util.global.store %1, @first : tensor<32x16xbf16>
  %2 = util.global.load @first : tensor<32x16xbf16>
  %3 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%other, %0 : tensor<3x16xbf16>, tensor<3x1xi64>) outs(%second : tensor<32x16xbf16>) {
  ^bb0(%new: bf16, %old: bf16):
    iree_linalg_ext.yield %new : bf16
  } -> tensor<32x16xbf16>
  util.global.store %3, @second : tensor<32x16xbf16>
  return %2 : tensor<32x16xbf16>
}

// Many rows are shared out among workgroups, each of which is given all of the cache.

// CHECK-LABEL: func.func @many
// CHECK: flow.dispatch.region -> (tensor<1x1024x64xf32>)
// CHECK: ins(%{{.+}}, %{{.+}} : tensor<128x64xf32>, tensor<128xi64>) outs(%{{.+}} : tensor<1x1024x64xf32>)
// CHECK-SAME: mx_write_rows_r128_d64_
func.func @many(%cache: tensor<1024x64xf32>, %rows: tensor<128x64xf32>, %slots: tensor<128xi64>) -> tensor<1024x64xf32> {
  %0 = tensor.expand_shape %slots [[0, 1]] output_shape [128, 1] : tensor<128xi64> into tensor<128x1xi64>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%rows, %0 : tensor<128x64xf32>, tensor<128x1xi64>) outs(%cache : tensor<1024x64xf32>) {
  ^bb0(%new: f32, %old: f32):
    iree_linalg_ext.yield %new : f32
  } -> tensor<1024x64xf32>
  return %1 : tensor<1024x64xf32>
}

// A position of each sequence. The cache is not transposed for it.

// CHECK-LABEL: func.func @by_sequence
// CHECK-NOT: linalg.transpose
// CHECK: %[[NEW:.+]] = flow.dispatch.region -> (tensor<4x16x8xf32>)
// CHECK: ins(%{{.+}}, %{{.+}} : tensor<4x8xf32>, tensor<4xi64>)
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

// Rows are quantised where elements and scales of them are written. What reads one of both waits for that.

// CHECK-LABEL: func.func @quantised
// CHECK-SAME: %{{.+}}: tensor<32x32xi8>, %{{.+}}: tensor<32x2xi8>, %[[ROWS:.+]]: tensor<3x64xbf16>
// CHECK-NOT: scaling_truncf
// CHECK: tensor.collapse_shape %[[ROWS]]
// CHECK: flow.dispatch.region -> (tensor<1x32x32xi8>, tensor<1x32x2xi8>)
// CHECK: ins(%{{.+}}, %{{.+}} : tensor<3x64xbf16>, tensor<3xi64>) outs(%{{.+}}, %{{.+}} : tensor<1x32x32xi8>, tensor<1x32x2xi8>)
// CHECK-SAME: "mx_write_rows_r3_d64_
// CHECK-SAME: rocdl.cvt.scalef32.pk.fp4.bf16
// CHECK: iree_tensor_ext.bitcast %{{.+}} : tensor<32x32xi8> -> tensor<32x2x32xf4E2M1FN>
// CHECK-NOT: iree_linalg_ext.scatter
// CHECK: return
func.func @quantised(%elements: tensor<32x32xi8>, %scales: tensor<32x2xi8>, %rows: tensor<3x64xbf16>, %slots: tensor<3xi64>) -> (tensor<32x2xi8>, tensor<32x2x32xf4E2M1FN>) {
  %at = tensor.expand_shape %slots [[0, 1]] output_shape [3, 1] : tensor<3xi64> into tensor<3x1xi64>
  %x = tensor.expand_shape %rows [[0], [1, 2]] output_shape [3, 2, 32] : tensor<3x64xbf16> into tensor<3x2x32xbf16>
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<3x2xi32>
  %none = linalg.fill ins(%zero : i32) outs(%e : tensor<3x2xi32>) -> tensor<3x2xi32>
  %amax = linalg.generic {indexing_maps = [#all, #of_block], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x : tensor<3x2x32xbf16>) outs(%none : tensor<3x2xi32>) {
  ^bb0(%in: bf16, %o: i32):
    %0 = arith.extf %in : bf16 to f32
    %1 = math.absf %0 : f32
    %2 = arith.bitcast %1 : f32 to i32
    %3 = arith.maxui %2, %o : i32
    linalg.yield %3 : i32
  } -> tensor<3x2xi32>
  %es = tensor.empty() : tensor<3x2xf8E8M0FNU>
  %powers = linalg.generic {indexing_maps = [#blocks, #blocks], iterator_types = ["parallel", "parallel"]} ins(%amax : tensor<3x2xi32>) outs(%es : tensor<3x2xf8E8M0FNU>) {
  ^bb0(%in: i32, %o: f8E8M0FNU):
    %c23 = arith.constant 23 : i32
    %0 = arith.shrui %in, %c23 : i32
    %1 = arith.trunci %0 : i32 to i8
    %2 = arith.bitcast %1 : i8 to f8E8M0FNU
    linalg.yield %2 : f8E8M0FNU
  } -> tensor<3x2xf8E8M0FNU>
  %ee = tensor.empty() : tensor<3x2x32xf4E2M1FN>
  %codes = linalg.generic {indexing_maps = [#all, #of_block, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x, %powers : tensor<3x2x32xbf16>, tensor<3x2xf8E8M0FNU>) outs(%ee : tensor<3x2x32xf4E2M1FN>) {
  ^bb0(%in: bf16, %scale: f8E8M0FNU, %o: f4E2M1FN):
    %0 = arith.extf %in : bf16 to f32
    %1 = arith.scaling_truncf %0, %scale : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %1 : f4E2M1FN
  } -> tensor<3x2x32xf4E2M1FN>
  %be = iree_tensor_ext.bitcast %codes : tensor<3x2x32xf4E2M1FN> -> tensor<3x32xi8>
  %bs = iree_tensor_ext.bitcast %powers : tensor<3x2xf8E8M0FNU> -> tensor<3x2xi8>
  %ue = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%be, %at : tensor<3x32xi8>, tensor<3x1xi64>) outs(%elements : tensor<32x32xi8>) {
  ^bb0(%new: i8, %old: i8):
    iree_linalg_ext.yield %new : i8
  } -> tensor<32x32xi8>
  %read = iree_tensor_ext.bitcast %ue : tensor<32x32xi8> -> tensor<32x2x32xf4E2M1FN>
  %us = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%bs, %at : tensor<3x2xi8>, tensor<3x1xi64>) outs(%scales : tensor<32x2xi8>) {
  ^bb0(%new: i8, %old: i8):
    iree_linalg_ext.yield %new : i8
  } -> tensor<32x2xi8>
  return %us, %read : tensor<32x2xi8>, tensor<32x2x32xf4E2M1FN>
}

// Elements and scales that go to different places are written as they are.

// CHECK-LABEL: func.func @apart
// CHECK: arith.scaling_truncf
// CHECK: flow.dispatch.region -> (tensor<1x32x32xi8>)
// CHECK: flow.dispatch.region -> (tensor<1x32x2xi8>)
func.func @apart(%elements: tensor<32x32xi8>, %scales: tensor<32x2xi8>, %rows: tensor<3x64xbf16>, %slots: tensor<3xi64>, %others: tensor<3xi64>) -> (tensor<32x32xi8>, tensor<32x2xi8>) {
  %at = tensor.expand_shape %slots [[0, 1]] output_shape [3, 1] : tensor<3xi64> into tensor<3x1xi64>
  %other = tensor.expand_shape %others [[0, 1]] output_shape [3, 1] : tensor<3xi64> into tensor<3x1xi64>
  %x = tensor.expand_shape %rows [[0], [1, 2]] output_shape [3, 2, 32] : tensor<3x64xbf16> into tensor<3x2x32xbf16>
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<3x2xi32>
  %none = linalg.fill ins(%zero : i32) outs(%e : tensor<3x2xi32>) -> tensor<3x2xi32>
  %amax = linalg.generic {indexing_maps = [#all, #of_block], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x : tensor<3x2x32xbf16>) outs(%none : tensor<3x2xi32>) {
  ^bb0(%in: bf16, %o: i32):
    %0 = arith.extf %in : bf16 to f32
    %1 = math.absf %0 : f32
    %2 = arith.bitcast %1 : f32 to i32
    %3 = arith.maxui %2, %o : i32
    linalg.yield %3 : i32
  } -> tensor<3x2xi32>
  %es = tensor.empty() : tensor<3x2xf8E8M0FNU>
  %powers = linalg.generic {indexing_maps = [#blocks, #blocks], iterator_types = ["parallel", "parallel"]} ins(%amax : tensor<3x2xi32>) outs(%es : tensor<3x2xf8E8M0FNU>) {
  ^bb0(%in: i32, %o: f8E8M0FNU):
    %c23 = arith.constant 23 : i32
    %0 = arith.shrui %in, %c23 : i32
    %1 = arith.trunci %0 : i32 to i8
    %2 = arith.bitcast %1 : i8 to f8E8M0FNU
    linalg.yield %2 : f8E8M0FNU
  } -> tensor<3x2xf8E8M0FNU>
  %ee = tensor.empty() : tensor<3x2x32xf4E2M1FN>
  %codes = linalg.generic {indexing_maps = [#all, #of_block, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x, %powers : tensor<3x2x32xbf16>, tensor<3x2xf8E8M0FNU>) outs(%ee : tensor<3x2x32xf4E2M1FN>) {
  ^bb0(%in: bf16, %scale: f8E8M0FNU, %o: f4E2M1FN):
    %0 = arith.extf %in : bf16 to f32
    %1 = arith.scaling_truncf %0, %scale : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %1 : f4E2M1FN
  } -> tensor<3x2x32xf4E2M1FN>
  %be = iree_tensor_ext.bitcast %codes : tensor<3x2x32xf4E2M1FN> -> tensor<3x32xi8>
  %bs = iree_tensor_ext.bitcast %powers : tensor<3x2xf8E8M0FNU> -> tensor<3x2xi8>
  %ue = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%be, %at : tensor<3x32xi8>, tensor<3x1xi64>) outs(%elements : tensor<32x32xi8>) {
  ^bb0(%new: i8, %old: i8):
    iree_linalg_ext.yield %new : i8
  } -> tensor<32x32xi8>
  %us = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%bs, %other : tensor<3x2xi8>, tensor<3x1xi64>) outs(%scales : tensor<32x2xi8>) {
  ^bb0(%new: i8, %old: i8):
    iree_linalg_ext.yield %new : i8
  } -> tensor<32x2xi8>
  return %ue, %us : tensor<32x32xi8>, tensor<32x2xi8>
}

// So are those of which the scales are computed from the new elements.

// CHECK-LABEL: func.func @dependent
// CHECK: arith.scaling_truncf
// CHECK: flow.dispatch.region -> (tensor<1x32x32xi8>)
// CHECK: flow.dispatch.region -> (tensor<1x32x2xi8>)
func.func @dependent(%elements: tensor<32x32xi8>, %scales: tensor<32x2xi8>, %rows: tensor<3x64xbf16>, %slots: tensor<3xi64>) -> (tensor<32x32xi8>, tensor<32x2xi8>) {
  %at = tensor.expand_shape %slots [[0, 1]] output_shape [3, 1] : tensor<3xi64> into tensor<3x1xi64>
  %x = tensor.expand_shape %rows [[0], [1, 2]] output_shape [3, 2, 32] : tensor<3x64xbf16> into tensor<3x2x32xbf16>
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<3x2xi32>
  %none = linalg.fill ins(%zero : i32) outs(%e : tensor<3x2xi32>) -> tensor<3x2xi32>
  %amax = linalg.generic {indexing_maps = [#all, #of_block], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x : tensor<3x2x32xbf16>) outs(%none : tensor<3x2xi32>) {
  ^bb0(%in: bf16, %o: i32):
    %0 = arith.extf %in : bf16 to f32
    %1 = math.absf %0 : f32
    %2 = arith.bitcast %1 : f32 to i32
    %3 = arith.maxui %2, %o : i32
    linalg.yield %3 : i32
  } -> tensor<3x2xi32>
  %es = tensor.empty() : tensor<3x2xf8E8M0FNU>
  %powers = linalg.generic {indexing_maps = [#blocks, #blocks], iterator_types = ["parallel", "parallel"]} ins(%amax : tensor<3x2xi32>) outs(%es : tensor<3x2xf8E8M0FNU>) {
  ^bb0(%in: i32, %o: f8E8M0FNU):
    %c23 = arith.constant 23 : i32
    %0 = arith.shrui %in, %c23 : i32
    %1 = arith.trunci %0 : i32 to i8
    %2 = arith.bitcast %1 : i8 to f8E8M0FNU
    linalg.yield %2 : f8E8M0FNU
  } -> tensor<3x2xf8E8M0FNU>
  %ee = tensor.empty() : tensor<3x2x32xf4E2M1FN>
  %codes = linalg.generic {indexing_maps = [#all, #of_block, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x, %powers : tensor<3x2x32xbf16>, tensor<3x2xf8E8M0FNU>) outs(%ee : tensor<3x2x32xf4E2M1FN>) {
  ^bb0(%in: bf16, %scale: f8E8M0FNU, %o: f4E2M1FN):
    %0 = arith.extf %in : bf16 to f32
    %1 = arith.scaling_truncf %0, %scale : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %1 : f4E2M1FN
  } -> tensor<3x2x32xf4E2M1FN>
  %be = iree_tensor_ext.bitcast %codes : tensor<3x2x32xf4E2M1FN> -> tensor<3x32xi8>
  %bs = iree_tensor_ext.bitcast %powers : tensor<3x2xf8E8M0FNU> -> tensor<3x2xi8>
  %ue = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%be, %at : tensor<3x32xi8>, tensor<3x1xi64>) outs(%elements : tensor<32x32xi8>) {
  ^bb0(%new: i8, %old: i8):
    iree_linalg_ext.yield %new : i8
  } -> tensor<32x32xi8>
  %some = tensor.extract_slice %ue[0, 0] [32, 2] [1, 1] : tensor<32x32xi8> to tensor<32x2xi8>
  %us = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%bs, %at : tensor<3x2xi8>, tensor<3x1xi64>) outs(%some : tensor<32x2xi8>) {
  ^bb0(%new: i8, %old: i8):
    iree_linalg_ext.yield %new : i8
  } -> tensor<32x2xi8>
  return %ue, %us : tensor<32x32xi8>, tensor<32x2xi8>
}
