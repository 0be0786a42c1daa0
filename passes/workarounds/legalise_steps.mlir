// A slice with a step along a dimension of which it takes one element fails in front of a bitcast. The step of 2 along
// a dimension of size 1 has no meaning, as one element is taken there. The verifier of memref.subview refuses what the
// slice becomes: the stride of a dropped dimension is multiplied by the step, and not found among those of the source.
//
//     error: expected result type to be 'memref<2x1x1x1x1x32xi8, strided<[64, 32, 64, 32, 32, 1], offset: 32>, …>'
//
//     iree-compile legalise_steps.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o legalise_steps.vmfb
//
// stock: refuses: expected result type to be

func.func @main(%x: tensor<2x2x1x32xi8>) -> tensor<2x8xi32> {
  %s = tensor.extract_slice %x[0, 1, 0, 0] [2, 1, 1, 32] [1, 1, 2, 1] : tensor<2x2x1x32xi8> to tensor<2x1x1x32xi8>
  %b = iree_tensor_ext.bitcast %s : tensor<2x1x1x32xi8> -> tensor<2x8xi32>
  return %b : tensor<2x8xi32>
}
