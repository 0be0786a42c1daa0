// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise)' | filecheck %s

// Operands are dequantised before an ordinary matmul: all of it becomes one op on what is stored. Nothing of the
// dequantised tensors or of broadcast scales stays behind.

!lhs = tensor<64x8x32xf4E2M1FN>
!rhs = tensor<128x8x32xf4E2M1FN>
!flat_lhs = tensor<64x256xf4E2M1FN>
!flat_rhs = tensor<128x256xf4E2M1FN>
!lhs_scale = tensor<64x8xf8E8M0FNU>
!rhs_scale = tensor<128x8xf8E8M0FNU>
!lhs_f32 = tensor<64x256xf32>
!rhs_f32 = tensor<128x256xf32>
!out = tensor<64x128xf32>

#id2 = affine_map<(r, k) -> (r, k)>
#id3 = affine_map<(r, ko, kb) -> (r, ko, kb)>
#per_block = affine_map<(r, ko, kb) -> (r, ko)>
#unit_block = affine_map<(r, ko, kb) -> (r, ko, 0)>
#divided = affine_map<(r, k) -> (r, k floordiv 32)>
#mm_lhs = affine_map<(m, n, k) -> (m, k)>
#mm_rhs = affine_map<(m, n, k) -> (n, k)>
#mm_out = affine_map<(m, n, k) -> (m, n)>
#blocks_lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#blocks_rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#blocks_out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK-DAG: #[[LHS:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
// CHECK-DAG: #[[RHS:.+]] = affine_map<(d0, d1, d2, d3) -> (d1, d2, d3)>
// CHECK-DAG: #[[LHS_SCALE:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d2)>
// CHECK-DAG: #[[RHS_SCALE:.+]] = affine_map<(d0, d1, d2, d3) -> (d1, d2)>
// CHECK-DAG: #[[OUT:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d1)>

// Scales by indexing map, scaling_extf to f32, blocks collapsed, linalg.matmul with a transposed RHS.
// CHECK-LABEL: util.func public @scaling_extf(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>)
// CHECK-NOT: tensor<{{.*}}x256xf32>
// CHECK-NOT: x32xf32>
// CHECK-NOT: linalg.matmul
// CHECK: %[[ZERO:.+]] = linalg.fill
// CHECK-NEXT: %[[R:.+]] = linalg.generic
// CHECK-SAME: indexing_maps = [#[[LHS]], #[[RHS]], #[[LHS_SCALE]], #[[RHS_SCALE]], #[[OUT]]],
// CHECK-SAME: iterator_types = ["parallel", "parallel", "reduction", "reduction"]
// CHECK-SAME: ins(%[[A]], %[[B]], %[[AS]], %[[BS]] :
// CHECK-SAME: outs(%[[ZERO]] : tensor<64x128xf32>)
// CHECK-SAME: mxcomp.scaled_matmul = {}
// CHECK-NEXT: ^bb0(%[[X:.+]]: f4E2M1FN, %[[Y:.+]]: f4E2M1FN, %[[XS:.+]]: f8E8M0FNU, %[[YS:.+]]: f8E8M0FNU, %[[ACC:.+]]: f32):
// CHECK-NEXT: %[[P:.+]] = arith.scaling_extf %[[X]], %[[XS]] : f4E2M1FN, f8E8M0FNU to f32
// CHECK-NEXT: %[[Q:.+]] = arith.scaling_extf %[[Y]], %[[YS]] : f4E2M1FN, f8E8M0FNU to f32
// CHECK-NEXT: %[[PQ:.+]] = arith.mulf %[[P]], %[[Q]] : f32
// CHECK-NEXT: %[[S:.+]] = arith.addf %[[ACC]], %[[PQ]] : f32
// CHECK-NEXT: linalg.yield %[[S]] : f32
// CHECK-NEXT: -> tensor<64x128xf32>
// CHECK-NEXT: util.return %[[R]]
util.func @scaling_extf(%a: !lhs, %b: !rhs, %as: !lhs_scale, %bs: !rhs_scale) -> !out {
  %ea = tensor.empty() : tensor<64x8x32xf32>
  %da = linalg.generic {indexing_maps = [#id3, #per_block, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a, %as : !lhs, !lhs_scale) outs(%ea : tensor<64x8x32xf32>) {
  ^bb0(%x: f4E2M1FN, %s: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %x, %s : f4E2M1FN, f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> tensor<64x8x32xf32>
  %ca = tensor.collapse_shape %da [[0], [1, 2]] : tensor<64x8x32xf32> into !lhs_f32
  %eb = tensor.empty() : tensor<128x8x32xf32>
  %db = linalg.generic {indexing_maps = [#id3, #per_block, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%b, %bs : !rhs, !rhs_scale) outs(%eb : tensor<128x8x32xf32>) {
  ^bb0(%x: f4E2M1FN, %s: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %x, %s : f4E2M1FN, f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> tensor<128x8x32xf32>
  %cb = tensor.collapse_shape %db [[0], [1, 2]] : tensor<128x8x32xf32> into !rhs_f32
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : !out
  %init = linalg.fill ins(%zero : f32) outs(%empty : !out) -> !out
  %r = linalg.matmul indexing_maps = [#mm_lhs, #mm_rhs, #mm_out]
      ins(%ca, %cb : !lhs_f32, !rhs_f32) outs(%init : !out) -> !out
  util.return %r : !out
}

// Casts and multiplication apart, in bf16; scale first; a generic matmul over two reduction loops.
// CHECK-LABEL: func.func @element_times_scale_in_bf16(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>)
// CHECK-NOT: xbf16>
// CHECK: linalg.generic {indexing_maps = [#[[LHS]], #[[RHS]], #[[LHS_SCALE]], #[[RHS_SCALE]], #[[OUT]]],
// CHECK-SAME: ins(%[[A]], %[[B]], %[[AS]], %[[BS]] :
// CHECK-SAME: mxcomp.scaled_matmul = {}
// CHECK-NOT: linalg.generic
// CHECK-NOT: bf16
// CHECK: return
func.func @element_times_scale_in_bf16(%a: !lhs, %b: !rhs, %as: !lhs_scale, %bs: !rhs_scale) -> !out {
  %ea = tensor.empty() : tensor<64x8x32xbf16>
  %da = linalg.generic {indexing_maps = [#id3, #per_block, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a, %as : !lhs, !lhs_scale) outs(%ea : tensor<64x8x32xbf16>) {
  ^bb0(%x: f4E2M1FN, %s: f8E8M0FNU, %o: bf16):
    %0 = arith.extf %x : f4E2M1FN to bf16
    %1 = arith.extf %s : f8E8M0FNU to bf16
    %2 = arith.mulf %1, %0 : bf16
    linalg.yield %2 : bf16
  } -> tensor<64x8x32xbf16>
  %eb = tensor.empty() : tensor<128x8x32xbf16>
  %db = linalg.generic {indexing_maps = [#per_block, #id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%bs, %b : !rhs_scale, !rhs) outs(%eb : tensor<128x8x32xbf16>) {
  ^bb0(%s: f8E8M0FNU, %x: f4E2M1FN, %o: bf16):
    %0 = arith.extf %x : f4E2M1FN to f32
    %1 = arith.extf %s : f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<128x8x32xbf16>
  %init = arith.constant dense<0.0> : !out
  %r = linalg.generic {indexing_maps = [#blocks_lhs, #blocks_rhs, #blocks_out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%da, %db : tensor<64x8x32xbf16>, tensor<128x8x32xbf16>) outs(%init : !out) {
  ^bb0(%x: bf16, %y: bf16, %acc: f32):
    %0 = arith.extf %y : bf16 to f32
    %1 = arith.extf %x : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %2, %acc : f32
    linalg.yield %3 : f32
  } -> !out
  return %r : !out
}

// Scales repeated into whole tensors by linalg.broadcast and collapse_shape, elementwise ops on separate tensors
// (generic, map, elementwise), RHS transposed by linalg.transpose before a plain linalg.matmul.
// CHECK-LABEL: util.func public @broadcast_scales(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x256xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x256xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>)
// CHECK-NOT: linalg.broadcast
// CHECK-NOT: linalg.transpose
// CHECK-NOT: linalg.map
// CHECK-NOT: linalg.elementwise
// CHECK-NOT: collapse_shape
// CHECK-NOT: x256xf8E8M0FNU>
// CHECK-NOT: x256xf32>
// CHECK-NOT: linalg.matmul
// CHECK: %[[AB:.+]] = iree_tensor_ext.bitcast %[[A]] : tensor<64x256xf4E2M1FN> -> tensor<64x8x32xf4E2M1FN>
// CHECK: %[[BB:.+]] = iree_tensor_ext.bitcast %[[B]] : tensor<128x256xf4E2M1FN> -> tensor<128x8x32xf4E2M1FN>
// CHECK-NEXT: linalg.generic {indexing_maps = [#[[LHS]], #[[RHS]], #[[LHS_SCALE]], #[[RHS_SCALE]], #[[OUT]]],
// CHECK-SAME: ins(%[[AB]], %[[BB]], %[[AS]], %[[BS]] :
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @broadcast_scales(%a: !flat_lhs, %b: !flat_rhs, %as: !lhs_scale, %bs: !rhs_scale) -> !out {
  %eas = tensor.empty() : tensor<64x8x32xf8E8M0FNU>
  %bas = linalg.broadcast ins(%as : !lhs_scale) outs(%eas : tensor<64x8x32xf8E8M0FNU>) dimensions = [2]
  %cas = tensor.collapse_shape %bas [[0], [1, 2]] : tensor<64x8x32xf8E8M0FNU> into tensor<64x256xf8E8M0FNU>
  %ea = tensor.empty() : !lhs_f32
  %fas = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%cas : tensor<64x256xf8E8M0FNU>) outs(%ea : !lhs_f32) {
  ^bb0(%s: f8E8M0FNU, %o: f32):
    %0 = arith.extf %s : f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> !lhs_f32
  %fa = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%a : !flat_lhs) outs(%ea : !lhs_f32) {
  ^bb0(%x: f4E2M1FN, %o: f32):
    %0 = arith.extf %x : f4E2M1FN to f32
    linalg.yield %0 : f32
  } -> !lhs_f32
  %da = linalg.map { arith.mulf } ins(%fa, %fas : !lhs_f32, !lhs_f32) outs(%ea : !lhs_f32)

  %ebs = tensor.empty() : tensor<128x8x32xf8E8M0FNU>
  %bbs = linalg.broadcast ins(%bs : !rhs_scale) outs(%ebs : tensor<128x8x32xf8E8M0FNU>) dimensions = [2]
  %cbs = tensor.collapse_shape %bbs [[0], [1, 2]] : tensor<128x8x32xf8E8M0FNU> into tensor<128x256xf8E8M0FNU>
  %eb = tensor.empty() : !rhs_f32
  %fbs = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%cbs : tensor<128x256xf8E8M0FNU>) outs(%eb : !rhs_f32) {
  ^bb0(%s: f8E8M0FNU, %o: f32):
    %0 = arith.extf %s : f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> !rhs_f32
  %fb = arith.extf %b : !flat_rhs to !rhs_f32
  %db = linalg.elementwise <mul> ins(%fb, %fbs : !rhs_f32, !rhs_f32) outs(%eb : !rhs_f32) -> !rhs_f32
  %et = tensor.empty() : tensor<256x128xf32>
  %tb = linalg.transpose ins(%db : !rhs_f32) outs(%et : tensor<256x128xf32>) permutation = [1, 0]

  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : !out
  %init = linalg.fill ins(%zero : f32) outs(%empty : !out) -> !out
  %r = linalg.matmul ins(%da, %tb : !lhs_f32, tensor<256x128xf32>) outs(%init : !out) -> !out
  util.return %r : !out
}

// One K dimension all along: the scale's indexing map divides by 32.
// CHECK-LABEL: util.func public @divided_scale_map(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x256xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x256xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>)
// CHECK-NOT: x256xf32>
// CHECK: %[[AB:.+]] = iree_tensor_ext.bitcast %[[A]] : tensor<64x256xf4E2M1FN> -> tensor<64x8x32xf4E2M1FN>
// CHECK: %[[BB:.+]] = iree_tensor_ext.bitcast %[[B]] : tensor<128x256xf4E2M1FN> -> tensor<128x8x32xf4E2M1FN>
// CHECK-NEXT: linalg.generic {indexing_maps = [#[[LHS]], #[[RHS]], #[[LHS_SCALE]], #[[RHS_SCALE]], #[[OUT]]],
// CHECK-SAME: ins(%[[AB]], %[[BB]], %[[AS]], %[[BS]] :
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @divided_scale_map(%a: !flat_lhs, %b: !flat_rhs, %as: !lhs_scale, %bs: !rhs_scale) -> !out {
  %ea = tensor.empty() : !lhs_f32
  %da = linalg.generic {indexing_maps = [#id2, #divided, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%a, %as : !flat_lhs, !lhs_scale) outs(%ea : !lhs_f32) {
  ^bb0(%x: f4E2M1FN, %s: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %x, %s : f4E2M1FN, f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> !lhs_f32
  %eb = tensor.empty() : !rhs_f32
  %db = linalg.generic {indexing_maps = [#id2, #divided, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%b, %bs : !flat_rhs, !rhs_scale) outs(%eb : !rhs_f32) {
  ^bb0(%x: f4E2M1FN, %s: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %x, %s : f4E2M1FN, f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> !rhs_f32
  %init = arith.constant dense<0.0> : !out
  %r = linalg.contract indexing_maps = [#mm_lhs, #mm_rhs, #mm_out]
      ins(%da, %db : !lhs_f32, !rhs_f32) outs(%init : !out) -> !out
  util.return %r : !out
}

// Both matmuls use one dequantised weight, through reshapes of their own.
// CHECK-LABEL: util.func public @shared_weight(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-NOT: x32xf32>
// CHECK-NOT: collapse_shape
// CHECK-COUNT-2: ins(%[[A]], %[[B]], {{.*}}mxcomp.scaled_matmul = {}
// CHECK-NOT: linalg.generic
// CHECK: util.return
util.func @shared_weight(%a: !lhs, %b: !rhs, %as: !lhs_scale, %bs: !rhs_scale) -> (!out, !out) {
  %ea = tensor.empty() : tensor<64x8x32xf32>
  %da = linalg.generic {indexing_maps = [#id3, #per_block, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a, %as : !lhs, !lhs_scale) outs(%ea : tensor<64x8x32xf32>) {
  ^bb0(%x: f4E2M1FN, %s: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %x, %s : f4E2M1FN, f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> tensor<64x8x32xf32>
  %eb = tensor.empty() : tensor<128x8x32xf32>
  %db = linalg.generic {indexing_maps = [#id3, #per_block, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%b, %bs : !rhs, !rhs_scale) outs(%eb : tensor<128x8x32xf32>) {
  ^bb0(%x: f4E2M1FN, %s: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %x, %s : f4E2M1FN, f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> tensor<128x8x32xf32>
  %ca = tensor.collapse_shape %da [[0], [1, 2]] : tensor<64x8x32xf32> into !lhs_f32
  %cb = tensor.collapse_shape %db [[0], [1, 2]] : tensor<128x8x32xf32> into !rhs_f32
  %init = arith.constant dense<0.0> : !out
  %r = linalg.matmul indexing_maps = [#mm_lhs, #mm_rhs, #mm_out]
      ins(%ca, %cb : !lhs_f32, !rhs_f32) outs(%init : !out) -> !out
  %cb2 = tensor.collapse_shape %db [[0], [1, 2]] : tensor<128x8x32xf32> into !rhs_f32
  %q = linalg.matmul indexing_maps = [#mm_lhs, #mm_rhs, #mm_out]
      ins(%ca, %cb2 : !lhs_f32, !rhs_f32) outs(%init : !out) -> !out
  util.return %r, %q : !out, !out
}
