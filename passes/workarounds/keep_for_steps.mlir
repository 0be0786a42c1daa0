// A step of a loop writes over what the next one reads. %x comes from outside of the loop, and has one use in it, a
// tensor.insert_slice. No copy is made, as nothing reads %x later; but the next step does. Expected is 2, 3, 4, 3,
// observed 0, 3, 4, 3.
//
//     iree-compile keep_for_steps.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o keep_for_steps.vmfb
//     iree-run-module --device=hip --module=keep_for_steps.vmfb --input=1x4xf32=1 --input=1x4xf32=0 --expected_output=1x4xf32=2,3,4,3
//
// stock: computes

func.func @main(%x: tensor<1x4xf32>, %start: tensor<1x4xf32>) -> tensor<1x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%sum = %start) -> (tensor<1x4xf32>) {
    %v = tensor.extract %sum[%c0, %i] : tensor<1x4xf32>
    %t = tensor.from_elements %v : tensor<1x1xf32>
    %s = tensor.insert_slice %t into %x[0, %i] [1, 1] [1, 1] : tensor<1x1xf32> into tensor<1x4xf32>
    %n = arith.addf %sum, %s : tensor<1x4xf32>
    scf.yield %n : tensor<1x4xf32>
  }
  return %r : tensor<1x4xf32>
}
