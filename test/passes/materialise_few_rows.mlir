// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode,mxcomp-fuse-consumers,mxcomp-materialise)' | filecheck %s
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{ukernels=benefit},mxcomp-fuse-consumers,mxcomp-materialise)' | filecheck %s --check-prefix=BENEFIT

// Few rows that are quantised from activations: the ukernel does it, in the model's arithmetic, which the matmul brings.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
#element = affine_map<(m, ko, kb) -> (m, ko, kb)>
#block = affine_map<(m, ko, kb) -> (m, ko)>
#blocks = affine_map<(m, ko) -> (m, ko)>

// CHECK-LABEL: util.func public @few_rows(
// CHECK-SAME: %[[X:.+]]: tensor<4x1024xbf16>
// CHECK-COUNT-2: flow.dispatch.region
// CHECK: %[[WORDS:.+]] = iree_tensor_ext.bitcast %[[X]] : tensor<4x1024xbf16> -> tensor<128x16xi32>
// CHECK: flow.dispatch.region -> (tensor<4x256xf32>)
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[WORDS]], %{{.+}}, %{{.+}} : tensor<128x16xi32>, tensor<16x2x4x1024xi8>, tensor<16x2x256xi8>)
// CHECK-SAME: ukernel_descriptor<"mx_fused_quant16_{{(once_)?}}f4E2M1FN_f4E2M1FN_f32_m16_n{{16|32|64}}_k512", tensor>
// CHECK-SAME: mxcomp.quantiser = "{{.*}}func.func @quantise{{.*}}rocdl.cvt.scalef32.pk.fp4.bf16
// CHECK-NOT: arith.scaling_truncf
// CHECK: util.return

// What is chosen by the ukernels' own rules has a dispatch of its own for that.
// BENEFIT-LABEL: util.func public @few_rows(
// BENEFIT-NOT: mxcomp.quantiser
// BENEFIT: flow.dispatch.region -> (tensor<{{.*}}xf4E2M1FN>, tensor<{{.*}}xf8E8M0FNU>)
util.func @few_rows(%x: tensor<4x1024xbf16>, %c: tensor<256x32x32xf4E2M1FN>, %cs: tensor<256x32xf8E8M0FNU>) -> tensor<4x256xf32> {
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
  util.return %r : tensor<4x256xf32>
}
