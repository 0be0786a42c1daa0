// A variable that keeps the former value of another one has its present value. A global that is only given what is loaded
// from another one is renamed to that one; that this changes in between is overlooked. Of two that are exchanged none is
// left, and the module is invalid.
//
//     iree-compile copy_stored.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o copy_stored.vmfb
//     iree-run-module --device=hip --module=copy_stored.vmfb --input=4xf32=1,2,3,4 --expected_output=4xf32=0
//
// stock: computes

util.global private mutable @now = dense<5.0> : tensor<4xf32>
util.global private mutable @before = dense<0.0> : tensor<4xf32>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = util.global.load @before : tensor<4xf32>
  %n = util.global.load @now : tensor<4xf32>
  util.global.store %n, @before : tensor<4xf32>
  util.global.store %x, @now : tensor<4xf32>
  return %r : tensor<4xf32>
}
