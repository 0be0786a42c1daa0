// Threads race over the accumulator of an exclusive scan. All threads of a workgroup add up one accumulator in shared
// memory, without waiting for each other, as the pipeline LLVMGPUDistribute does not distribute it
// (iree-org/iree#20358). An inclusive scan is right.
//
//     iree-compile legalise_exclusive_scans.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o legalise_exclusive_scans.vmfb
//     iree-run-module --device=hip --module=legalise_exclusive_scans.vmfb --input=4x64xf32=1 --expected_output=4x2xf32=62,63,62,63,62,63,62,63
//
// stock: computes: race
// upstream: iree-org/iree#20358

func.func @main(%x: tensor<4x64xf32>) -> tensor<4x2xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x64xf32>
  %n = tensor.empty() : tensor<4xf32>
  %start = linalg.fill ins(%zero : f32) outs(%n : tensor<4xf32>) -> tensor<4xf32>
  %r:2 = iree_linalg_ext.scan dimension(1) inclusive(false) ins(%x : tensor<4x64xf32>) outs(%e, %start : tensor<4x64xf32>, tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %a, %b : f32
    iree_linalg_ext.yield %0 : f32
  } -> tensor<4x64xf32>, tensor<4xf32>
  %s = tensor.extract_slice %r#0[0, 62] [4, 2] [1, 1] : tensor<4x64xf32> to tensor<4x2xf32>
  return %s : tensor<4x2xf32>
}
