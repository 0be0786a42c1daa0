// Elements of less than a byte cannot be joined along an inner dimension. The concatenation becomes dispatches that
// store into the bytes of its result; the sizes of what they store are those of the elements.
//
//     error: expected type to be 'tensor<8x2x16xi8>' or a rank-reduced version. (size mismatch)
//
//     iree-compile write_bytes.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o write_bytes.vmfb
//
// stock: refuses: or a rank-reduced version. \(size mismatch\)

func.func @main(%x: tensor<8x2x16xi8>, %y: tensor<8x3x16xi8>) -> tensor<8x5x16xi8> {
  %a = iree_tensor_ext.bitcast %x : tensor<8x2x16xi8> -> tensor<8x2x32xf4E2M1FN>
  %b = iree_tensor_ext.bitcast %y : tensor<8x3x16xi8> -> tensor<8x3x32xf4E2M1FN>
  %c = tensor.concat dim(1) %a, %b : (tensor<8x2x32xf4E2M1FN>, tensor<8x3x32xf4E2M1FN>) -> tensor<8x5x32xf4E2M1FN>
  %d = iree_tensor_ext.bitcast %c : tensor<8x5x32xf4E2M1FN> -> tensor<8x5x16xi8>
  return %d : tensor<8x5x16xi8>
}
