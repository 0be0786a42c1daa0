// The compiler crashes over a step of a Fourier transform without coefficients. iree_linalg_ext.fft may have its
// coefficients as operands or not. FftOp::getTiledImplementation takes them for operands always.
//
//     iree-compile add_coefficients.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o add_coefficients.vmfb
//
// stock: crashes: FftOp::getTiledImplementation

func.func @main(%re: tensor<1x8xf32>, %im: tensor<1x8xf32>) -> (tensor<1x8xf32>, tensor<1x8xf32>) {
  %c1 = arith.constant 1 : index
  %r:2 = iree_linalg_ext.fft ins(%c1 : index) outs(%re, %im : tensor<1x8xf32>, tensor<1x8xf32>) : tensor<1x8xf32>, tensor<1x8xf32>
  return %r#0, %r#1 : tensor<1x8xf32>, tensor<1x8xf32>
}
