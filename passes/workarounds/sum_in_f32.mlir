// A contraction that rounds each product to 16 bits cannot be distributed to threads. A contraction whose body rounds
// each product to bf16 and adds in bf16, as exporters write a matmul of bf16 by parts. One that adds in f32 and rounds
// the sum compiles.
//
//     error: 'func.func' op failed to distribute
//
//     iree-compile sum_in_f32.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o sum_in_f32.vmfb
//
// stock: refuses: op failed to distribute
// left: Contractions of which no operand is dequantised.

func.func @main(%a: tensor<2x16x64xf32>, %b: tensor<16x2x2x32xf8E4M3FN>, %bs: tensor<16x2x2xf8E8M0FNU>) -> tensor<16x2x16xbf16> {
  %scaled = tensor.empty() : tensor<16x2x2x32xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>,
                                        affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>],
                       iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%b, %bs : tensor<16x2x2x32xf8E4M3FN>, tensor<16x2x2xf8E8M0FNU>) outs(%scaled : tensor<16x2x2x32xf32>) {
  ^bb0(%x: f8E4M3FN, %xs: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FN, f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> tensor<16x2x2x32xf32>
  %f = tensor.collapse_shape %d [[0], [1], [2, 3]] : tensor<16x2x2x32xf32> into tensor<16x2x64xf32>
  %init = arith.constant dense<0.0> : tensor<16x2x16xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(n, b, m, k) -> (b, m, k)>, affine_map<(n, b, m, k) -> (n, b, k)>,
                                        affine_map<(n, b, m, k) -> (n, b, m)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%a, %f : tensor<2x16x64xf32>, tensor<16x2x64xf32>) outs(%init : tensor<16x2x16xbf16>) {
  ^bb0(%x: f32, %y: f32, %acc: bf16):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    %2 = arith.addf %acc, %1 : bf16
    linalg.yield %2 : bf16
  } -> tensor<16x2x16xbf16>
  return %r : tensor<16x2x16xbf16>
}
