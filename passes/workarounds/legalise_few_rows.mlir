// The compiler crashes over products of 1 to 8 rows of 16-bit floats. A division by zero in
// getXorShuffleParamsForTunedChipset, for bf16 and f16 where K is a multiple of 128: any router or head of a model with
// a few sequences.
//
//     iree-compile legalise_few_rows.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o legalise_few_rows.vmfb
//
// stock: crashes: getXorShuffleParamsForTunedChipset

func.func @main(%x: tensor<4x512xbf16>, %w: tensor<512x32xbf16>) -> tensor<4x32xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x32xf32>) -> tensor<4x32xf32>
  %r = linalg.matmul ins(%x, %w : tensor<4x512xbf16>, tensor<512x32xbf16>) outs(%f : tensor<4x32xf32>) -> tensor<4x32xf32>
  return %r : tensor<4x32xf32>
}
