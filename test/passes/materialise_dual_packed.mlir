// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode,mxcomp-fuse-consumers,mxcomp-materialise)' | filecheck %s

// Two matmuls of many rows of one LHS, whose results meet: one dispatch, by a ukernel whose tile has columns of both.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>

util.global private @c : tensor<14336x128x32xf4E2M1FN>
util.global private @cs : tensor<14336x128xf8E8M0FNU>
util.global private @d : tensor<14336x128x32xf4E2M1FN>
util.global private @ds : tensor<14336x128xf8E8M0FNU>

// CHECK-LABEL: util.func public @pair(
// CHECK-COUNT-7: flow.dispatch.region
// CHECK: %[[BOTH:.+]]:2 = linalg.generic
// CHECK-SAME: ins({{.+}} : tensor<2x16x8x4096xi8>, tensor<2x16x8x256xi8>, tensor<112x8x8x4096xi8>, tensor<112x8x8x256xi8>, tensor<112x8x8x4096xi8>, tensor<112x8x8x256xi8>)
// CHECK-SAME: ukernel_descriptor<"mx_dual_f4E2M1FN_f4E2M1FN_f32_m256_n128_k512", tensor>
// CHECK: linalg.generic {{.+}} ins(%[[BOTH]]#{{[01]}}, %[[BOTH]]#{{[01]}} :
// CHECK: arith.mulf
// CHECK-NOT: flow.dispatch.region
// CHECK: util.return
util.func @pair(%a: tensor<512x128x32xf4E2M1FN>, %as: tensor<512x128xf8E8M0FNU>) -> tensor<512x14336xbf16> {
  %c = util.global.load @c : tensor<14336x128x32xf4E2M1FN>
  %cs = util.global.load @cs : tensor<14336x128xf8E8M0FNU>
  %d = util.global.load @d : tensor<14336x128x32xf4E2M1FN>
  %ds = util.global.load @ds : tensor<14336x128xf8E8M0FNU>
  %init = arith.constant dense<0.0> : tensor<512x14336xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %c, %as, %cs : tensor<512x128x32xf4E2M1FN>, tensor<14336x128x32xf4E2M1FN>, tensor<512x128xf8E8M0FNU>, tensor<14336x128xf8E8M0FNU>)
      outs(%init : tensor<512x14336xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %l = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %w = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %l, %w : f32
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  } -> tensor<512x14336xf32>
  %t = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %d, %as, %ds : tensor<512x128x32xf4E2M1FN>, tensor<14336x128x32xf4E2M1FN>, tensor<512x128xf8E8M0FNU>, tensor<14336x128xf8E8M0FNU>)
      outs(%init : tensor<512x14336xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %l = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %w = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %l, %w : f32
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  } -> tensor<512x14336xf32>
  %e = tensor.empty() : tensor<512x14336xbf16>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%r, %t : tensor<512x14336xf32>, tensor<512x14336xf32>) outs(%e : tensor<512x14336xbf16>) {
  ^bb0(%g: f32, %u: f32, %o: bf16):
    %p = arith.mulf %g, %u : f32
    %b = arith.truncf %p : f32 to bf16
    linalg.yield %b : bf16
  } -> tensor<512x14336xbf16>
  util.return %h : tensor<512x14336xbf16>
}

// One of the results is wanted by itself: both are computed apart.

// CHECK-LABEL: util.func public @also_wanted(
// CHECK-NOT: mx_dual
// CHECK: ukernel_descriptor<"mx_f4E2M1FN_f4E2M1FN_f32_m{{.+}}", tensor>
// CHECK-NOT: mx_dual
// CHECK: ukernel_descriptor<"mx_f4E2M1FN_f4E2M1FN_f32_m{{.+}}", tensor>
// CHECK: util.return
util.func @also_wanted(%a: tensor<512x128x32xf4E2M1FN>, %as: tensor<512x128xf8E8M0FNU>)
    -> (tensor<512x14336xbf16>, tensor<512x14336xf32>) {
  %c = util.global.load @c : tensor<14336x128x32xf4E2M1FN>
  %cs = util.global.load @cs : tensor<14336x128xf8E8M0FNU>
  %d = util.global.load @d : tensor<14336x128x32xf4E2M1FN>
  %ds = util.global.load @ds : tensor<14336x128xf8E8M0FNU>
  %init = arith.constant dense<0.0> : tensor<512x14336xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %c, %as, %cs : tensor<512x128x32xf4E2M1FN>, tensor<14336x128x32xf4E2M1FN>, tensor<512x128xf8E8M0FNU>, tensor<14336x128xf8E8M0FNU>)
      outs(%init : tensor<512x14336xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %l = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %w = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %l, %w : f32
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  } -> tensor<512x14336xf32>
  %t = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %d, %as, %ds : tensor<512x128x32xf4E2M1FN>, tensor<14336x128x32xf4E2M1FN>, tensor<512x128xf8E8M0FNU>, tensor<14336x128xf8E8M0FNU>)
      outs(%init : tensor<512x14336xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %l = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %w = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %l, %w : f32
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  } -> tensor<512x14336xf32>
  %e = tensor.empty() : tensor<512x14336xbf16>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%r, %t : tensor<512x14336xf32>, tensor<512x14336xf32>) outs(%e : tensor<512x14336xbf16>) {
  ^bb0(%g: f32, %u: f32, %o: bf16):
    %p = arith.mulf %g, %u : f32
    %b = arith.truncf %p : f32 to bf16
    linalg.yield %b : bf16
  } -> tensor<512x14336xbf16>
  util.return %h, %t : tensor<512x14336xbf16>, tensor<512x14336xf32>
}
