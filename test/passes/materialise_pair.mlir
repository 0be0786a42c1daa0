// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode,mxcomp-fuse-consumers,mxcomp-materialise)' | filecheck %s

// Two matmuls of activations that are quantised, whose results meet: one dispatch, by a ukernel with two results.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
#element = affine_map<(m, ko, kb) -> (m, ko, kb)>
#block = affine_map<(m, ko, kb) -> (m, ko)>
#blocks = affine_map<(m, ko) -> (m, ko)>
#out2 = affine_map<(m, n) -> (m, n)>

// CHECK-LABEL: util.func public @pair(
// CHECK-SAME: %[[X:.+]]: tensor<4x1024xbf16>
// CHECK-COUNT-4: flow.dispatch.region
// CHECK: flow.dispatch.region -> (tensor<4x256xbf16>)
// CHECK: %[[BOTH:.+]]:2 = linalg.generic
// CHECK-SAME: ins(%{{[^, ]+}}, %{{[^, ]+}}, %{{[^, ]+}}, %{{[^, ]+}}, %{{[^, ]+}} : tensor<128x16xi32>, tensor<16x2x4x1024xi8>, tensor<16x2x256xi8>, tensor<16x2x4x1024xi8>, tensor<16x2x256xi8>)
// CHECK-SAME: ukernel_descriptor<"mx_fused_quant16_{{(once_)?}}dual_f4E2M1FN_f4E2M1FN_f32_m16_n{{16|32}}_k512", tensor>
// CHECK: tensor.expand_shape %[[BOTH]]#0
// CHECK: tensor.expand_shape %[[BOTH]]#1
// CHECK: arith.mulf
// CHECK-NOT: flow.dispatch.region
// CHECK: util.return
util.func @pair(%x: tensor<4x1024xbf16>, %c: tensor<256x32x32xf4E2M1FN>, %cs: tensor<256x32xf8E8M0FNU>,
                    %d: tensor<256x32x32xf4E2M1FN>, %ds: tensor<256x32xf8E8M0FNU>) -> tensor<4x256xbf16> {
  %z = tensor.expand_shape %x [[0], [1, 2]] output_shape [4, 32, 32] : tensor<4x1024xbf16> into tensor<4x32x32xbf16>
  %zero = arith.constant 0.0 : f32
  %me = tensor.empty() : tensor<4x32xf32>
  %mi = linalg.fill ins(%zero : f32) outs(%me : tensor<4x32xf32>) -> tensor<4x32xf32>
  %max = linalg.generic {indexing_maps = [#element, #block], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%z : tensor<4x32x32xbf16>) outs(%mi : tensor<4x32xf32>) {
  ^bb0(%i: bf16, %o: f32):
    %f = arith.extf %i : bf16 to f32
    %abs = math.absf %f : f32
    %m = arith.maximumf %abs, %o : f32
    linalg.yield %m : f32
  } -> tensor<4x32xf32>
  %se = tensor.empty() : tensor<4x32xf8E8M0FNU>
  %hs = linalg.generic {indexing_maps = [#blocks, #blocks], iterator_types = ["parallel", "parallel"]}
      ins(%max : tensor<4x32xf32>) outs(%se : tensor<4x32xf8E8M0FNU>) {
  ^bb0(%i: f32, %o: f8E8M0FNU):
    %four = arith.constant 4.0 : f32
    %q = arith.divf %i, %four : f32
    %s = arith.truncf %q : f32 to f8E8M0FNU
    linalg.yield %s : f8E8M0FNU
  } -> tensor<4x32xf8E8M0FNU>
  %qe = tensor.empty() : tensor<4x32x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%z, %hs : tensor<4x32x32xbf16>, tensor<4x32xf8E8M0FNU>) outs(%qe : tensor<4x32x32xf4E2M1FN>) {
  ^bb0(%i: bf16, %s: f8E8M0FNU, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %s : bf16, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<4x32x32xf4E2M1FN>
  %init2 = arith.constant dense<0.0> : tensor<4x256xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%q, %c, %hs, %cs : tensor<4x32x32xf4E2M1FN>, tensor<256x32x32xf4E2M1FN>, tensor<4x32xf8E8M0FNU>, tensor<256x32xf8E8M0FNU>)
      outs(%init2 : tensor<4x256xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %s: f8E8M0FNU, %t: f8E8M0FNU, %acc: f32):
    %u = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to f32
    %v = arith.scaling_extf %j, %t : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<4x256xf32>
  %w = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%q, %d, %hs, %ds : tensor<4x32x32xf4E2M1FN>, tensor<256x32x32xf4E2M1FN>, tensor<4x32xf8E8M0FNU>, tensor<256x32xf8E8M0FNU>)
      outs(%init2 : tensor<4x256xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %s: f8E8M0FNU, %t: f8E8M0FNU, %acc: f32):
    %u = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to f32
    %v = arith.scaling_extf %j, %t : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<4x256xf32>
  %e = tensor.empty() : tensor<4x256xbf16>
  %h = linalg.generic {indexing_maps = [#out2, #out2, #out2], iterator_types = ["parallel", "parallel"]}
      ins(%r, %w : tensor<4x256xf32>, tensor<4x256xf32>) outs(%e : tensor<4x256xbf16>) {
  ^bb0(%i: f32, %j: f32, %o: bf16):
    %p = arith.mulf %i, %j : f32
    %t = arith.truncf %p : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<4x256xbf16>
  util.return %h : tensor<4x256xbf16>
}

// What reads one of the results besides keeps them apart.
// CHECK-LABEL: util.func public @also_alone(
// CHECK-NOT: mx_fused_quant16_{{(once_)?}}dual
// CHECK-COUNT-2: mx_fused_quant16_{{(once_)?}}f4E2M1FN_f4E2M1FN
// CHECK: util.return
util.func @also_alone(%x: tensor<4x1024xbf16>, %c: tensor<256x32x32xf4E2M1FN>, %cs: tensor<256x32xf8E8M0FNU>,
                    %d: tensor<256x32x32xf4E2M1FN>, %ds: tensor<256x32xf8E8M0FNU>) -> (tensor<4x256xbf16>, tensor<4x256xf32>) {
  %z = tensor.expand_shape %x [[0], [1, 2]] output_shape [4, 32, 32] : tensor<4x1024xbf16> into tensor<4x32x32xbf16>
  %zero = arith.constant 0.0 : f32
  %me = tensor.empty() : tensor<4x32xf32>
  %mi = linalg.fill ins(%zero : f32) outs(%me : tensor<4x32xf32>) -> tensor<4x32xf32>
  %max = linalg.generic {indexing_maps = [#element, #block], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%z : tensor<4x32x32xbf16>) outs(%mi : tensor<4x32xf32>) {
  ^bb0(%i: bf16, %o: f32):
    %f = arith.extf %i : bf16 to f32
    %abs = math.absf %f : f32
    %m = arith.maximumf %abs, %o : f32
    linalg.yield %m : f32
  } -> tensor<4x32xf32>
  %se = tensor.empty() : tensor<4x32xf8E8M0FNU>
  %hs = linalg.generic {indexing_maps = [#blocks, #blocks], iterator_types = ["parallel", "parallel"]}
      ins(%max : tensor<4x32xf32>) outs(%se : tensor<4x32xf8E8M0FNU>) {
  ^bb0(%i: f32, %o: f8E8M0FNU):
    %four = arith.constant 4.0 : f32
    %q = arith.divf %i, %four : f32
    %s = arith.truncf %q : f32 to f8E8M0FNU
    linalg.yield %s : f8E8M0FNU
  } -> tensor<4x32xf8E8M0FNU>
  %qe = tensor.empty() : tensor<4x32x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%z, %hs : tensor<4x32x32xbf16>, tensor<4x32xf8E8M0FNU>) outs(%qe : tensor<4x32x32xf4E2M1FN>) {
  ^bb0(%i: bf16, %s: f8E8M0FNU, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %s : bf16, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<4x32x32xf4E2M1FN>
  %init2 = arith.constant dense<0.0> : tensor<4x256xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%q, %c, %hs, %cs : tensor<4x32x32xf4E2M1FN>, tensor<256x32x32xf4E2M1FN>, tensor<4x32xf8E8M0FNU>, tensor<256x32xf8E8M0FNU>)
      outs(%init2 : tensor<4x256xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %s: f8E8M0FNU, %t: f8E8M0FNU, %acc: f32):
    %u = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to f32
    %v = arith.scaling_extf %j, %t : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<4x256xf32>
  %w = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%q, %d, %hs, %ds : tensor<4x32x32xf4E2M1FN>, tensor<256x32x32xf4E2M1FN>, tensor<4x32xf8E8M0FNU>, tensor<256x32xf8E8M0FNU>)
      outs(%init2 : tensor<4x256xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %s: f8E8M0FNU, %t: f8E8M0FNU, %acc: f32):
    %u = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to f32
    %v = arith.scaling_extf %j, %t : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<4x256xf32>
  %e = tensor.empty() : tensor<4x256xbf16>
  %h = linalg.generic {indexing_maps = [#out2, #out2, #out2], iterator_types = ["parallel", "parallel"]}
      ins(%r, %w : tensor<4x256xf32>, tensor<4x256xf32>) outs(%e : tensor<4x256xbf16>) {
  ^bb0(%i: f32, %j: f32, %o: bf16):
    %p = arith.mulf %i, %j : f32
    %t = arith.truncf %p : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<4x256xbf16>
  util.return %h, %w : tensor<4x256xbf16>, tensor<4x256xf32>
}
