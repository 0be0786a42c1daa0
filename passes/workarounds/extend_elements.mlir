// A contraction of scaled elements with blocks of 16 is taken for one that scaled MFMA computes. It does not compile:
// operands are promoted to shared memory with a swizzle for blocks of 32 (iree-org/iree#23175), whose hint then has no
// allocation to refer to. Elements of 4, 6 or 8 bits alike; with one row it is no scaled MFMA, and compiles.
//
//     error: expected swizzle_hint operand to be defined by a memref.alloc
//
//     iree-compile extend_elements.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o extend_elements.vmfb
//
// stock: refuses: expected swizzle_hint operand to be defined by a memref.alloc

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
func.func @main(%a: tensor<16x8x16xf8E4M3FN>, %b: tensor<64x8x16xf8E4M3FN>, %as: tensor<16x8xf8E8M0FNU>, %bs: tensor<64x8xf8E8M0FNU>) -> tensor<16x64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<16x64xf32>) -> tensor<16x64xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<16x8x16xf8E4M3FN>, tensor<64x8x16xf8E4M3FN>, tensor<16x8xf8E8M0FNU>, tensor<64x8xf8E8M0FNU>)
      outs(%f : tensor<16x64xf32>) {
  ^bb0(%x: f8E4M3FN, %y: f8E4M3FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f8E4M3FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<16x64xf32>
  return %r : tensor<16x64xf32>
}
