// Threads read what a scan adds up while it is being filled. The fill becomes part of the scan's dispatch: one thread
// fills memory that all of the workgroup share, and the others read it without a barrier. Other producers are
// dispatches of their own since iree-org/iree#24651, fills are not.
//
//     iree-compile legalise_filled_scans.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o legalise_filled_scans.vmfb
//     iree-run-module --device=hip --module=legalise_filled_scans.vmfb --input=65x32xf32=0 --expected_output=65x32xf32=5
//
// stock: computes: race

func.func @main(%out: tensor<65x32xf32>) -> tensor<65x32xf32> {
  %five = arith.constant 5.0 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<65x32xf32>
  %x = linalg.fill ins(%five : f32) outs(%e : tensor<65x32xf32>) -> tensor<65x32xf32>
  %s = tensor.empty() : tensor<65xf32>
  %start = linalg.fill ins(%zero : f32) outs(%s : tensor<65xf32>) -> tensor<65xf32>
  %r:2 = iree_linalg_ext.scan dimension(1) inclusive(true) ins(%x : tensor<65x32xf32>) outs(%out, %start : tensor<65x32xf32>, tensor<65xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.maximumf %a, %b : f32
    iree_linalg_ext.yield %0 : f32
  } -> tensor<65x32xf32>, tensor<65xf32>
  return %r#0 : tensor<65x32xf32>
}
