// A slice of what is computed from a product moves in front of it, and its kernel cannot be distributed. It stands behind
// the conversion of the RHS then, in the dispatch of the product: no tile of that is read by one of these, and what the
// kernel stores is left for one workgroup. It compiles where the slice begins at [0, 0], where the RHS is no bitcast of
// bytes, and where the slice is taken of the product itself.
//
//     error: 'vector.transfer_write' op write affecting operations on global resources are restricted to workgroup distributed contexts.
//     error: 'func.func' op failed on workgroup distribution verification
//
//     iree-compile keep_slices_behind.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o keep_slices_behind.vmfb
//
// stock: refuses: failed on workgroup distribution verification
// left: Products that are no scaled matmuls.

#mn = affine_map<(m, n) -> (m, n)>
func.func @main(%a: tensor<8x64xf32>, %b: tensor<32x2x32xi8>) -> tensor<5x16xf32> {
  %c = iree_tensor_ext.bitcast %b : tensor<32x2x32xi8> -> tensor<32x2x32xf8E4M3FN>
  %d = tensor.collapse_shape %c [[0], [1, 2]] : tensor<32x2x32xf8E4M3FN> into tensor<32x64xf8E4M3FN>
  %we = tensor.empty() : tensor<32x64xf32>
  %w = linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<32x64xf8E4M3FN>) outs(%we : tensor<32x64xf32>) {
  ^bb0(%x: f8E4M3FN, %o: f32):
    %0 = arith.extf %x : f8E4M3FN to f32
    linalg.yield %0 : f32
  } -> tensor<32x64xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x32xf32>) -> tensor<8x32xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %w : tensor<8x64xf32>, tensor<32x64xf32>) outs(%f : tensor<8x32xf32>) {
  ^bb0(%x: f32, %y: f32, %acc: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %acc, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x32xf32>
  %g = linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]}
      ins(%r : tensor<8x32xf32>) outs(%e : tensor<8x32xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = arith.negf %x : f32
    linalg.yield %0 : f32
  } -> tensor<8x32xf32>
  %s = tensor.extract_slice %g[1, 1] [5, 16] [1, 1] : tensor<8x32xf32> to tensor<5x16xf32>
  return %s : tensor<5x16xf32>
}
