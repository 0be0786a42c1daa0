// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{fuse-quantisers=on},mxcomp-fuse-consumers,mxcomp-materialise)' | filecheck %s

// Gate, up, and a quantiser of what is made of both: one dispatch, whose results are the packed LHS of the product behind.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
#element = affine_map<(m, ko, kb) -> (m, ko, kb)>
#block = affine_map<(m, ko, kb) -> (m, ko)>
#id = affine_map<(m, n) -> (m, n)>

// CHECK: #[[PLACES:.+]] = affine_map<(d0, d1, d2, d3, d4, d5, {{.+}}) -> (d11 floordiv {{[0-9]+}}, d11 floordiv {{[0-9]+}}, d0, d2, d11 floordiv {{[0-9]+}}, d5, d1)>
// CHECK-LABEL: util.func public @mlp(
// CHECK: %[[BOTH:.+]]:2 = flow.dispatch.region -> (tensor<1x1x2x4x4x1x1x16x16xi8>, tensor<1x1x2x4x1x16x4xi8>) {
// CHECK: linalg.generic
// CHECK-SAME: #[[PLACES]]], iterator_types
// CHECK-SAME: tensor<4096xi8>, tensor<256xi8>, tensor<262144xi8>, tensor<16384xi8>, tensor<262144xi8>, tensor<16384xi8>)
// CHECK-SAME: ukernel_descriptor<"mx_packed_hidden_f4E2M1FN_f4E2M1FN_f32_m16_n32_k512_{{.+}}", tensor>
// CHECK: iree_tensor_ext.bitcast %[[BOTH]]#0 : tensor<1x1x2x4x4x1x1x16x16xi8> -> tensor<1x1x2x1x4x4x16x16xi8>
// CHECK-NEXT: iree_tensor_ext.bitcast %[[BOTH]]#1 : tensor<1x1x2x4x1x16x4xi8> -> tensor<1x1x2x4x16x4xf8E8M0FNU>
// CHECK-NOT: arith.scaling_truncf
// CHECK: iree_codegen.inner_tiled
// CHECK-NOT: arith.scaling_truncf
// CHECK: util.return
util.func @mlp(%a: tensor<16x16x32xf4E2M1FN>, %as: tensor<16x16xf8E8M0FNU>,
               %c: tensor<1024x16x32xf4E2M1FN>, %cs: tensor<1024x16xf8E8M0FNU>,
               %d: tensor<1024x16x32xf4E2M1FN>, %ds: tensor<1024x16xf8E8M0FNU>,
               %w: tensor<96x32x32xf4E2M1FN>, %ws: tensor<96x32xf8E8M0FNU>) -> tensor<16x96xf32> {
  %zero = arith.constant 0.0 : f32
  %init = arith.constant dense<0.0> : tensor<16x1024xf32>
  %g = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %c, %as, %cs : tensor<16x16x32xf4E2M1FN>, tensor<1024x16x32xf4E2M1FN>, tensor<16x16xf8E8M0FNU>, tensor<1024x16xf8E8M0FNU>)
      outs(%init : tensor<16x1024xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %l = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %r = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  } -> tensor<16x1024xf32>
  %u = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %d, %as, %ds : tensor<16x16x32xf4E2M1FN>, tensor<1024x16x32xf4E2M1FN>, tensor<16x16xf8E8M0FNU>, tensor<1024x16xf8E8M0FNU>)
      outs(%init : tensor<16x1024xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %l = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %r = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  } -> tensor<16x1024xf32>
  %e = tensor.empty() : tensor<16x1024xbf16>
  %h = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<16x1024xf32>, tensor<16x1024xf32>) outs(%e : tensor<16x1024xbf16>) {
  ^bb0(%x: f32, %y: f32, %o: bf16):
    %p = arith.mulf %x, %y : f32
    %b = arith.truncf %p : f32 to bf16
    linalg.yield %b : bf16
  } -> tensor<16x1024xbf16>
  %z = tensor.expand_shape %h [[0], [1, 2]] output_shape [16, 32, 32] : tensor<16x1024xbf16> into tensor<16x32x32xbf16>
  %me = tensor.empty() : tensor<16x32xf32>
  %mi = linalg.fill ins(%zero : f32) outs(%me : tensor<16x32xf32>) -> tensor<16x32xf32>
  %max = linalg.generic {indexing_maps = [#element, #block], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%z : tensor<16x32x32xbf16>) outs(%mi : tensor<16x32xf32>) {
  ^bb0(%i: bf16, %o: f32):
    %f = arith.extf %i : bf16 to f32
    %abs = math.absf %f : f32
    %m = arith.maximumf %abs, %o : f32
    linalg.yield %m : f32
  } -> tensor<16x32xf32>
  %se = tensor.empty() : tensor<16x32xf8E8M0FNU>
  %hs = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%max : tensor<16x32xf32>) outs(%se : tensor<16x32xf8E8M0FNU>) {
  ^bb0(%m: f32, %o: f8E8M0FNU):
    %t = arith.truncf %m : f32 to f8E8M0FNU
    linalg.yield %t : f8E8M0FNU
  } -> tensor<16x32xf8E8M0FNU>
  %qe = tensor.empty() : tensor<16x32x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%z, %hs : tensor<16x32x32xbf16>, tensor<16x32xf8E8M0FNU>) outs(%qe : tensor<16x32x32xf4E2M1FN>) {
  ^bb0(%i: bf16, %s: f8E8M0FNU, %o: f4E2M1FN):
    %f = arith.extf %i : bf16 to f32
    %t = arith.scaling_truncf %f, %s : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<16x32x32xf4E2M1FN>
  %init2 = arith.constant dense<0.0> : tensor<16x96xf32>
  %y = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%q, %w, %hs, %ws : tensor<16x32x32xf4E2M1FN>, tensor<96x32x32xf4E2M1FN>, tensor<16x32xf8E8M0FNU>, tensor<96x32xf8E8M0FNU>)
      outs(%init2 : tensor<16x96xf32>) {
  ^bb0(%x: f4E2M1FN, %v: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %l = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %r = arith.scaling_extf %v, %ys : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  } -> tensor<16x96xf32>
  util.return %y : tensor<16x96xf32>
}
