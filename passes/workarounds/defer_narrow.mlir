// What is computed from constants by way of 4-bit floats is evaluated wrongly. The input is a constant, so the
// conversion is evaluated when the program is compiled, on the CPU: 0.75, a tie between 0.5 and 1, becomes 0. Of an
// input that is an argument the GPU makes 1.
//
//     iree-compile defer_narrow.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o defer_narrow.vmfb
//     iree-run-module --device=hip --module=defer_narrow.vmfb --expected_output=1x8xf32=0.5,0,1,1,-0.5,-0.5,2,6
//
// stock: computes

func.func @main() -> tensor<1x8xf32> {
  %x = arith.constant dense<[[0.3, 0.2, 0.75, 1.25, -0.3, -0.6, 2.5, 7.0]]> : tensor<1x8xf32>
  %one = arith.constant 1.0 : f8E8M0FNU
  %e = tensor.empty() : tensor<1x8xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<1x8xf32>) outs(%e : tensor<1x8xf4E2M1FN>) {
  ^bb0(%i: f32, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %one : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<1x8xf4E2M1FN>
  %y = arith.extf %q : tensor<1x8xf4E2M1FN> to tensor<1x8xf32>
  return %y : tensor<1x8xf32>
}
