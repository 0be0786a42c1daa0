// A constant that is sorted with other tensors is written to, and cannot be. A small constant becomes part of the
// dispatch, where the sort is to write over it. Operands that are not written over, as iree-org/iree#24658 has them,
// would mend it.
//
//     error: 'vector.transfer_write' op write affecting operations on global resources are restricted to workgroup distributed contexts.
//
//     iree-compile copy_constants.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o copy_constants.vmfb
//     iree-run-module --device=hip --module=copy_constants.vmfb --input=1x4xf32=1,1,1,1 --input=1x4xi32=0,1,2,3 --expected_output=1x4xf32=1,1,1,1 --expected_output=1x4xf32=4,2,3,1
//
// stock: refuses: restricted to workgroup distributed contexts
// upstream: iree-org/iree#24658

func.func @main(%x: tensor<1x4xf32>, %i: tensor<1x4xi32>) -> (tensor<1x4xf32>, tensor<1x4xf32>) {
  %c = arith.constant dense<[[4.0, 2.0, 3.0, 1.0]]> : tensor<1x4xf32>
  %r:2 = iree_linalg_ext.sort dimension(1) outs(%x, %c : tensor<1x4xf32>, tensor<1x4xf32>) {
  ^bb0(%a: f32, %b: f32, %d: f32, %e: f32):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<1x4xf32>, tensor<1x4xf32>
  return %r#0, %r#1 : tensor<1x4xf32>, tensor<1x4xf32>
}
