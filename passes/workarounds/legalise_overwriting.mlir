// An operation that reads a part of what it writes over gets one buffer for both. x[1:4] = x[0:3] becomes a copy within
// one buffer, from a range to one that overlaps it, which the HAL refuses; with other shapes it becomes a dispatch that
// reads elements it has written.
//
//     iree-compile legalise_overwriting.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o legalise_overwriting.vmfb
//     iree-run-module --device=hip --module=legalise_overwriting.vmfb --input=1x4xf32=1,2,3,4 --expected_output=1x4xf32=1,1,2,3
//
// stock: computes: overlap

func.func @main(%x: tensor<1x4xf32>) -> tensor<1x4xf32> {
  %s = tensor.extract_slice %x[0, 0] [1, 3] [1, 1] : tensor<1x4xf32> to tensor<1x3xf32>
  %r = tensor.insert_slice %s into %x[0, 1] [1, 3] [1, 1] : tensor<1x3xf32> into tensor<1x4xf32>
  return %r : tensor<1x4xf32>
}
