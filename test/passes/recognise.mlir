// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise)' | filecheck %s

// The fused form, in every order in which it can be written, becomes one canonical form.

!lhs = tensor<64x8x32xf4E2M1FN>
!rhs = tensor<128x8x32xf4E2M1FN>
!lhs_scale = tensor<64x8xf8E8M0FNU>
!rhs_scale = tensor<128x8xf8E8M0FNU>
!out = tensor<64x128xf32>

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK-DAG: #[[LHS:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
// CHECK-DAG: #[[RHS:.+]] = affine_map<(d0, d1, d2, d3) -> (d1, d2, d3)>
// CHECK-DAG: #[[LHS_SCALE:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d2)>
// CHECK-DAG: #[[RHS_SCALE:.+]] = affine_map<(d0, d1, d2, d3) -> (d1, d2)>
// CHECK-DAG: #[[OUT:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d1)>

// CHECK-LABEL: func.func @fused(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>)
// CHECK: %[[ZERO:.+]] = linalg.fill
// CHECK: %[[R:.+]] = linalg.generic
// CHECK-SAME: indexing_maps = [#[[LHS]], #[[RHS]], #[[LHS_SCALE]], #[[RHS_SCALE]], #[[OUT]]],
// CHECK-SAME: iterator_types = ["parallel", "parallel", "reduction", "reduction"]
// CHECK-SAME: ins(%[[A]], %[[B]], %[[AS]], %[[BS]] :
// CHECK-SAME: outs(%[[ZERO]] : tensor<64x128xf32>)
// CHECK-SAME: mxcomp.scaled_matmul = {}
// CHECK-NEXT: ^bb0(%[[X:.+]]: f4E2M1FN, %[[Y:.+]]: f4E2M1FN, %[[XS:.+]]: f8E8M0FNU, %[[YS:.+]]: f8E8M0FNU, %[[ACC:.+]]: f32):
// CHECK-NEXT: %[[L:.+]] = arith.scaling_extf %[[X]], %[[XS]] : f4E2M1FN, f8E8M0FNU to f32
// CHECK-NEXT: %[[RR:.+]] = arith.scaling_extf %[[Y]], %[[YS]] : f4E2M1FN, f8E8M0FNU to f32
// CHECK-NEXT: %[[P:.+]] = arith.mulf %[[L]], %[[RR]] : f32
// CHECK-NEXT: %[[S:.+]] = arith.addf %[[ACC]], %[[P]] : f32
// CHECK-NEXT: linalg.yield %[[S]] : f32
// CHECK-NEXT: -> tensor<64x128xf32>
// CHECK-NEXT: return %[[R]]
func.func @fused(%a: !lhs, %b: !rhs, %as: !lhs_scale, %bs: !rhs_scale) -> !out {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : !out
  %init = linalg.fill ins(%zero : f32) outs(%empty : !out) -> !out
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : !lhs, !rhs, !lhs_scale, !rhs_scale) outs(%init : !out) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> !out
  return %r : !out
}

// Operands in another order, and the body's commutative operations turned around.
// CHECK-LABEL: util.func public @operand_and_body_order(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>)
// CHECK: linalg.generic {indexing_maps = [#[[LHS]], #[[RHS]], #[[LHS_SCALE]], #[[RHS_SCALE]], #[[OUT]]],
// CHECK-SAME: ins(%[[A]], %[[B]], %[[AS]], %[[BS]] :
// CHECK-SAME: mxcomp.scaled_matmul = {}
// CHECK-NEXT: ^bb0(%[[X:.+]]: f4E2M1FN, %[[Y:.+]]: f4E2M1FN, %[[XS:.+]]: f8E8M0FNU, %[[YS:.+]]: f8E8M0FNU, %{{.+}}: f32):
// CHECK-NEXT: arith.scaling_extf %[[X]], %[[XS]]
// CHECK-NEXT: arith.scaling_extf %[[Y]], %[[YS]]
util.func @operand_and_body_order(%a: !lhs, %b: !rhs, %as: !lhs_scale, %bs: !rhs_scale) -> !out {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : !out
  %init = linalg.fill ins(%zero : f32) outs(%empty : !out) -> !out
  %r = linalg.generic {indexing_maps = [#rhs_scale, #rhs, #lhs_scale, #lhs, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%bs, %b, %as, %a : !rhs_scale, !rhs, !lhs_scale, !lhs) outs(%init : !out) {
  ^bb0(%ys: f8E8M0FNU, %y: f4E2M1FN, %xs: f8E8M0FNU, %x: f4E2M1FN, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %1, %0 : f32
    %3 = arith.addf %2, %acc : f32
    linalg.yield %3 : f32
  } -> !out
  util.return %r : !out
}

#p_lhs = affine_map<(m, ko, n, kb) -> (m, ko, kb)>
#p_rhs = affine_map<(m, ko, n, kb) -> (n, ko, kb)>
#p_lhs_scale = affine_map<(m, ko, n, kb) -> (m, ko)>
#p_rhs_scale = affine_map<(m, ko, n, kb) -> (n, ko)>
#p_out = affine_map<(m, ko, n, kb) -> (m, n)>

// CHECK-LABEL: util.func public @loop_order(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>)
// CHECK: linalg.generic {indexing_maps = [#[[LHS]], #[[RHS]], #[[LHS_SCALE]], #[[RHS_SCALE]], #[[OUT]]],
// CHECK-SAME: iterator_types = ["parallel", "parallel", "reduction", "reduction"]
// CHECK-SAME: ins(%[[A]], %[[B]], %[[AS]], %[[BS]] :
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @loop_order(%a: !lhs, %b: !rhs, %as: !lhs_scale, %bs: !rhs_scale) -> !out {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : !out
  %init = linalg.fill ins(%zero : f32) outs(%empty : !out) -> !out
  %r = linalg.generic {indexing_maps = [#p_lhs, #p_rhs, #p_lhs_scale, #p_rhs_scale, #p_out],
                       iterator_types = ["parallel", "reduction", "parallel", "reduction"]}
      ins(%a, %b, %as, %bs : !lhs, !rhs, !lhs_scale, !rhs_scale) outs(%init : !out) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> !out
  util.return %r : !out
}

#transposed_out = affine_map<(m, n, ko, kb) -> (n, m)>

// C^T = B A^T: the operand of the result's rows becomes the LHS.
// CHECK-LABEL: util.func public @transposed_result(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>)
// CHECK: linalg.generic {indexing_maps = [#[[LHS]], #[[RHS]], #[[LHS_SCALE]], #[[RHS_SCALE]], #[[OUT]]],
// CHECK-SAME: ins(%[[B]], %[[A]], %[[BS]], %[[AS]] : tensor<128x8x32xf4E2M1FN>, tensor<64x8x32xf4E2M1FN>,
// CHECK-SAME: outs(%{{.+}} : tensor<128x64xf32>)
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @transposed_result(%a: !lhs, %b: !rhs, %as: !lhs_scale, %bs: !rhs_scale) -> tensor<128x64xf32> {
  %zero = arith.constant dense<0.0> : tensor<128x64xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #transposed_out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : !lhs, !rhs, !lhs_scale, !rhs_scale) outs(%zero : tensor<128x64xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<128x64xf32>
  util.return %r : tensor<128x64xf32>
}

#flat_lhs = affine_map<(m, n, k) -> (m, k)>
#flat_rhs = affine_map<(m, n, k) -> (n, k)>
#flat_lhs_scale = affine_map<(m, n, k) -> (m, k floordiv 32)>
#flat_rhs_scale = affine_map<(m, n, k) -> (n, k floordiv 32)>
#flat_out = affine_map<(m, n, k) -> (m, n)>

// One K loop, scales found by a division, operands and scales as bytes before a bitcast.
// CHECK-LABEL: util.func public @flat_k_of_bytes(
// CHECK-SAME: %[[A8:[a-z0-9_]+]]: tensor<64x128xi8>, %[[B8:[a-z0-9_]+]]: tensor<128x128xi8>,
// CHECK-SAME: %[[AS8:[a-z0-9_]+]]: tensor<64x8xi8>, %[[BS8:[a-z0-9_]+]]: tensor<128x8xi8>)
// CHECK-DAG: %[[A:.+]] = iree_tensor_ext.bitcast %[[A8]] : tensor<64x128xi8> -> tensor<64x256xf4E2M1FN>
// CHECK-DAG: %[[B:.+]] = iree_tensor_ext.bitcast %[[B8]] : tensor<128x128xi8> -> tensor<128x256xf4E2M1FN>
// CHECK-DAG: %[[AS:.+]] = iree_tensor_ext.bitcast %[[AS8]] : tensor<64x8xi8> -> tensor<64x8xf8E8M0FNU>
// CHECK-DAG: %[[BS:.+]] = iree_tensor_ext.bitcast %[[BS8]] : tensor<128x8xi8> -> tensor<128x8xf8E8M0FNU>
// CHECK: %[[AB:.+]] = iree_tensor_ext.bitcast %[[A]] : tensor<64x256xf4E2M1FN> -> tensor<64x8x32xf4E2M1FN>
// CHECK: %[[BB:.+]] = iree_tensor_ext.bitcast %[[B]] : tensor<128x256xf4E2M1FN> -> tensor<128x8x32xf4E2M1FN>
// CHECK: linalg.generic {indexing_maps = [#[[LHS]], #[[RHS]], #[[LHS_SCALE]], #[[RHS_SCALE]], #[[OUT]]],
// CHECK-SAME: ins(%[[AB]], %[[BB]], %[[AS]], %[[BS]] :
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @flat_k_of_bytes(%a8: tensor<64x128xi8>, %b8: tensor<128x128xi8>, %as8: tensor<64x8xi8>,
                           %bs8: tensor<128x8xi8>) -> !out {
  %a = iree_tensor_ext.bitcast %a8 : tensor<64x128xi8> -> tensor<64x256xf4E2M1FN>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x128xi8> -> tensor<128x256xf4E2M1FN>
  %as = iree_tensor_ext.bitcast %as8 : tensor<64x8xi8> -> !lhs_scale
  %bs = iree_tensor_ext.bitcast %bs8 : tensor<128x8xi8> -> !rhs_scale
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : !out
  %init = linalg.fill ins(%zero : f32) outs(%empty : !out) -> !out
  %r = linalg.generic {indexing_maps = [#flat_lhs, #flat_rhs, #flat_lhs_scale, #flat_rhs_scale, #flat_out],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x256xf4E2M1FN>, tensor<128x256xf4E2M1FN>, !lhs_scale, !rhs_scale)
      outs(%init : !out) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> !out
  util.return %r : !out
}

// A bf16 result: sums are made in f32 and rounded once.
// CHECK-LABEL: util.func public @bf16_result(
// CHECK: %[[ZERO:.+]] = linalg.fill {{.*}} -> tensor<64x128xf32>
// CHECK: %[[SUM:.+]] = linalg.generic {indexing_maps = [#[[LHS]], #[[RHS]], #[[LHS_SCALE]], #[[RHS_SCALE]], #[[OUT]]],
// CHECK-SAME: outs(%[[ZERO]] : tensor<64x128xf32>)
// CHECK-SAME: mxcomp.scaled_matmul = {}
// CHECK: linalg.generic {{.*}} ins(%[[SUM]] : tensor<64x128xf32>) outs(%{{.+}} : tensor<64x128xbf16>) {
// CHECK: arith.truncf %{{.+}} : f32 to bf16
util.func @bf16_result(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xbf16> {
  %init = arith.constant dense<0.0> : tensor<64x128xbf16>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xbf16>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: bf16):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to bf16
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to bf16
    %2 = arith.mulf %0, %1 : bf16
    %3 = arith.addf %acc, %2 : bf16
    linalg.yield %3 : bf16
  } -> tensor<64x128xbf16>
  util.return %r : tensor<64x128xbf16>
}

// A batch of the LHS alone: its rows.
// CHECK-LABEL: util.func public @batch_of_lhs(
// CHECK: %[[A3:.+]] = iree_tensor_ext.bitcast %{{.+}} : tensor<4x16x8x32xf4E2M1FN> -> tensor<64x8x32xf4E2M1FN>
// CHECK: %[[AS3:.+]] = iree_tensor_ext.bitcast %{{.+}} : tensor<4x16x8xf8E8M0FNU> -> tensor<64x8xf8E8M0FNU>
// CHECK: %[[ROWS:.+]] = linalg.generic {indexing_maps = [#[[LHS]], #[[RHS]], #[[LHS_SCALE]], #[[RHS_SCALE]], #[[OUT]]],
// CHECK-SAME: ins(%[[A3]], %{{.+}}, %[[AS3]], %{{.+}} :
// CHECK-SAME: mxcomp.scaled_matmul = {}
// CHECK: %[[R:.+]] = tensor.expand_shape %[[ROWS]] {{\[\[}}0, 1], [2]] output_shape [4, 16, 128] : tensor<64x128xf32> into tensor<4x16x128xf32>
// CHECK: util.return %[[R]]
util.func @batch_of_lhs(%a: tensor<4x16x8x32xf4E2M1FN>, %b: !rhs, %as: tensor<4x16x8xf8E8M0FNU>, %bs: !rhs_scale)
    -> tensor<4x16x128xf32> {
  %init = arith.constant dense<0.0> : tensor<4x16x128xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(b, m, n, ko, kb) -> (b, m, ko, kb)>,
                                        affine_map<(b, m, n, ko, kb) -> (n, ko, kb)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, m, ko)>,
                                        affine_map<(b, m, n, ko, kb) -> (n, ko)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, m, n)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<4x16x8x32xf4E2M1FN>, !rhs, tensor<4x16x8xf8E8M0FNU>, !rhs_scale)
      outs(%init : tensor<4x16x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<4x16x128xf32>
  util.return %r : tensor<4x16x128xf32>
}

// Of scales of f32, f16 and bf16 the exponent is taken, where they are stored; a cast that is exact keeps it.
// CHECK-LABEL: util.func public @wide_scales(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf16>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf32>)
// CHECK: %[[AE:.+]] = linalg.generic {{.+}} ins(%[[AS]] : tensor<64x8xf16>) outs(%{{.+}} : tensor<64x8xf8E8M0FNU>)
// CHECK-NEXT: ^bb0(%[[S:.+]]: f16,
// CHECK-NEXT: %[[WIDE:.+]] = arith.extf %[[S]] : f16 to f32
// CHECK-NEXT: %[[BITS:.+]] = arith.bitcast %[[WIDE]] : f32 to i32
// CHECK-NEXT: %[[PLACES:.+]] = arith.constant 23 : i32
// CHECK-NEXT: %[[SHIFTED:.+]] = arith.shrui %[[BITS]], %[[PLACES]]
// CHECK-NEXT: %[[MASK:.+]] = arith.constant 255 : i32
// CHECK-NEXT: %[[CODE:.+]] = arith.andi %[[SHIFTED]], %[[MASK]]
// CHECK-NEXT: %[[BYTE:.+]] = arith.trunci %[[CODE]] : i32 to i8
// CHECK-NEXT: %[[SCALE:.+]] = arith.bitcast %[[BYTE]] : i8 to f8E8M0FNU
// CHECK-NEXT: linalg.yield %[[SCALE]]
// CHECK: %[[BE:.+]] = linalg.generic {{.+}} ins(%[[BS]] : tensor<128x8xf32>) outs(%{{.+}} : tensor<128x8xf8E8M0FNU>)
// CHECK-NEXT: ^bb0(%[[T:.+]]: f32,
// CHECK-NEXT: arith.bitcast %[[T]] : f32 to i32
// CHECK: linalg.generic {{.+}} ins(%[[A]], %[[B]], %[[AE]], %[[BE]] :
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @wide_scales(%a: !lhs, %b: !rhs, %as: tensor<64x8xf16>, %bs: tensor<128x8xf32>) -> !out {
  %init = arith.constant dense<0.0> : !out
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : !lhs, !rhs, tensor<64x8xf16>, tensor<128x8xf32>) outs(%init : !out) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f16, %ys: f32, %acc: f32):
    %xs32 = arith.extf %xs : f16 to f32
    %0 = arith.scaling_extf %x, %xs32 : f4E2M1FN, f32 to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f32 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> !out
  util.return %r : !out
}
