// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode,mxcomp-fuse-consumers,mxcomp-materialise)' | filecheck %s
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{ukernels=none},mxcomp-fall-back)' | filecheck %s --check-prefix=LEFT

// bf16 activations as they are: more rows than a workgroup takes are in tiles, and of a dynamic M there is a kernel for each range.

#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#out = affine_map<(m, n, k) -> (m, n)>
#element = affine_map<(n, ko, kb) -> (n, ko, kb)>
#block = affine_map<(n, ko, kb) -> (n, ko)>

// Rows behind the last are those of the last.
// CHECK-LABEL: util.func public @in_tiles(
// CHECK-SAME: %[[X:.+]]: tensor<65x1024xbf16>
// CHECK: %[[BLOCKS:.+]] = iree_tensor_ext.bitcast %[[X]] : tensor<65x1024xbf16> -> tensor<65x32x32xbf16>
// CHECK: %[[WORDS:.+]] = iree_tensor_ext.bitcast %[[BLOCKS]] : tensor<65x32x32xbf16> -> tensor<65x512xi32>
// CHECK: %[[PADDED:.+]] = flow.dispatch.region -> (tensor<2x64x512xi32>) {
// CHECK: affine.min
// CHECK: tensor.extract %[[WORDS]][
// CHECK: %[[TILES:.+]] = iree_tensor_ext.bitcast %[[PADDED]] : tensor<2x64x512xi32> -> tensor<2x2048x16xi32>
// CHECK: flow.dispatch.region -> (tensor<65x64xf32>)
// CHECK: linalg.generic
// CHECK-SAME: iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "reduction",
// CHECK-SAME: ins(%[[TILES]], %{{.+}}, %{{.+}} : tensor<2x2048x16xi32>, tensor<{{.+}}x2x4x1024xi8>, tensor<{{.+}}x2x256xi8>)
// CHECK-SAME: outs(%{{.+}} : tensor<2x{{.+}}x4x4x16x4xf32>)
// CHECK-SAME: ukernel_descriptor<"mx_bf16_f4E2M1FN_f32_m64_n{{16|32|64}}_k512_tiled", tensor>

// Left to IREE, products are of bf16.
// LEFT-LABEL: util.func public @in_tiles(
// LEFT-SAME: %[[X:.+]]: tensor<65x1024xbf16>
// LEFT: arith.truncf %{{.+}} : f32 to bf16
// LEFT: linalg.generic
// LEFT-SAME: tensor<65x1024xbf16>, tensor<64x1024xbf16>)
// LEFT-SAME: reason = "left to IREE: activations are not quantised, and ukernels for that are not asked for"
util.func @in_tiles(%x: tensor<65x1024xbf16>, %w: tensor<64x32x32xf4E2M1FN>, %ws: tensor<64x32xf8E8M0FNU>) -> tensor<65x64xf32> {
  %e = tensor.empty() : tensor<64x32x32xbf16>
  %d = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %ws : tensor<64x32x32xf4E2M1FN>, tensor<64x32xf8E8M0FNU>) outs(%e : tensor<64x32x32xbf16>) {
  ^bb0(%i: f4E2M1FN, %s: f8E8M0FNU, %o: bf16):
    %v = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to bf16
    linalg.yield %v : bf16
  } -> tensor<64x32x32xbf16>
  %c = tensor.collapse_shape %d [[0], [1, 2]] : tensor<64x32x32xbf16> into tensor<64x1024xbf16>
  %init = arith.constant dense<0.0> : tensor<65x64xf32>
  %r = linalg.generic {indexing_maps = [#x, #w, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %c : tensor<65x1024xbf16>, tensor<64x1024xbf16>) outs(%init : tensor<65x64xf32>) {
  ^bb0(%a: bf16, %b: bf16, %acc: f32):
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %b : bf16 to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<65x64xf32>
  util.return %r : tensor<65x64xf32>
}

// Up to 64 rows are taken as they are.
// CHECK-LABEL: util.func public @any_rows(
// CHECK-SAME: %[[X:.+]]: tensor<?x1024xbf16>
// CHECK: %[[BLOCKS:.+]] = iree_tensor_ext.bitcast %[[X]] : tensor<?x1024xbf16>{%{{.+}}} -> tensor<?x32x32xbf16>
// CHECK: flow.dispatch.region -> (tensor<?x64x512xi32>{%{{.+}}})
// CHECK: ukernel_descriptor<"mx_bf16_f4E2M1FN_f32_m64_n{{16|32|64}}_k512_tiled", tensor>
// CHECK: %[[ROWS:.+]] = iree_tensor_ext.bitcast %[[BLOCKS]] : tensor<?x32x32xbf16>{%{{.+}}} -> tensor<?x16xi32>
// CHECK: ins(%[[ROWS]],
// CHECK-SAME: ukernel_descriptor<"mx_bf16_f4E2M1FN_f32_m64_n{{16|32|64}}_k512", tensor>
// CHECK: ukernel_descriptor<"mx_bf16_f4E2M1FN_f32_m32_n{{16|32|64}}_k512", tensor>
// CHECK: ukernel_descriptor<"mx_bf16_f4E2M1FN_f32_m16_n{{16|32|64}}_k512", tensor>
// CHECK-COUNT-3: arith.select {{.+}} {mxcomp.versions}
util.func @any_rows(%x: tensor<?x1024xbf16>, %w: tensor<64x32x32xf4E2M1FN>, %ws: tensor<64x32xf8E8M0FNU>) -> tensor<?x64xf32> {
  %e = tensor.empty() : tensor<64x32x32xbf16>
  %d = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %ws : tensor<64x32x32xf4E2M1FN>, tensor<64x32xf8E8M0FNU>) outs(%e : tensor<64x32x32xbf16>) {
  ^bb0(%i: f4E2M1FN, %s: f8E8M0FNU, %o: bf16):
    %v = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to bf16
    linalg.yield %v : bf16
  } -> tensor<64x32x32xbf16>
  %c = tensor.collapse_shape %d [[0], [1, 2]] : tensor<64x32x32xbf16> into tensor<64x1024xbf16>
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x1024xbf16>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty(%m) : tensor<?x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x64xf32>) -> tensor<?x64xf32>
  %r = linalg.generic {indexing_maps = [#x, #w, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %c : tensor<?x1024xbf16>, tensor<64x1024xbf16>) outs(%init : tensor<?x64xf32>) {
  ^bb0(%a: bf16, %b: bf16, %acc: f32):
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %b : bf16 to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<?x64xf32>
  util.return %r : tensor<?x64xf32>
}
