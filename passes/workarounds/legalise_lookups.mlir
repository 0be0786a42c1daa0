// tensor.extract of a slice reads other rows of its source. The lookup becomes a vector gather, whose places are
// counted as if the slice were a tensor with rows of 2 elements, where it lies in one with rows of 6: all rows but the
// first are wrong. Closed issues have the same for CPUs.
//
//     iree-compile legalise_lookups.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o legalise_lookups.vmfb
//     iree-run-module --device=hip --module=legalise_lookups.vmfb --input=4x6xf32=0,1,2,3,4,5,10,11,12,13,14,15,20,21,22,23,24,25,30,31,32,33,34,35 --input=4x2xi32=0,1,1,0,0,1,1,0 --expected_output=4x2xf32=0,1,11,10,20,21,31,30
//
// stock: computes
// upstream: iree-org/iree#23637

func.func @main(%x: tensor<4x6xf32>, %ids: tensor<4x2xi32>) -> tensor<4x2xf32> {
  %s = tensor.extract_slice %x[0, 0] [4, 2] [1, 1] : tensor<4x6xf32> to tensor<4x2xf32>
  %e = tensor.empty() : tensor<4x2xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<4x2xi32>) outs(%e : tensor<4x2xf32>) {
  ^bb0(%id: i32, %o: f32):
    %m = linalg.index 0 : index
    %n = arith.index_cast %id : i32 to index
    %0 = tensor.extract %s[%m, %n] : tensor<4x2xf32>
    linalg.yield %0 : f32
  } -> tensor<4x2xf32>
  return %r : tensor<4x2xf32>
}
