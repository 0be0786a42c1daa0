// The compiler crashes over attention of a single key. FoldUnitExtentDims drops the dimension of keys, of which
// setVectorDistributionConfig then reads the last one; so of bf16 and f16, and of a static batch. Pull request 24271 has
// it keep the dimensions of elements, for the same reason.
//
//     iree-compile double_keys.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o double_keys.vmfb
//
// stock: crashes: setVectorDistributionConfig

func.func @main(%q: tensor<?x33x16xf32>, %k: tensor<?x1x16xf32>, %v: tensor<?x1x16xf32>) -> tensor<?x33x16xf32> {
  %c0 = arith.constant 0 : index
  %scale = arith.constant 0.25 : f32
  %n = tensor.dim %q, %c0 : tensor<?x33x16xf32>
  %e = tensor.empty(%n) : tensor<?x33x16xf32>
  %r = iree_linalg_ext.attention <indexing_maps = [affine_map<(n, t, v, d, l) -> (n, t, d)>, affine_map<(n, t, v, d, l) -> (n, l, d)>,
      affine_map<(n, t, v, d, l) -> (n, l, v)>, affine_map<(n, t, v, d, l) -> ()>, affine_map<(n, t, v, d, l) -> (n, t, v)>]>
      ins(%q, %k, %v, %scale : tensor<?x33x16xf32>, tensor<?x1x16xf32>, tensor<?x1x16xf32>, f32) outs(%e : tensor<?x33x16xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<?x33x16xf32>
  return %r : tensor<?x33x16xf32>
}
