// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-defer-constants)' | filecheck %s

// Matmuls of constants are kept for run time: IREE's CPU compiler has none of our kernels.

#id = affine_map<(m, k) -> (m, k)>
#self = affine_map<(m, ko, kb) -> (m, ko, kb)>
#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// Of a matmul of constants the LHS is held; the RHS may be packed at compile time. A constant RHS alone is left.
// CHECK-LABEL: util.func public @both_sides(
// CHECK: %[[A:.+]] = arith.constant dense<17>
// CHECK-NEXT: util.optimization_barrier %[[A]]
// CHECK: %[[AS:.+]] = arith.constant dense<127>
// CHECK-NEXT: util.optimization_barrier %[[AS]]
// CHECK-NOT: util.optimization_barrier
// CHECK: util.return
util.func @both_sides() -> tensor<2x4xf32> {
  %a_bytes = arith.constant dense<17> : tensor<2x16xi8>
  %as_bytes = arith.constant dense<127> : tensor<2x1xi8>
  %b_bytes = arith.constant dense<34> : tensor<4x16xi8>
  %bs_bytes = arith.constant dense<126> : tensor<4x1xi8>
  %a = iree_tensor_ext.bitcast %a_bytes : tensor<2x16xi8> -> tensor<2x1x32xf4E2M1FN>
  %as = iree_tensor_ext.bitcast %as_bytes : tensor<2x1xi8> -> tensor<2x1xf8E8M0FNU>
  %b = iree_tensor_ext.bitcast %b_bytes : tensor<4x16xi8> -> tensor<4x1x32xf4E2M1FN>
  %bs = iree_tensor_ext.bitcast %bs_bytes : tensor<4x1xi8> -> tensor<4x1xf8E8M0FNU>
  %init = arith.constant dense<0.0> : tensor<2x4xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"], mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<2x1x32xf4E2M1FN>, tensor<4x1x32xf4E2M1FN>, tensor<2x1xf8E8M0FNU>,
                             tensor<4x1xf8E8M0FNU>)
      outs(%init : tensor<2x4xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<2x4xf32>
  util.return %r : tensor<2x4xf32>
}

// So is one that a loop body reads by index, the way operands stored in another order are read.
// CHECK-LABEL: util.func public @gathered(
// CHECK: %[[ELEMENTS:.+]] = arith.constant dense<17>
// CHECK: %[[HELD_ELEMENTS:.+]] = util.optimization_barrier %[[ELEMENTS]]
// CHECK: %[[GATHERED:.+]] = linalg.generic
// CHECK: tensor.extract %[[HELD_ELEMENTS]]
// CHECK: linalg.generic {{.*}} ins(%[[GATHERED]],
util.func @gathered() -> tensor<2x4xf32> {
  %elements = arith.constant dense<17> : tensor<32x2xi8>
  %e = tensor.empty() : tensor<2x1x32xf8E5M2>
  %a = linalg.generic {indexing_maps = [#self], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%e : tensor<2x1x32xf8E5M2>) {
  ^bb0(%o: f8E5M2):
    %row = linalg.index 0 : index
    %k = linalg.index 2 : index
    %element = tensor.extract %elements[%k, %row] : tensor<32x2xi8>
    %float = arith.bitcast %element : i8 to f8E5M2
    linalg.yield %float : f8E5M2
  } -> tensor<2x1x32xf8E5M2>
  %as_bytes = arith.constant dense<127> : tensor<2x1xi8>
  %as = iree_tensor_ext.bitcast %as_bytes : tensor<2x1xi8> -> tensor<2x1xf8E8M0FNU>
  %b_bytes = arith.constant dense<34> : tensor<4x16xi8>
  %bs_bytes = arith.constant dense<126> : tensor<4x1xi8>
  %b = iree_tensor_ext.bitcast %b_bytes : tensor<4x16xi8> -> tensor<4x1x32xf4E2M1FN>
  %bs = iree_tensor_ext.bitcast %bs_bytes : tensor<4x1xi8> -> tensor<4x1xf8E8M0FNU>
  %init = arith.constant dense<0.0> : tensor<2x4xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"], mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<2x1x32xf8E5M2>, tensor<4x1x32xf4E2M1FN>, tensor<2x1xf8E8M0FNU>,
                             tensor<4x1xf8E8M0FNU>)
      outs(%init : tensor<2x4xf32>) {
  ^bb0(%x: f8E5M2, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E5M2, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<2x4xf32>
  util.return %r : tensor<2x4xf32>
}

// CHECK-LABEL: util.func public @weights(
// CHECK-NOT: util.optimization_barrier
// CHECK: util.return
util.func @weights(%a: tensor<2x1x32xf8E5M2>, %as: tensor<2x1xf8E8M0FNU>) -> tensor<2x4xf32> {
  %b_bytes = arith.constant dense<34> : tensor<4x16xi8>
  %bs_bytes = arith.constant dense<126> : tensor<4x1xi8>
  %b = iree_tensor_ext.bitcast %b_bytes : tensor<4x16xi8> -> tensor<4x1x32xf4E2M1FN>
  %bs = iree_tensor_ext.bitcast %bs_bytes : tensor<4x1xi8> -> tensor<4x1xf8E8M0FNU>
  %init = arith.constant dense<0.0> : tensor<2x4xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {index = 0, plan = "data_tiled"}}
      ins(%a, %b, %as, %bs : tensor<2x1x32xf8E5M2>, tensor<4x1x32xf4E2M1FN>, tensor<2x1xf8E8M0FNU>,
                             tensor<4x1xf8E8M0FNU>)
      outs(%init : tensor<2x4xf32>) {
  ^bb0(%x: f8E5M2, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E5M2, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<2x4xf32>
  util.return %r : tensor<2x4xf32>
}

// Where elements are chosen from two constants, IREE might find them equal, and the choice constant.
// CHECK-LABEL: util.func public @chosen(
// CHECK: %[[A:.+]] = arith.constant dense<17>
// CHECK-NEXT: %[[AH:.+]] = util.optimization_barrier %[[A]]
// CHECK-NEXT: iree_tensor_ext.bitcast %[[AH]]
// CHECK: %[[B:.+]] = arith.constant dense<18>
// CHECK-NEXT: %[[BH:.+]] = util.optimization_barrier %[[B]]
// CHECK-NEXT: iree_tensor_ext.bitcast %[[BH]]
util.func @chosen(%c: tensor<2x32xi1>) -> tensor<2x32xf4E2M1FN> {
  %a = arith.constant dense<17> : tensor<2x16xi8>
  %af = iree_tensor_ext.bitcast %a : tensor<2x16xi8> -> tensor<2x32xf4E2M1FN>
  %b = arith.constant dense<18> : tensor<2x16xi8>
  %bf = iree_tensor_ext.bitcast %b : tensor<2x16xi8> -> tensor<2x32xf4E2M1FN>
  %e = tensor.empty() : tensor<2x32xf4E2M1FN>
  %r = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c, %af, %bf : tensor<2x32xi1>, tensor<2x32xf4E2M1FN>, tensor<2x32xf4E2M1FN>)
      outs(%e : tensor<2x32xf4E2M1FN>) {
  ^bb0(%first: i1, %i: f4E2M1FN, %j: f4E2M1FN, %o: f4E2M1FN):
    %s = arith.select %first, %i, %j : f4E2M1FN
    linalg.yield %s : f4E2M1FN
  } -> tensor<2x32xf4E2M1FN>
  util.return %r : tensor<2x32xf4E2M1FN>
}

// What a reduction starts from is neither a factor nor a choice: a maximum, and where it is.
// CHECK-LABEL: util.func public @largest(
// CHECK-NOT: util.optimization_barrier
// CHECK: util.return
#row = affine_map<(m, k) -> (m)>
util.func @largest(%x: tensor<4x64xf32>) -> (tensor<4xf32>, tensor<4xi64>) {
  %least = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<4xf32>
  %values = linalg.fill ins(%least : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %places = arith.constant dense<0> : tensor<4xi64>
  %r:2 = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x64xf32>) outs(%values, %places : tensor<4xf32>, tensor<4xi64>) {
  ^bb0(%in: f32, %largest: f32, %place: i64):
    %i = linalg.index 1 : index
    %at = arith.index_cast %i : index to i64
    %above = arith.cmpf ogt, %in, %largest : f32
    %m = arith.select %above, %in, %largest : f32
    %p = arith.select %above, %at, %place : i64
    linalg.yield %m, %p : f32, i64
  } -> (tensor<4xf32>, tensor<4xi64>)
  util.return %r#0, %r#1 : tensor<4xf32>, tensor<4xi64>
}
