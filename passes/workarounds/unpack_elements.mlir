// Elements of 2 and 4 bits cannot be stored by lanes of their own, 6-bit ones not at all. An elementwise operation with
// a result of i4, in rows of 34 elements: a lane stores one element, half a byte. Where rows are such that a lane
// stores whole bytes it compiles.
//
//     error: failed to legalize operation 'vector.store' that was explicitly marked illegal
//     error: 'func.func' op failed to emulate bit width
//
//     iree-compile unpack_elements.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o unpack_elements.vmfb
//
// stock: refuses: failed to emulate bit width

func.func @main(%x: tensor<16x34xf32>) -> tensor<16x17xi8> {
  %e = tensor.empty() : tensor<16x34xi4>
  %q = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<16x34xf32>) outs(%e : tensor<16x34xi4>) {
  ^bb0(%i: f32, %o: i4):
    %0 = arith.fptosi %i : f32 to i4
    linalg.yield %0 : i4
  } -> tensor<16x34xi4>
  %b = iree_tensor_ext.bitcast %q : tensor<16x34xi4> -> tensor<16x17xi8>
  return %b : tensor<16x17xi8>
}
