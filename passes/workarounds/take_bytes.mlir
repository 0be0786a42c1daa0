// Arguments and results of 4- and 6-bit floats cannot be compiled. A function with an argument of a 4-bit float does
// not compile: the ABI has no element type for it, and will have none, as the discussion of iree-org/iree#20867 says.
// Bytes in its place, with an iree_tensor_ext.bitcast behind them, mean the same.
//
//     error: 'hal.element_type' op unsupported element type
//
//     iree-compile take_bytes.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o take_bytes.vmfb
//
// stock: refuses: hal.element_type' op unsupported element type
// upstream: iree-org/iree#20867

func.func @main(%x: tensor<1x32xf4E2M1FN>) -> tensor<1x32xf32> {
  %y = arith.extf %x : tensor<1x32xf4E2M1FN> to tensor<1x32xf32>
  return %y : tensor<1x32xf32>
}
