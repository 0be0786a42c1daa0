// arith.extf of 8-bit elements to f16 is not compiled for CPUs. What is computed of constants alone is evaluated there
// while a program is compiled, so that this one, for a GPU, is refused:
//
//     failed to legalize operation 'arith.extf' … (vector<16xf8E5M2>) -> vector<16xf16>
//
// To f32 and bf16 it compiles, and so does the same conversion on the GPU.
//
//     iree-compile legalise_extensions.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o legalise_extensions.vmfb
//
// stock: refuses: failed to legalize operation 'arith.extf'

func.func @main(%y: tensor<32x16xf16>) -> tensor<32x16xf16> {
  %bytes = arith.constant dense<"0x38393A3B3C3D3E3F4041424344454647"> : tensor<4x4xi8>
  %x = iree_tensor_ext.bitcast %bytes : tensor<4x4xi8> -> tensor<4x4xf8E5M2>
  %e = tensor.empty() : tensor<4x4xf16>
  %r = linalg.generic {
    indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%x : tensor<4x4xf8E5M2>) outs(%e : tensor<4x4xf16>) {
  ^bb0(%in: f8E5M2, %out: f16):
    %0 = arith.extf %in : f8E5M2 to f16
    linalg.yield %0 : f16
  } -> tensor<4x4xf16>
  %b = util.optimization_barrier %r : tensor<4x4xf16>
  %s = tensor.insert_slice %b into %y[0, 0] [4, 4] [1, 1] : tensor<4x4xf16> into tensor<32x16xf16>
  return %s : tensor<32x16xf16>
}
