// Attention rounds its queries once more, after it has scaled them. Queries of bf16 are multiplied by scale * log2(e)
// and rounded to bf16 in front of the first product. The scores here are 100 and 92, the second value is 1 and the
// first 0: expected is 1 / (1 + e^8) = 3.3535e-4, in bf16 3.357e-4; observed is 3.300e-4, as log2(e) is rounded.
// Multiplied into the scores, which are f32, it would be exact.
//
//     iree-compile scale_scores.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o scale_scores.vmfb
//     iree-run-module --device=hip --module=scale_scores.vmfb --input=1x1x16xbf16=1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0 --input=1x2x16xbf16=100,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,92,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0 --input=1x2x16xbf16=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1 --expected_output=1x1x16xbf16=0.00033535013046647816
//
// stock: computes

func.func @main(%q: tensor<1x1x16xbf16>, %k: tensor<1x2x16xbf16>, %v: tensor<1x2x16xbf16>) -> tensor<1x1x16xbf16> {
  %scale = arith.constant 1.0 : bf16
  %e = tensor.empty() : tensor<1x1x16xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [affine_map<(b, m, n, d, k) -> (b, m, d)>, affine_map<(b, m, n, d, k) -> (b, k, d)>,
      affine_map<(b, m, n, d, k) -> (b, k, n)>, affine_map<(b, m, n, d, k) -> ()>, affine_map<(b, m, n, d, k) -> (b, m, n)>]>
      ins(%q, %k, %v, %scale : tensor<1x1x16xbf16>, tensor<1x2x16xbf16>, tensor<1x2x16xbf16>, bf16) outs(%e : tensor<1x1x16xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<1x1x16xbf16>
  return %r : tensor<1x1x16xbf16>
}
