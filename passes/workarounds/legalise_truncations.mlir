// arith.truncf to f4E2M1FN rounds wrongly. Conversion to f4E2M1FN rounds ties away from zero (1.25 to 1.5, 2.5 to 3),
// where arith.truncf rounds to even by default, and loses the sign of what is less than 0.5 (-0.3 becomes 0.5).
//
//     iree-compile legalise_truncations.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o legalise_truncations.vmfb
//     iree-run-module --device=hip --module=legalise_truncations.vmfb --input=1x8xf32=0.3,0.2,0.75,1.25,-0.3,-0.6,2.5,7 --expected_output=1x8xf32=0.5,0,1,1,-0.5,-0.5,2,6
//
// stock: computes

func.func @main(%x: tensor<1x8xf32>) -> tensor<1x8xf32> {
  %q = arith.truncf %x : tensor<1x8xf32> to tensor<1x8xf4E2M1FN>
  %k = util.optimization_barrier %q : tensor<1x8xf4E2M1FN>
  %y = arith.extf %k : tensor<1x8xf4E2M1FN> to tensor<1x8xf32>
  return %y : tensor<1x8xf32>
}
