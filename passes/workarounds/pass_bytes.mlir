// 6-bit elements that a branch chooses cannot be loaded. The branch becomes a selection in a kernel of its own, which
// loads and stores elements where it could do so with bytes. Where 6-bit elements go through a loop, or into a function
// that is not inlined, they are counted as bytes: a transfer from them is out of range then.
//
//     error: failed to legalize operation 'vector.load' that was explicitly marked illegal
//     error: 'func.func' op failed to emulate bit width
//
//     iree-compile pass_bytes.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o pass_bytes.vmfb
//
// stock: refuses: failed to emulate bit width

func.func @main(%x: tensor<2x24xi8>, %y: tensor<2x24xi8>, %first: i1) -> tensor<2x24xi8> {
  %a = iree_tensor_ext.bitcast %x : tensor<2x24xi8> -> tensor<2x32xf6E2M3FN>
  %b = iree_tensor_ext.bitcast %y : tensor<2x24xi8> -> tensor<2x32xf6E2M3FN>
  %r = scf.if %first -> tensor<2x32xf6E2M3FN> {
    scf.yield %a : tensor<2x32xf6E2M3FN>
  } else {
    scf.yield %b : tensor<2x32xf6E2M3FN>
  }
  %e = iree_tensor_ext.bitcast %r : tensor<2x32xf6E2M3FN> -> tensor<2x24xi8>
  return %e : tensor<2x24xi8>
}
