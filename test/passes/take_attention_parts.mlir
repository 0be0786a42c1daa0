// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-take-attention)' \
// RUN:   | sed -E 's/(mxcomp.kernel = "[^"]{200})[^"]*/\1/g' | filecheck %s

#q = affine_map<(n, t, v, d, l) -> (n, t, d)>
#k = affine_map<(n, t, v, d, l) -> (n, l, d)>
#v = affine_map<(n, t, v, d, l) -> (n, l, v)>
#s = affine_map<(n, t, v, d, l) -> ()>
#o = affine_map<(n, t, v, d, l) -> (n, t, v)>

// Keys of two parts, one of all heads, are read where these are stored: the other, and values, in longer rows.

// CHECK-LABEL: util.func public @two_parts(
// CHECK-SAME: %{{[a-z0-9]+}}: tensor<4x1x80xbf16>, %[[BOTH:[a-z0-9]+]]: tensor<96x4x96xbf16>, %[[ROPE:[a-z0-9]+]]: tensor<96x16xbf16>)
// CHECK-NOT: linalg.transpose
// CHECK-NOT: tensor.insert_slice
// CHECK: linalg.generic
// CHECK-SAME: ins(%{{[^,]+}}, %[[BOTH]], %[[BOTH]], %[[ROPE]] : tensor<4x80xbf16>, tensor<96x4x96xbf16>, tensor<96x4x96xbf16>, tensor<96x16xbf16>)
// CHECK-SAME: mx_attention_decode_r1_d80_
util.func public @two_parts(%q: tensor<4x1x80xbf16>, %both: tensor<96x4x96xbf16>, %rope: tensor<96x16xbf16>)
    -> tensor<4x1x32xbf16> {
  %places = tensor.empty() : tensor<4x96x96xbf16>
  %turned = linalg.transpose ins(%both : tensor<96x4x96xbf16>) outs(%places : tensor<4x96x96xbf16>) permutation = [1, 0, 2]
  %nope = tensor.extract_slice %turned[0, 0, 0] [4, 96, 64] [1, 1, 1] : tensor<4x96x96xbf16> to tensor<4x96x64xbf16>
  %v = tensor.extract_slice %turned[0, 0, 64] [4, 96, 32] [1, 1, 1] : tensor<4x96x96xbf16> to tensor<4x96x32xbf16>
  %shared = tensor.empty() : tensor<4x96x16xbf16>
  %ropes = linalg.broadcast ins(%rope : tensor<96x16xbf16>) outs(%shared : tensor<4x96x16xbf16>) dimensions = [0]
  %none = tensor.empty() : tensor<4x96x80xbf16>
  %first = tensor.insert_slice %nope into %none[0, 0, 0] [4, 96, 64] [1, 1, 1] : tensor<4x96x64xbf16> into tensor<4x96x80xbf16>
  %k = tensor.insert_slice %ropes into %first[0, 0, 64] [4, 96, 16] [1, 1, 1] : tensor<4x96x16xbf16> into tensor<4x96x80xbf16>
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<4x1x32xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %v, %scale : tensor<4x1x80xbf16>, tensor<4x96x80xbf16>, tensor<4x96x32xbf16>, f32) outs(%empty : tensor<4x1x32xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x1x32xbf16>
  util.return %r : tensor<4x1x32xbf16>
}

// A part of another number of elements than lanes load, and one that leaves some of a row to what was there, are copied.
// So are values that begin at no multiple of eight elements.

// CHECK-LABEL: util.func public @other_parts(
// CHECK: %[[VALUES:.+]] = tensor.extract_slice {{.*}}[0, 0, 4]
// CHECK: %[[KEYS:.+]] = tensor.concat dim(2)
// CHECK: ins(%{{[^,]+}}, %[[KEYS]], %[[VALUES]] : tensor<4x80xbf16>, tensor<4x96x80xbf16>, tensor<4x96x32xbf16>)
util.func public @other_parts(%q: tensor<4x1x80xbf16>, %nope: tensor<4x96x48xbf16>, %rope: tensor<96x32xbf16>, %both: tensor<4x96x64xbf16>)
    -> tensor<4x1x32xbf16> {
  %v = tensor.extract_slice %both[0, 0, 4] [4, 96, 32] [1, 1, 1] : tensor<4x96x64xbf16> to tensor<4x96x32xbf16>
  %shared = tensor.empty() : tensor<4x96x32xbf16>
  %ropes = linalg.broadcast ins(%rope : tensor<96x32xbf16>) outs(%shared : tensor<4x96x32xbf16>) dimensions = [0]
  %k = tensor.concat dim(2) %nope, %ropes : (tensor<4x96x48xbf16>, tensor<4x96x32xbf16>) -> tensor<4x96x80xbf16>
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<4x1x32xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %v, %scale : tensor<4x1x80xbf16>, tensor<4x96x80xbf16>, tensor<4x96x32xbf16>, f32) outs(%empty : tensor<4x1x32xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x1x32xbf16>
  util.return %r : tensor<4x1x32xbf16>
}

// CHECK-LABEL: util.func public @rest_of_a_row(
// CHECK: %[[KEYS:.+]] = tensor.insert_slice
// CHECK: ins(%{{[^,]+}}, %[[KEYS]], %{{[^,]+}} : tensor<4x64xbf16>, tensor<4x96x64xbf16>, tensor<4x96x64xbf16>)
util.func public @rest_of_a_row(%q: tensor<4x1x64xbf16>, %rope: tensor<96x32xbf16>, %v: tensor<4x96x64xbf16>)
    -> tensor<4x1x64xbf16> {
  %shared = tensor.empty() : tensor<4x96x32xbf16>
  %ropes = linalg.broadcast ins(%rope : tensor<96x32xbf16>) outs(%shared : tensor<4x96x32xbf16>) dimensions = [0]
  %k = tensor.insert_slice %ropes into %v[0, 0, 32] [4, 96, 32] [1, 1, 1] : tensor<4x96x32xbf16> into tensor<4x96x64xbf16>
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<4x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %v, %scale : tensor<4x1x64xbf16>, tensor<4x96x64xbf16>, tensor<4x96x64xbf16>, f32) outs(%empty : tensor<4x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x1x64xbf16>
  util.return %r : tensor<4x1x64xbf16>
}

// Halves of a row that are computed, as a rotation's, are written as rows.

// CHECK-LABEL: util.func public @halves(
// CHECK: %[[KEYS:.+]] = tensor.concat dim(2)
// CHECK: ins(%{{[^,]+}}, %[[KEYS]], %{{[^,]+}} : tensor<4x64xbf16>, tensor<4x96x64xbf16>, tensor<4x96x64xbf16>)
util.func public @halves(%q: tensor<4x1x64xbf16>, %x: tensor<4x96x64xbf16>, %v: tensor<4x96x64xbf16>)
    -> tensor<4x1x64xbf16> {
  %one = tensor.extract_slice %x[0, 0, 0] [4, 96, 32] [1, 1, 1] : tensor<4x96x64xbf16> to tensor<4x96x32xbf16>
  %other = tensor.extract_slice %x[0, 0, 32] [4, 96, 32] [1, 1, 1] : tensor<4x96x64xbf16> to tensor<4x96x32xbf16>
  %negative = arith.negf %other : tensor<4x96x32xbf16>
  %k = tensor.concat dim(2) %negative, %one : (tensor<4x96x32xbf16>, tensor<4x96x32xbf16>) -> tensor<4x96x64xbf16>
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<4x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %v, %scale : tensor<4x1x64xbf16>, tensor<4x96x64xbf16>, tensor<4x96x64xbf16>, f32) outs(%empty : tensor<4x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x1x64xbf16>
  util.return %r : tensor<4x1x64xbf16>
}

// A mask that is a slice is no slice of rows.

// CHECK-LABEL: util.func public @mask(
// CHECK: %[[MASKS:.+]] = tensor.extract_slice
// CHECK: %[[MASK:.+]] = tensor.collapse_shape %[[MASKS]]
// CHECK: ins(%{{[^,]+}}, %{{[^,]+}}, %{{[^,]+}}, %[[MASK]] : tensor<4x64xbf16>, tensor<4x96x64xbf16>, tensor<4x96x64xbf16>, tensor<4x96xbf16>)
util.func public @mask(%q: tensor<4x1x64xbf16>, %k: tensor<4x96x64xbf16>, %v: tensor<4x96x64xbf16>, %masks: tensor<4x1x99xbf16>)
    -> tensor<4x1x64xbf16> {
  %mask = tensor.extract_slice %masks[0, 0, 3] [4, 1, 96] [1, 1, 1] : tensor<4x1x99xbf16> to tensor<4x1x96xbf16>
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<4x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, affine_map<(n, t, v, d, l) -> (n, t, l)>, #o]>
      ins(%q, %k, %v, %scale, %mask : tensor<4x1x64xbf16>, tensor<4x96x64xbf16>, tensor<4x96x64xbf16>, f32, tensor<4x1x96xbf16>)
      outs(%empty : tensor<4x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x1x64xbf16>
  util.return %r : tensor<4x1x64xbf16>
}
