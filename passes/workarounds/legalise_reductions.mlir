// Reductions of integers that lanes share begin with a wrong number. The identity of arith.maxsi on a wave is taken for
// 0 (of minsi for -1, of andi for 1, of 64-bit maxui and minui for the extremes of signed numbers): the maximum of -1,
// -1, ... is 0. With i8 the compiler ends instead: Do not know how to promote this operator!
//
//     iree-compile legalise_reductions.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o legalise_reductions.vmfb
//     iree-run-module --device=hip --module=legalise_reductions.vmfb --input=4x256xi32=-1 --expected_output=4xi32=-1
//
// stock: computes

func.func @main(%x: tensor<4x256xi32>) -> tensor<4xi32> {
  %least = arith.constant -2147483648 : i32
  %e = tensor.empty() : tensor<4xi32>
  %f = linalg.fill ins(%least : i32) outs(%e : tensor<4xi32>) -> tensor<4xi32>
  %r = linalg.reduce {arith.maxsi} ins(%x : tensor<4x256xi32>) outs(%f : tensor<4xi32>) dimensions = [1]
  return %r : tensor<4xi32>
}
