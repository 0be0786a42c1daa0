// Subscripts that are 0 are taken for loops where a transposition moves across an operation. What decides whether it may
// (isIndexingMapAffectedByTransposeMap in TransposePropagationPatterns.cpp) casts each result of an indexing map to
// AffineDimExpr; of a constant, "position" is memory that nothing was written to, and is then an index into an array.
// Often it happens to be 0. Where glibc fills new memory with another byte, the compiler crashes.
//
//     MALLOC_PERTURB_=85 iree-compile legalise_zeros.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o legalise_zeros.vmfb
//
// stock: crashes: getSingleTransposedInputOperand
// fill: 85

func.func @main(%x: tensor<8x16xf32>, %b: tensor<5x16xf32>) -> tensor<16x8xf32> {
  %g = tensor.empty() : tensor<16x8xf32>
  %t = linalg.transpose ins(%x : tensor<8x16xf32>) outs(%g : tensor<16x8xf32>) permutation = [1, 0]
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (0, m)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%t, %b : tensor<16x8xf32>, tensor<5x16xf32>) outs(%g : tensor<16x8xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %0 = arith.addf %i, %j : f32
    linalg.yield %0 : f32
  } -> tensor<16x8xf32>
  return %r : tensor<16x8xf32>
}
