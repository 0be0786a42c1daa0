// 8-bit operands of scaled matmuls are laid out wrongly for scaled MFMA on gfx950. A scaled matmul of f8E4M3FN with
// blocks of 32: each lane gets elements of other blocks than the scales it multiplies them by, and results are wrong
// wherever scales differ. In block k of the LHS all elements are 2^k, and so is the scale; everything of the RHS is 1.
// Each result is 32 * (1 + 4 + 16 + 64) = 2720; observed is 2160. Operands of 4 bits are right.
//
//     iree-compile fall_back.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o fall_back.vmfb
//     iree-run-module --device=hip --module=fall_back.vmfb --input=32x128xi8=56 --input=32x4xi8=127 --expected_output=32x32xf32=2720
//
// stock: computes

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
func.func @main(%bb: tensor<32x128xi8>, %bsb: tensor<32x4xi8>) -> tensor<32x32xf32> {
  %ae = tensor.empty() : tensor<32x4x32xi8>
  %ag = linalg.generic {indexing_maps = [affine_map<(m, ko, kb) -> (m, ko, kb)>], iterator_types = ["parallel", "parallel", "parallel"]} outs(%ae : tensor<32x4x32xi8>) {
  ^bb0(%o: i8):
    %ko = linalg.index 1 : index
    %c8 = arith.constant 8 : index
    %c56 = arith.constant 56 : index
    %s8 = arith.muli %ko, %c8 : index
    %v = arith.addi %s8, %c56 : index
    %i = arith.index_cast %v : index to i8
    linalg.yield %i : i8
  } -> tensor<32x4x32xi8>
  %ab = util.optimization_barrier %ag : tensor<32x4x32xi8>
  %a = iree_tensor_ext.bitcast %ab : tensor<32x4x32xi8> -> tensor<32x4x32xf8E4M3FN>
  %b = iree_tensor_ext.bitcast %bb : tensor<32x128xi8> -> tensor<32x4x32xf8E4M3FN>
  %se = tensor.empty() : tensor<32x4xi8>
  %sg = linalg.generic {indexing_maps = [affine_map<(m, ko) -> (m, ko)>], iterator_types = ["parallel", "parallel"]} outs(%se : tensor<32x4xi8>) {
  ^bb0(%o: i8):
    %ko = linalg.index 1 : index
    %c127 = arith.constant 127 : index
    %v = arith.addi %ko, %c127 : index
    %i = arith.index_cast %v : index to i8
    linalg.yield %i : i8
  } -> tensor<32x4xi8>
  %asb = util.optimization_barrier %sg : tensor<32x4xi8>
  %as = iree_tensor_ext.bitcast %asb : tensor<32x4xi8> -> tensor<32x4xf8E8M0FNU>
  %bs = iree_tensor_ext.bitcast %bsb : tensor<32x4xi8> -> tensor<32x4xf8E8M0FNU>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<32x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<32x32xf32>) -> tensor<32x32xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<32x4x32xf8E4M3FN>, tensor<32x4x32xf8E4M3FN>, tensor<32x4xf8E8M0FNU>, tensor<32x4xf8E8M0FNU>)
      outs(%f : tensor<32x32xf32>) {
  ^bb0(%x: f8E4M3FN, %y: f8E4M3FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f8E4M3FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<32x32xf32>
  return %r : tensor<32x32xf32>
}
