// A scale of 2^-127 is extended to 0. f8E8M0FNU has no zero: code 0 is 2^-127, a subnormal of f32. arith.extf makes 0
// of it. Observed is 1, 0, 1, 2^127; expected 1, 1, 1, 2^127.
//
//     iree-compile extend_scales.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o extend_scales.vmfb
//     iree-run-module --device=hip --module=extend_scales.vmfb --input=4xi8=127,0,1,-2 --input=4xf32=1,1.7014118e38,8.507059e37,1 --expected_output=4xf32=1,1,1,1.7014118e38
//
// stock: computes

func.func @main(%b: tensor<4xi8>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %s = iree_tensor_ext.bitcast %b : tensor<4xi8> -> tensor<4xf8E8M0FNU>
  %f = arith.extf %s : tensor<4xf8E8M0FNU> to tensor<4xf32>
  %r = arith.mulf %f, %x : tensor<4xf32>
  return %r : tensor<4xf32>
}
