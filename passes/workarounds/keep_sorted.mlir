// Rows are mixed up by a sort of which not all results are used. Only the places are used, not the sorted keys. The
// dispatch then does not return the keys, so they are copied into memory that the threads of a workgroup share, where
// each sorts a row of its own over those of the others. Rows of less than 32 elements are right.
//
//     iree-compile keep_sorted.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o keep_sorted.vmfb
//     iree-run-module --device=hip --module=keep_sorted.vmfb --input=2x32xf32=0,3,6,9,12,15,18,21,24,27,30,1,4,7,10,13,16,19,22,25,28,31,2,5,8,11,14,17,20,23,26,29,1,6,11,16,21,26,31,4,9,14,19,24,29,2,7,12,17,22,27,0,5,10,15,20,25,30,3,8,13,18,23,28 --expected_output=2x32xi32=0,11,22,1,12,23,2,13,24,3,14,25,4,15,26,5,16,27,6,17,28,7,18,29,8,19,30,9,20,31,10,21,19,0,13,26,7,20,1,14,27,8,21,2,15,28,9,22,3,16,29,10,23,4,17,30,11,24,5,18,31,12,25,6
//
// stock: computes

func.func @main(%x: tensor<2x32xf32>) -> tensor<2x32xi32> {
  %e = tensor.empty() : tensor<2x32xi32>
  %i = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<2x32xi32>) {
  ^bb0(%o: i32):
    %n = linalg.index 1 : index
    %0 = arith.index_cast %n : index to i32
    linalg.yield %0 : i32
  } -> tensor<2x32xi32>
  %r:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : tensor<2x32xf32>, tensor<2x32xi32>) {
  ^bb0(%a: f32, %b: f32, %c: i32, %d: i32):
    %less = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %less : i1
  } -> tensor<2x32xf32>, tensor<2x32xi32>
  return %r#1 : tensor<2x32xi32>
}
