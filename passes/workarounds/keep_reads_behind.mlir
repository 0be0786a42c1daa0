// A slice of what is computed from 4-bit elements becomes a slice of these, which cannot be loaded. The slice is of
// f32, but moves in front of arith.extf, where it is one of 4-bit elements that begins in the middle of a byte.
//
//     error: 'flow.dispatch.workgroups' op non-full load of unsupported element type.
//
//     iree-compile keep_reads_behind.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o keep_reads_behind.vmfb
//
// stock: refuses: non-full load of unsupported element type

func.func @main(%x: tensor<24xi8>) -> tensor<4x3xf32> {
  %w = iree_tensor_ext.bitcast %x : tensor<24xi8> -> tensor<6x8xf4E2M1FN>
  %y = arith.extf %w : tensor<6x8xf4E2M1FN> to tensor<6x8xf32>
  %s = tensor.extract_slice %y[1, 3] [4, 3] [1, 1] : tensor<6x8xf32> to tensor<4x3xf32>
  return %s : tensor<4x3xf32>
}
