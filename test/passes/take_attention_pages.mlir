// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-take-attention)' | filecheck %s

#q = affine_map<(n, t, v, d, l) -> (n, t, d)>
#k = affine_map<(n, t, v, d, l) -> (n, l, d)>
#v = affine_map<(n, t, v, d, l) -> (n, l, v)>
#s = affine_map<(n, t, v, d, l) -> ()>
#o = affine_map<(n, t, v, d, l) -> (n, t, v)>
#ids = affine_map<(b, p, r, d) -> (b, p)>
#rows = affine_map<(b, p, r, d) -> (b, p, r, d)>

// Keys and values in pages of 16, found by the table: neither is gathered. Negative ids are from the end.

// CHECK: note = "",
// CHECK-SAME: note = "keys or values are gathered in memory: expected at most 32 queries, and pages of a multiple of 16 keys
// CHECK-LABEL: util.func public @pages(
// CHECK-SAME: %[[K:[a-z0-9]+]]: tensor<9x16x64xbf16>, %[[V:[a-z0-9]+]]: tensor<9x16x64xbf16>, %[[TABLE:[a-z0-9]+]]: tensor<2x4xi64>
// CHECK-NOT: tensor.extract
// CHECK: ins(%{{.+}}, %[[K]], %[[V]], %[[TABLE]] : tensor<2x64xbf16>, tensor<9x16x64xbf16>, tensor<9x16x64xbf16>, tensor<2x4xi64>)
// CHECK-SAME: "mx_attention_decode_
util.func public @pages(%q: tensor<2x1x64xbf16>, %k: tensor<9x16x64xbf16>, %v: tensor<9x16x64xbf16>, %table: tensor<2x4xi64>) -> tensor<2x1x64xbf16> {
  %e = tensor.empty() : tensor<2x4x16x64xbf16>
  %keys = linalg.generic {indexing_maps = [#ids, #rows], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%table : tensor<2x4xi64>) outs(%e : tensor<2x4x16x64xbf16>) {
  ^bb0(%id: i64, %out: bf16):
    %zero = arith.constant 0 : i64
    %count = arith.constant 9 : i64
    %below = arith.cmpi slt, %id, %zero : i64
    %more = arith.addi %id, %count : i64
    %place = arith.select %below, %more, %id : i64
    %0 = arith.index_cast %place : i64 to index
    %1 = linalg.index 2 : index
    %2 = linalg.index 3 : index
    %3 = tensor.extract %k[%0, %1, %2] : tensor<9x16x64xbf16>
    linalg.yield %3 : bf16
  } -> tensor<2x4x16x64xbf16>
  %values = linalg.generic {indexing_maps = [#ids, #rows], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%table : tensor<2x4xi64>) outs(%e : tensor<2x4x16x64xbf16>) {
  ^bb0(%id: i64, %out: bf16):
    %zero = arith.constant 0 : i64
    %count = arith.constant 9 : i64
    %below = arith.cmpi slt, %id, %zero : i64
    %more = arith.addi %id, %count : i64
    %place = arith.select %below, %more, %id : i64
    %0 = arith.index_cast %place : i64 to index
    %1 = linalg.index 2 : index
    %2 = linalg.index 3 : index
    %3 = tensor.extract %v[%0, %1, %2] : tensor<9x16x64xbf16>
    linalg.yield %3 : bf16
  } -> tensor<2x4x16x64xbf16>
  %kt = tensor.collapse_shape %keys [[0], [1, 2], [3]] : tensor<2x4x16x64xbf16> into tensor<2x64x64xbf16>
  %vt = tensor.collapse_shape %values [[0], [1, 2], [3]] : tensor<2x4x16x64xbf16> into tensor<2x64x64xbf16>
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<2x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %kt, %vt, %scale : tensor<2x1x64xbf16>, tensor<2x64x64xbf16>, tensor<2x64x64xbf16>, f32)
      outs(%empty : tensor<2x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x1x64xbf16>
  util.return %r : tensor<2x1x64xbf16>
}

// Not by a table of their own, from which values come; nor in pages of 8, which a fragment of 16 keys is more than.

// CHECK-LABEL: util.func public @other_pages(
// CHECK: %[[KEYS:[0-9]+]] = linalg.generic
// CHECK: tensor.extract
// CHECK: %[[VALUES:.+]] = tensor.collapse_shape %{{.+}} : tensor<2x8x8x64xbf16> into tensor<2x64x64xbf16>
// CHECK: ins(%{{.+}}, %{{.+}}, %[[VALUES]] : tensor<2x64xbf16>, tensor<2x64x64xbf16>, tensor<2x64x64xbf16>)
// CHECK-SAME: "mx_attention_decode_
util.func public @other_pages(%q: tensor<2x1x64xbf16>, %k: tensor<9x16x64xbf16>, %v: tensor<18x8x64xbf16>, %table: tensor<2x4xi64>, %other: tensor<2x8xi64>) -> tensor<2x1x64xbf16> {
  %e = tensor.empty() : tensor<2x4x16x64xbf16>
  %f = tensor.empty() : tensor<2x8x8x64xbf16>
  %keys = linalg.generic {indexing_maps = [#ids, #rows], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%table : tensor<2x4xi64>) outs(%e : tensor<2x4x16x64xbf16>) {
  ^bb0(%id: i64, %out: bf16):
    %0 = arith.index_cast %id : i64 to index
    %1 = linalg.index 2 : index
    %2 = linalg.index 3 : index
    %3 = tensor.extract %k[%0, %1, %2] : tensor<9x16x64xbf16>
    linalg.yield %3 : bf16
  } -> tensor<2x4x16x64xbf16>
  %values = linalg.generic {indexing_maps = [#ids, #rows], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%other : tensor<2x8xi64>) outs(%f : tensor<2x8x8x64xbf16>) {
  ^bb0(%id: i64, %out: bf16):
    %0 = arith.index_cast %id : i64 to index
    %1 = linalg.index 2 : index
    %2 = linalg.index 3 : index
    %3 = tensor.extract %v[%0, %1, %2] : tensor<18x8x64xbf16>
    linalg.yield %3 : bf16
  } -> tensor<2x8x8x64xbf16>
  %kt = tensor.collapse_shape %keys [[0], [1, 2], [3]] : tensor<2x4x16x64xbf16> into tensor<2x64x64xbf16>
  %vt = tensor.collapse_shape %values [[0], [1, 2], [3]] : tensor<2x8x8x64xbf16> into tensor<2x64x64xbf16>
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<2x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %kt, %vt, %scale : tensor<2x1x64xbf16>, tensor<2x64x64xbf16>, tensor<2x64x64xbf16>, f32)
      outs(%empty : tensor<2x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x1x64xbf16>
  util.return %r : tensor<2x1x64xbf16>
}
