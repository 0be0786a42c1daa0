// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-inline-calls,mxcomp-group-experts)' | filecheck %s

// A sum over 16 experts, weighted by a matrix that is zero but for the two of a token's top-k: the product is one of 10
// blocks of 2 rows, with the weights of the expert of each, and the sum is over a token's two choices.

#te = affine_map<(t, e) -> (t, e)>
#x = affine_map<(e, t, n, ko, kb) -> (t, ko, kb)>
#w = affine_map<(e, t, n, ko, kb) -> (e, n, ko, kb)>
#x_scale = affine_map<(e, t, n, ko, kb) -> (t, ko)>
#w_scale = affine_map<(e, t, n, ko, kb) -> (e, n, ko)>
#product = affine_map<(e, t, n, ko, kb) -> (e, t, n)>

// CHECK-LABEL: func.func @top_k(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<5x2x32xf4E2M1FN>, %{{.+}}: tensor<5x2xf8E8M0FNU>, %[[W:[a-z0-9]+]]: tensor<16x64x2x32xf4E2M1FN>
// CHECK: iree_linalg_ext.sort
// CHECK: %[[IDS:.+]] = tensor.extract_slice {{.*}} tensor<5x16xi64> to tensor<5x2xi64>
// CHECK: linalg.generic {{.*}} ins(%[[IDS]] : tensor<5x2xi64>) outs(%{{.+}} : tensor<5x2xi32>)
// CHECK: iree_tensor_ext.bitcast %[[X]] : tensor<5x2x32xf4E2M1FN> -> tensor<5x2x16xi8>
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<10x2x2x16xi8>)
// CHECK: %[[WB:.+]] = iree_tensor_ext.bitcast %[[W]]
// CHECK: tensor.extract %[[WB]]
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<10x2x64xf32>)
// CHECK: arith.scaling_extf
// Nothing is read of blocks without an expert.
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<10x2x64xf32>)
// CHECK: arith.cmpi sge
// CHECK: arith.select
// CHECK: %[[FLAT:.+]] = tensor.collapse_shape %{{.+}} {{\[\[}}0, 1], [2]] : tensor<10x2x64xf32> into tensor<20x64xf32>
// CHECK: linalg.generic {{.*}} ["parallel", "parallel", "reduction"]
// CHECK: tensor.extract %[[FLAT]]
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK-NOT: 16x5x64
// CHECK: return

// Ids that are given may be the same ones.
// CHECK-LABEL: func.func @given(
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<16x5x64xf32>)
// CHECK-NOT: tensor<10x

func.func @top_k(%x: tensor<5x2x32xf4E2M1FN>, %xs: tensor<5x2xf8E8M0FNU>, %w: tensor<16x64x2x32xf4E2M1FN>,
    %ws: tensor<16x64x2xf8E8M0FNU>, %logits: tensor<5x16xf32>) -> tensor<5x64xf32> {
  %ne = tensor.empty() : tensor<5x16xi64>
  %numbers = linalg.generic {indexing_maps = [#te], iterator_types = ["parallel", "parallel"]} outs(%ne : tensor<5x16xi64>) {
  ^bb0(%o: i64):
    %e = linalg.index 1 : index
    %i = arith.index_cast %e : index to i64
    linalg.yield %i : i64
  } -> tensor<5x16xi64>
  %sorted:2 = iree_linalg_ext.sort dimension(1) outs(%logits, %numbers : tensor<5x16xf32>, tensor<5x16xi64>) {
  ^bb0(%a: f32, %b: f32, %i: i64, %j: i64):
    %before = arith.cmpf oge, %a, %b : f32
    iree_linalg_ext.yield %before : i1
  } -> tensor<5x16xf32>, tensor<5x16xi64>
  %shares = tensor.extract_slice %sorted#0[0, 0] [5, 2] [1, 1] : tensor<5x16xf32> to tensor<5x2xf32>
  %ids = tensor.extract_slice %sorted#1[0, 0] [5, 2] [1, 1] : tensor<5x16xi64> to tensor<5x2xi64>
  %y = func.call @all(%x, %xs, %w, %ws, %ids, %shares) : (tensor<5x2x32xf4E2M1FN>, tensor<5x2xf8E8M0FNU>,
    tensor<16x64x2x32xf4E2M1FN>, tensor<16x64x2xf8E8M0FNU>, tensor<5x2xi64>, tensor<5x2xf32>) -> tensor<5x64xf32>
  return %y : tensor<5x64xf32>
}

func.func @given(%x: tensor<5x2x32xf4E2M1FN>, %xs: tensor<5x2xf8E8M0FNU>, %w: tensor<16x64x2x32xf4E2M1FN>,
    %ws: tensor<16x64x2xf8E8M0FNU>, %ids: tensor<5x2xi64>, %shares: tensor<5x2xf32>) -> tensor<5x64xf32> {
  %y = func.call @all(%x, %xs, %w, %ws, %ids, %shares) : (tensor<5x2x32xf4E2M1FN>, tensor<5x2xf8E8M0FNU>,
    tensor<16x64x2x32xf4E2M1FN>, tensor<16x64x2xf8E8M0FNU>, tensor<5x2xi64>, tensor<5x2xf32>) -> tensor<5x64xf32>
  return %y : tensor<5x64xf32>
}

func.func private @all(%x: tensor<5x2x32xf4E2M1FN>, %xs: tensor<5x2xf8E8M0FNU>, %w: tensor<16x64x2x32xf4E2M1FN>,
    %ws: tensor<16x64x2xf8E8M0FNU>, %ids: tensor<5x2xi64>, %shares: tensor<5x2xf32>) -> tensor<5x64xf32> {
  %zero = arith.constant 0.0 : f32
  %re = tensor.empty() : tensor<5x16xf32>
  %rz = linalg.fill ins(%zero : f32) outs(%re : tensor<5x16xf32>) -> tensor<5x16xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(t, e, j) -> (t, j)>, affine_map<(t, e, j) -> (t, j)>,
                                        affine_map<(t, e, j) -> (t, e)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%ids, %shares : tensor<5x2xi64>, tensor<5x2xf32>) outs(%rz : tensor<5x16xf32>) {
  ^bb0(%id: i64, %share: f32, %acc: f32):
    %e = linalg.index 1 : index
    %i = arith.index_cast %e : index to i64
    %is = arith.cmpi eq, %id, %i : i64
    %s = arith.select %is, %share, %zero : f32
    %n = arith.addf %acc, %s : f32
    linalg.yield %n : f32
  } -> tensor<5x16xf32>
  %pe = tensor.empty() : tensor<16x5x64xf32>
  %pz = linalg.fill ins(%zero : f32) outs(%pe : tensor<16x5x64xf32>) -> tensor<16x5x64xf32>
  %p = linalg.generic {indexing_maps = [#x, #w, #x_scale, #w_scale, #product],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w, %xs, %ws : tensor<5x2x32xf4E2M1FN>, tensor<16x64x2x32xf4E2M1FN>, tensor<5x2xf8E8M0FNU>,
                             tensor<16x64x2xf8E8M0FNU>)
      outs(%pz : tensor<16x5x64xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<16x5x64xf32>
  %ye = tensor.empty() : tensor<5x64xf32>
  %yz = linalg.fill ins(%zero : f32) outs(%ye : tensor<5x64xf32>) -> tensor<5x64xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(t, h, e) -> (e, t, h)>, affine_map<(t, h, e) -> (t, e)>,
                                        affine_map<(t, h, e) -> (t, h)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %r : tensor<16x5x64xf32>, tensor<5x16xf32>) outs(%yz : tensor<5x64xf32>) {
  ^bb0(%v: f32, %share: f32, %acc: f32):
    %0 = arith.mulf %v, %share : f32
    %1 = arith.addf %acc, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<5x64xf32>
  return %y : tensor<5x64xf32>
}

// What is summed is returned as well: it stays.
// CHECK-LABEL: func.func @summed_twice(
// CHECK-COUNT-2: linalg.generic
// CHECK-NOT: linalg.generic
func.func @summed_twice(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<4x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %pe = tensor.empty() : tensor<4x8xf32>
  %p = linalg.generic {indexing_maps = [#te, #te, #te], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<4x8xf32>, tensor<4x8xf32>) outs(%pe : tensor<4x8xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.mulf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  %se = tensor.empty() : tensor<4xf32>
  %sz = linalg.fill ins(%zero : f32) outs(%se : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.generic {indexing_maps = [#te, affine_map<(t, e) -> (t)>], iterator_types = ["parallel", "reduction"]}
      ins(%p : tensor<4x8xf32>) outs(%sz : tensor<4xf32>) {
  ^bb0(%x: f32, %acc: f32):
    %0 = arith.addf %acc, %x : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  return %s, %p : tensor<4xf32>, tensor<4x8xf32>
}

// A convolution along one axis, and a sum of squares of what is extended, are no sums over experts.
// CHECK-LABEL: func.func @convolved(
// CHECK: linalg.depthwise_conv_1d_nwc_wc
func.func @convolved(%x: tensor<1x10x16xf32>, %w: tensor<4x16xf32>, %out: tensor<1x7x16xf32>) -> tensor<1x7x16xf32> {
  %y = linalg.depthwise_conv_1d_nwc_wc ins(%x, %w : tensor<1x10x16xf32>, tensor<4x16xf32>)
      outs(%out : tensor<1x7x16xf32>) -> tensor<1x7x16xf32>
  return %y : tensor<1x7x16xf32>
}

// CHECK-LABEL: func.func @squared(
// CHECK-COUNT-2: linalg.generic
func.func @squared(%x: tensor<4x8xbf16>, %out: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  %wide = linalg.generic {indexing_maps = [#te, #te], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xbf16>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  %s = linalg.generic {indexing_maps = [#te, affine_map<(t, e) -> (t)>], iterator_types = ["parallel", "reduction"]}
      ins(%wide : tensor<4x8xf32>) outs(%out : tensor<4xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %acc, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  return %s : tensor<4xf32>
}
