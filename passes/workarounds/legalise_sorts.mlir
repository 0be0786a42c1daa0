// A sort that has an operand twice does not compile. A sort writes over its operands. Where one of them is there twice,
// as CSE makes it, the dispatch has one tensor to write over for two results. Operands that are not written over, as
// iree-org/iree#24658 has them, would mend it.
//
//     error: 'vector.transfer_write' op write affecting operations on global resources are restricted to workgroup distributed contexts.
//
//     iree-compile legalise_sorts.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o legalise_sorts.vmfb
//     iree-run-module --device=hip --module=legalise_sorts.vmfb --input=1x4xf32=4,3,2,1 --input=1x4xi32=0,1,2,3 --expected_output=1x4xf32=1,2,3,4 --expected_output=1x4xi32=3,2,1,0 --expected_output=1x4xi32=3,2,1,0
//
// stock: refuses: restricted to workgroup distributed contexts
// upstream: iree-org/iree#24658

func.func @main(%x: tensor<1x4xf32>, %i: tensor<1x4xi32>) -> (tensor<1x4xf32>, tensor<1x4xi32>, tensor<1x4xi32>) {
  %r:3 = iree_linalg_ext.sort dimension(1) outs(%x, %i, %i : tensor<1x4xf32>, tensor<1x4xi32>, tensor<1x4xi32>) {
  ^bb0(%a: f32, %b: f32, %c: i32, %d: i32, %e: i32, %f: i32):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<1x4xf32>, tensor<1x4xi32>, tensor<1x4xi32>
  return %r#0, %r#1, %r#2 : tensor<1x4xf32>, tensor<1x4xi32>, tensor<1x4xi32>
}
