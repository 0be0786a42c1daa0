// What a dispatch without operands makes is written over by two operations. Two sorts begin with one iota, which is
// cloned, so that each has its own to write over (PropagateCloneableOps); then CSE makes one of the two again.
//
//     iree-compile place_results.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o place_results.vmfb
//     iree-run-module --device=hip --module=place_results.vmfb --input=1x4xf32=4,3,2,1 --input=1x4xf32=2,1,4,3 --expected_output=1x4xi32=3,2,1,0 --expected_output=1x4xi32=1,0,3,2
//
// stock: computes
// upstream: iree-org/iree#23665

func.func @main(%x: tensor<1x4xf32>, %y: tensor<1x4xf32>) -> (tensor<1x4xi32>, tensor<1x4xi32>) {
  %e = tensor.empty() : tensor<1x4xi32>
  %i = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<1x4xi32>) {
  ^bb0(%o: i32):
    %n = linalg.index 1 : index
    %0 = arith.index_cast %n : index to i32
    linalg.yield %0 : i32
  } -> tensor<1x4xi32>
  %r:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : tensor<1x4xf32>, tensor<1x4xi32>) {
  ^bb0(%a: f32, %b: f32, %c: i32, %d: i32):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<1x4xf32>, tensor<1x4xi32>
  %s:2 = iree_linalg_ext.sort dimension(1) outs(%y, %i : tensor<1x4xf32>, tensor<1x4xi32>) {
  ^bb0(%a: f32, %b: f32, %c: i32, %d: i32):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<1x4xf32>, tensor<1x4xi32>
  return %r#1, %s#1 : tensor<1x4xi32>, tensor<1x4xi32>
}
