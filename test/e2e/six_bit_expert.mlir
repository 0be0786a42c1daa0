// One activation times an expert of a stack of 6-bit weights with two matrices side by side: left to IREE.
#a = affine_map<(b, m, n, k, l) -> (m, k, l)>
#b = affine_map<(b, m, n, k, l) -> (n, k, b, l)>
#as = affine_map<(b, m, n, k, l) -> (m, k)>
#bs = affine_map<(b, m, n, k, l) -> (n, k, b)>
#o = affine_map<(b, m, n, k, l) -> (b, m, n)>
func.func @main(%a8: tensor<1x128xi8>, %as8: tensor<1x4xi8>, %b8: tensor<3x32x4x2x24xi8>, %bs8: tensor<32x4x2xi8>) -> tensor<2x1x32xf32> {
  %a = iree_tensor_ext.bitcast %a8 : tensor<1x128xi8> -> tensor<1x4x32xf8E5M2>
  %as = iree_tensor_ext.bitcast %as8 : tensor<1x4xi8> -> tensor<1x4xf8E8M0FNU>
  %stack = iree_tensor_ext.bitcast %b8 : tensor<3x32x4x2x24xi8> -> tensor<3x32x4x2x32xf6E3M2FN>
  %b = tensor.extract_slice %stack[2, 0, 0, 0, 0] [1, 32, 4, 2, 32] [1, 1, 1, 1, 1]
    : tensor<3x32x4x2x32xf6E3M2FN> to tensor<32x4x2x32xf6E3M2FN>
  %bs = iree_tensor_ext.bitcast %bs8 : tensor<32x4x2xi8> -> tensor<32x4x2xf8E8M0FNU>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x1x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x1x32xf32>) -> tensor<2x1x32xf32>
  %r = linalg.generic {indexing_maps = [#a, #b, #as, #bs, #o],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<1x4x32xf8E5M2>, tensor<32x4x2x32xf6E3M2FN>, tensor<1x4xf8E8M0FNU>, tensor<32x4x2xf8E8M0FNU>)
      outs(%f : tensor<2x1x32xf32>) {
  ^bb0(%x: f8E5M2, %y: f6E3M2FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E5M2, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f6E3M2FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<2x1x32xf32>
  return %r : tensor<2x1x32xf32>
}
