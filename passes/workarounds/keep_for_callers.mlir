// An argument that is returned has been written over. The function returns its argument, and the sorted argument. The
// sort writes over the buffer of the argument, and the same buffer is returned twice.
//
//     iree-compile keep_for_callers.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o keep_for_callers.vmfb
//     iree-run-module --device=hip --module=keep_for_callers.vmfb --input=1x4xf32=4,3,2,1 --expected_output=1x4xf32=4,3,2,1 --expected_output=1x4xf32=1,2,3,4
//
// stock: computes
// upstream: iree-org/iree#16168

func.func @main(%x: tensor<1x4xf32>) -> (tensor<1x4xf32>, tensor<1x4xf32>) {
  %r = iree_linalg_ext.sort dimension(1) outs(%x : tensor<1x4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<1x4xf32>
  return %x, %r : tensor<1x4xf32>, tensor<1x4xf32>
}
