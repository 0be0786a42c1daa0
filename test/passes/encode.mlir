// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good --pass-pipeline='builtin.module(mxcomp-encode)' | filecheck %s

// Operands are encoded, and layout and ukernel noted, by the constraints of the ukernels in inputs/good.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK-DAG: #[[MLHS:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
// CHECK-DAG: #[[MRHS:.+]] = affine_map<(d0, d1, d2, d3) -> (d1, d2, d3)>
// CHECK-DAG: #[[MLHS_SCALE:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d2)>
// CHECK-DAG: #[[MRHS_SCALE:.+]] = affine_map<(d0, d1, d2, d3) -> (d1, d2)>
// CHECK-DAG: #[[MOUT:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d1)>
// CHECK: #[[LHS:.+]] = #iree_encoding.encoding<operand_index = 0 : index, op_type = scaled_matmul,
// CHECK-SAME: element_types = [f4E2M1FN, f4E2M1FN, f8E8M0FNU, f8E8M0FNU, f32],
// CHECK-SAME: user_indexing_maps = [#[[MLHS]], #[[MRHS]], #[[MLHS_SCALE]], #[[MRHS_SCALE]], #[[MOUT]]],
// CHECK-SAME: iteration_sizes = [64, 128, 8, 32]>
// CHECK-NEXT: #[[RHS:.+]] = #iree_encoding.encoding<operand_index = 1 : index, {{.*}} iteration_sizes = [64, 128, 8, 32]>
// CHECK-NEXT: #[[LHS_SCALE:.+]] = #iree_encoding.encoding<operand_index = 2 : index, {{.*}} iteration_sizes = [64, 128, 8, 32]>
// CHECK-NEXT: #[[RHS_SCALE:.+]] = #iree_encoding.encoding<operand_index = 3 : index, {{.*}} iteration_sizes = [64, 128, 8, 32]>
// CHECK-NEXT: #[[ACC:.+]] = #iree_encoding.encoding<operand_index = 4 : index, {{.*}} iteration_sizes = [64, 128, 8, 32]>
// CHECK: #{{.+}} = #iree_encoding.encoding<operand_index = 4 : index, {{.*}} iteration_sizes = [?, 128, 8, 32]>

// CHECK-LABEL: util.func public @fits(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>)
// CHECK: %[[ZERO:.+]] = linalg.fill
// CHECK-NEXT: %[[AE:.+]] = iree_encoding.set_encoding %[[A]] : tensor<64x8x32xf4E2M1FN> -> tensor<64x8x32xf4E2M1FN, #[[LHS]]>
// CHECK-NEXT: %[[BE:.+]] = iree_encoding.set_encoding %[[B]] : tensor<128x8x32xf4E2M1FN> -> tensor<128x8x32xf4E2M1FN, #[[RHS]]>
// CHECK-NEXT: %[[ASE:.+]] = iree_encoding.set_encoding %[[AS]] : tensor<64x8xf8E8M0FNU> -> tensor<64x8xf8E8M0FNU, #[[LHS_SCALE]]>
// CHECK-NEXT: %[[BSE:.+]] = iree_encoding.set_encoding %[[BS]] : tensor<128x8xf8E8M0FNU> -> tensor<128x8xf8E8M0FNU, #[[RHS_SCALE]]>
// CHECK-NEXT: %[[ZE:.+]] = iree_encoding.set_encoding %[[ZERO]] : tensor<64x128xf32> -> tensor<64x128xf32, #[[ACC]]>
// CHECK-NEXT: %[[RE:.+]] = linalg.generic
// CHECK-SAME: ins(%[[AE]], %[[BE]], %[[ASE]], %[[BSE]] :
// CHECK-SAME: outs(%[[ZE]] :
// CHECK-SAME: mxcomp.scaled_matmul = {index = 0 : i64,
// CHECK-SAME: layout = {intrinsic = "MFMA_SCALE_F32_16x16x128_B32", intrinsics_k = 2 : i64, intrinsics_m = 2 : i64, intrinsics_n = 4 : i64,
// CHECK-SAME: operands_interleaving_intrinsics_k = [2, 3], operands_interleaving_intrinsics_m = [2],
// CHECK-SAME: operands_interleaving_intrinsics_n = [3], subgroups_n = 2 : i64},
// CHECK-SAME: plan = "data_tiled", ukernel = "test_tile", workgroup_size = [128, 1, 1]}
// CHECK: -> tensor<64x128xf32, #[[ACC]]>
// CHECK-NEXT: %[[R:.+]] = iree_encoding.unset_encoding %[[RE]] : tensor<64x128xf32, #[[ACC]]> -> tensor<64x128xf32>
// CHECK-NEXT: util.return %[[R]]
util.func @fits(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
    %as: tensor<64x8xf8E8M0FNU>, %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64x128xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x128xf32>) -> tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// Both fit; the benefit decides.
// CHECK-LABEL: util.func public @higher_benefit(
// CHECK: mxcomp.scaled_matmul = {index = 1 : i64,
// CHECK-SAME: layout = {intrinsic = "MFMA_SCALE_F32_32x32x64_B32", intrinsics_m = 2 : i64, subgroups_n = 2 : i64},
// CHECK-SAME: llvm_func_attrs = {"amdgpu-waves-per-eu" = "2"},
// CHECK-SAME: plan = "data_tiled", ukernel = "test_wide", workgroup_size = [128, 1, 1]}
util.func @higher_benefit(%a: tensor<512x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
    %as: tensor<512x8xf8E8M0FNU>, %bs: tensor<128x8xf8E8M0FNU>) -> tensor<512x128xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<512x128xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<512x128xf32>) -> tensor<512x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<512x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<512x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<512x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<512x128xf32>
  util.return %r : tensor<512x128xf32>
}

// Not a multiple of 64: the ukernel of higher benefit does not fit.
// CHECK-LABEL: util.func public @m_divides_no_tile(
// CHECK: mxcomp.scaled_matmul = {index = 2 : i64,
// CHECK-SAME: ukernel = "test_tile"
util.func @m_divides_no_tile(%a: tensor<300x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
    %as: tensor<300x8xf8E8M0FNU>, %bs: tensor<128x8xf8E8M0FNU>) -> tensor<300x128xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<300x128xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<300x128xf32>) -> tensor<300x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<300x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<300x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<300x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<300x128xf32>
  util.return %r : tensor<300x128xf32>
}

// Above the maximum of the one, no multiple of the other's tile.
// CHECK-LABEL: util.func public @m_above_maximum(
// CHECK-NOT: ukernel = "test_
// CHECK: mxcomp.scaled_matmul = {index = 3 : i64, {{.*}}plan = "data_tiled"
// CHECK-NOT: ukernel = "test_
// CHECK: util.return
util.func @m_above_maximum(%a: tensor<1000x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
    %as: tensor<1000x8xf8E8M0FNU>, %bs: tensor<128x8xf8E8M0FNU>) -> tensor<1000x128xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<1000x128xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<1000x128xf32>) -> tensor<1000x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<1000x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<1000x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<1000x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1000x128xf32>
  util.return %r : tensor<1000x128xf32>
}

// Neither of ours.
// CHECK-LABEL: util.func public @n_divides_no_tile(
// CHECK-NOT: ukernel = "test_
// CHECK: mxcomp.scaled_matmul = {index = 4 : i64, {{.*}}plan = "data_tiled"
// CHECK-NOT: ukernel = "test_
// CHECK: util.return
util.func @n_divides_no_tile(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<100x8x32xf4E2M1FN>,
    %as: tensor<64x8xf8E8M0FNU>, %bs: tensor<100x8xf8E8M0FNU>) -> tensor<64x100xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64x100xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x100xf32>) -> tensor<64x100xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<100x8x32xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<100x8xf8E8M0FNU>)
      outs(%init : tensor<64x100xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x100xf32>
  util.return %r : tensor<64x100xf32>
}

// A dynamic M has neither a known maximum nor divisor; the limit of buffer offsets is noted.
// CHECK-LABEL: util.func public @dynamic_m(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<?x8x32xf4E2M1FN>,
// CHECK: %[[M:.+]] = tensor.dim %[[A]], %
// CHECK: iree_encoding.set_encoding %[[A]] encoding_dims{%[[M:.+]]} : tensor<?x8x32xf4E2M1FN> ->
// CHECK: linalg.generic
// CHECK-NOT: ukernel = "test_
// CHECK-SAME: limits = {m = {{[0-9]+}} : i64}, {{.*}}plan = "data_tiled"
// CHECK-NOT: ukernel = "test_
// CHECK: iree_encoding.unset_encoding %{{.+}} encoding_dims{%[[M]]} : {{.+}} -> tensor<?x128xf32>{%[[M]]}
util.func @dynamic_m(%a: tensor<?x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
    %as: tensor<?x8xf8E8M0FNU>, %bs: tensor<128x8xf8E8M0FNU>) -> tensor<?x128xf32> {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %a, %c0 : tensor<?x8x32xf4E2M1FN>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty(%m) : tensor<?x128xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x128xf32>) -> tensor<?x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<?x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<?x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<?x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?x128xf32>
  util.return %r : tensor<?x128xf32>
}

// 2^31 bytes of LHS, one too many for a signed 32-bit offset; one tile less would do.
// CHECK-LABEL: util.func public @large_lhs(
// CHECK-NOT: set_encoding
// CHECK: mxcomp.scaled_matmul = {index = 6 : i64, reason = "left to IREE: an operand or the result exceeds 2147483647 bytes"}
// CHECK-NOT: set_encoding
// CHECK-LABEL: util.func public @almost_large_lhs(
// CHECK-COUNT-5: iree_encoding.set_encoding
// CHECK: mxcomp.scaled_matmul = {index = 7 : i64, {{.*}}plan = "data_tiled"
// CHECK-LABEL: util.func public @large_rhs(
// CHECK-NOT: set_encoding
// CHECK: mxcomp.scaled_matmul = {index = 8 : i64, reason = "left to IREE: an operand or the result exceeds 2147483647 bytes"}
// CHECK-LABEL: util.func public @large_result(
// CHECK-NOT: set_encoding
// CHECK: mxcomp.scaled_matmul = {index = 9 : i64, reason = "left to IREE: an operand or the result exceeds 2147483647 bytes"}
util.func @large_lhs(%a: tensor<131072x1024x32xf4E2M1FN>, %b: tensor<64x1024x32xf4E2M1FN>,
    %as: tensor<131072x1024xf8E8M0FNU>, %bs: tensor<64x1024xf8E8M0FNU>) -> tensor<131072x64xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<131072x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<131072x64xf32>) -> tensor<131072x64xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<131072x1024x32xf4E2M1FN>, tensor<64x1024x32xf4E2M1FN>,
                             tensor<131072x1024xf8E8M0FNU>, tensor<64x1024xf8E8M0FNU>)
      outs(%init : tensor<131072x64xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<131072x64xf32>
  util.return %r : tensor<131072x64xf32>
}
util.func @almost_large_lhs(%a: tensor<130944x1024x32xf4E2M1FN>, %b: tensor<64x1024x32xf4E2M1FN>,
    %as: tensor<130944x1024xf8E8M0FNU>, %bs: tensor<64x1024xf8E8M0FNU>) -> tensor<130944x64xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<130944x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<130944x64xf32>) -> tensor<130944x64xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<130944x1024x32xf4E2M1FN>, tensor<64x1024x32xf4E2M1FN>,
                             tensor<130944x1024xf8E8M0FNU>, tensor<64x1024xf8E8M0FNU>)
      outs(%init : tensor<130944x64xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<130944x64xf32>
  util.return %r : tensor<130944x64xf32>
}
util.func @large_rhs(%a: tensor<64x1024x32xf4E2M1FN>, %b: tensor<131072x1024x32xf4E2M1FN>,
    %as: tensor<64x1024xf8E8M0FNU>, %bs: tensor<131072x1024xf8E8M0FNU>) -> tensor<64x131072xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64x131072xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x131072xf32>) -> tensor<64x131072xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<64x1024x32xf4E2M1FN>, tensor<131072x1024x32xf4E2M1FN>,
                             tensor<64x1024xf8E8M0FNU>, tensor<131072x1024xf8E8M0FNU>)
      outs(%init : tensor<64x131072xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x131072xf32>
  util.return %r : tensor<64x131072xf32>
}
util.func @large_result(%a: tensor<65536x8x32xf4E2M1FN>, %b: tensor<16384x8x32xf4E2M1FN>,
    %as: tensor<65536x8xf8E8M0FNU>, %bs: tensor<16384x8xf8E8M0FNU>) -> tensor<65536x16384xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<65536x16384xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<65536x16384xf32>) -> tensor<65536x16384xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<65536x8x32xf4E2M1FN>, tensor<16384x8x32xf4E2M1FN>,
                             tensor<65536x8xf8E8M0FNU>, tensor<16384x8xf8E8M0FNU>)
      outs(%init : tensor<65536x16384xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<65536x16384xf32>
  util.return %r : tensor<65536x16384xf32>
}
