// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-scale-scores)' | filecheck %s

#q = affine_map<(b, m, n, d, k) -> (b, m, d)>
#k = affine_map<(b, m, n, d, k) -> (b, k, d)>
#v = affine_map<(b, m, n, d, k) -> (b, k, n)>
#s = affine_map<(b, m, n, d, k) -> ()>
#mask = affine_map<(b, m, n, d, k) -> (b, m, k)>
#r = affine_map<(b, m, n, d, k) -> (b, m, n)>

// 0.25 / ln 2 = 0.360673755; IREE multiplies queries by ln 2 · log2(e) = 1.
// CHECK-LABEL: util.func public @bf16(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<4x?x16xbf16>
// CHECK: %[[LN2:.+]] = arith.constant 0.693147182 : f32
// CHECK: iree_linalg_ext.attention {{.*}} ins(%[[Q]], %{{[a-z0-9]+}}, %{{[a-z0-9]+}}, %[[LN2]], %{{[a-z0-9]+}} : {{.*}}, f32, tensor<4x?x?xbf16>)
// CHECK-NEXT: ^bb0(%[[SCORE:.+]]: f32):
// CHECK-NEXT: %[[C:.+]] = arith.constant 0.360673755 : f32
// CHECK-NEXT: %[[SCALED:.+]] = arith.mulf %[[SCORE]], %[[C]] : f32
// CHECK-NEXT: iree_linalg_ext.yield %[[SCALED]] : f32
util.func @bf16(%q: tensor<4x?x16xbf16>, %k: tensor<4x?x16xbf16>, %v: tensor<4x?x16xbf16>, %m: tensor<4x?x?xbf16>,
                %o: tensor<4x?x16xbf16>) -> tensor<4x?x16xbf16> {
  %scale = arith.constant 0.25 : bf16
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #mask, #r]> ins(%q, %k, %v, %scale, %m : tensor<4x?x16xbf16>, tensor<4x?x16xbf16>, tensor<4x?x16xbf16>, bf16, tensor<4x?x?xbf16>) outs(%o : tensor<4x?x16xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x?x16xbf16>
  util.return %r : tensor<4x?x16xbf16>
}

// The usual scale, which is f32; and of f16.
// CHECK-LABEL: util.func public @f16(
// CHECK: arith.constant 0.693147182 : f32
// CHECK: arith.constant 0.127517432 : f32
util.func @f16(%q: tensor<4x7x128xf16>, %k: tensor<4x9x128xf16>, %v: tensor<4x9x128xf16>, %o: tensor<4x7x128xf16>) -> tensor<4x7x128xf16> {
  %scale = arith.constant 0.0883883461 : f32
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #r]> ins(%q, %k, %v, %scale : tensor<4x7x128xf16>, tensor<4x9x128xf16>, tensor<4x9x128xf16>, f32) outs(%o : tensor<4x7x128xf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x7x128xf16>
  util.return %r : tensor<4x7x128xf16>
}

// Queries of f32 lose nothing.
// CHECK-LABEL: util.func public @f32(
// CHECK-NOT: 0.693147182
// CHECK-NOT: arith.mulf
util.func @f32(%q: tensor<4x7x16xf32>, %k: tensor<4x9x16xf32>, %v: tensor<4x9x16xf32>, %o: tensor<4x7x16xf32>) -> tensor<4x7x16xf32> {
  %scale = arith.constant 0.25 : f32
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #r]> ins(%q, %k, %v, %scale : tensor<4x7x16xf32>, tensor<4x9x16xf32>, tensor<4x9x16xf32>, f32) outs(%o : tensor<4x7x16xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x7x16xf32>
  util.return %r : tensor<4x7x16xf32>
}

// A scale that is not known, and scores that become something else, which may not be proportional to them.
// CHECK-LABEL: util.func public @others(
// CHECK-NOT: 0.693147182
// CHECK-NOT: arith.mulf
util.func @others(%q: tensor<4x7x16xbf16>, %k: tensor<4x9x16xbf16>, %v: tensor<4x9x16xbf16>, %o: tensor<4x7x16xbf16>,
                  %given: bf16) -> (tensor<4x7x16xbf16>, tensor<4x7x16xbf16>) {
  %scale = arith.constant 0.25 : bf16
  %0 = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #r]> ins(%q, %k, %v, %given : tensor<4x7x16xbf16>, tensor<4x9x16xbf16>, tensor<4x9x16xbf16>, bf16) outs(%o : tensor<4x7x16xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x7x16xbf16>
  %1 = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #r]> ins(%q, %k, %v, %scale : tensor<4x7x16xbf16>, tensor<4x9x16xbf16>, tensor<4x9x16xbf16>, bf16) outs(%o : tensor<4x7x16xbf16>) {
  ^bb0(%score: f32):
    %capped = math.tanh %score : f32
    iree_linalg_ext.yield %capped : f32
  } -> tensor<4x7x16xbf16>
  util.return %0, %1 : tensor<4x7x16xbf16>, tensor<4x7x16xbf16>
}
