// A kernel of a product and a function that branches is taken for unreachable. The product has 3 rows, the tile has
// more: what is read of %bias beyond its edge is poison. math.tanh becomes branches on it, which is undefined
// behaviour, so LLVM takes the kernel for unreachable: it has no instructions at its end, and the GPU runs into
// whatever follows. Functions without branches (exp) are right, and so is tanh in a dispatch of its own.
//
//     iree-compile keep_branches_behind.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o keep_branches_behind.vmfb
//     iree-run-module --device=hip --module=keep_branches_behind.vmfb --input=3x256xf32=0 --input=64x256xf32=0 --input=3x64xf32=0 --expected_output=3x64xf32=0
//
// stock: computes: outside of the code

func.func @main(%a: tensor<3x256xf32>, %b: tensor<64x256xf32>, %bias: tensor<3x64xf32>) -> tensor<3x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x64xf32>) -> tensor<3x64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<3x256xf32>, tensor<64x256xf32>) outs(%f : tensor<3x64xf32>) {
  ^bb0(%x: f32, %y: f32, %acc: f32):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.addf %acc, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x64xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%r, %bias : tensor<3x64xf32>, tensor<3x64xf32>) outs(%e : tensor<3x64xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.addf %x, %y : f32
    %1 = math.tanh %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x64xf32>
  return %s : tensor<3x64xf32>
}
