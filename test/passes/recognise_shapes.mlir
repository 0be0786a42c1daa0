// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise)' | filecheck %s

// Operands in any order in memory, batches of both, dynamic sizes, accumulators: all of them are recognised.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK-DAG: #[[BLOCKS:.+]] = affine_map<(d0, d1) -> (d1 floordiv 32, d1 mod 32, d0)>
// CHECK-DAG: #[[TURNED:.+]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG: #[[ACROSS:.+]] = affine_map<(d0, d1) -> (d0, d1 mod 32, d1 floordiv 32)>
// CHECK-DAG: #[[TWICE:.+]] = affine_map<(d0, d1) -> (d0 floordiv 2, d1 floordiv 32, d1 mod 32)>
// CHECK-DAG: #[[TWICE_SCALE:.+]] = affine_map<(d0, d1) -> (d0 floordiv 2, d1)>
// CHECK-DAG: #[[LHS:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
// CHECK-DAG: #[[RHS:.+]] = affine_map<(d0, d1, d2, d3) -> (d1, d2, d3)>
// CHECK-DAG: #[[LHS_SCALE:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d2)>
// CHECK-DAG: #[[RHS_SCALE:.+]] = affine_map<(d0, d1, d2, d3) -> (d1, d2)>
// CHECK-DAG: #[[OUT:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d1)>
// CHECK-DAG: #[[SLICE:.+]] = affine_map<(d0, d1) -> (d0 * 2 + 1, d1 floordiv 32, d1 mod 32)>

// The RHS is K x N in memory, as are its scales.
// CHECK-LABEL: util.func public @rhs_stored_k_by_n(
// CHECK-SAME: %[[A:[a-z0-9]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9]+]]: tensor<8x32x128xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9]+]]: tensor<8x128xf8E8M0FNU>
// CHECK: %[[BG:.+]] = linalg.generic {{.*}}mxcomp.gather = #[[BLOCKS]]
// CHECK: tensor.extract %[[B]][
// CHECK: %[[SG:.+]] = linalg.generic {{.*}}mxcomp.gather = #[[TURNED]]
// CHECK: tensor.extract %[[BS]][
// CHECK: linalg.generic {indexing_maps = [#[[LHS]], #[[RHS]], #[[LHS_SCALE]], #[[RHS_SCALE]], #[[OUT]]]
// CHECK-SAME: ins(%[[A]], %[[BG]], %[[AS]], %[[SG]] : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @rhs_stored_k_by_n(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<8x32x128xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<8x128xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, affine_map<(m, n, ko, kb) -> (ko, kb, n)>, #lhs_scale,
                                        affine_map<(m, n, ko, kb) -> (ko, n)>, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<8x32x128xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<8x128xf8E8M0FNU>)
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

// Elements that are 8 apart share a scale.
// CHECK-LABEL: util.func public @blocks_across_k(
// CHECK: mxcomp.gather = #[[ACROSS]]
// CHECK: mxcomp.gather = #[[ACROSS]]
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @blocks_across_k(%a: tensor<64x32x8xf4E2M1FN>, %b: tensor<128x32x8xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, ko, kb) -> (m, kb, ko)>,
                                        affine_map<(m, n, ko, kb) -> (n, kb, ko)>,
                                        #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x32x8xf4E2M1FN>, tensor<128x32x8xf4E2M1FN>,
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

// Each row of the LHS is used twice.
// CHECK-LABEL: util.func public @repeated_rows(
// CHECK: mxcomp.gather = #[[TWICE]]
// CHECK: mxcomp.gather = #[[TWICE_SCALE]]
// CHECK: linalg.generic
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @repeated_rows(%a: tensor<32x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<32x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, ko, kb) -> (m floordiv 2, ko, kb)>, #rhs,
                                        affine_map<(m, n, ko, kb) -> (m floordiv 2, ko)>, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<32x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<32x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
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

// A batch of both operands stays a dimension.
// CHECK-LABEL: util.func public @batch(
// CHECK: %[[R:.+]] = linalg.generic
// CHECK-SAME: iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]
// CHECK-SAME: mxcomp.scaled_matmul = {}
// CHECK: util.return %[[R]]
util.func @batch(%a: tensor<4x64x8x32xf4E2M1FN>, %b: tensor<4x128x8x32xf4E2M1FN>, %as: tensor<4x64x8xf8E8M0FNU>,
    %bs: tensor<4x128x8xf8E8M0FNU>) -> tensor<4x64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<4x64x128xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(b, m, n, ko, kb) -> (b, m, ko, kb)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, n, ko, kb)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, m, ko)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, n, ko)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, m, n)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<4x64x8x32xf4E2M1FN>, tensor<4x128x8x32xf4E2M1FN>,
                             tensor<4x64x8xf8E8M0FNU>, tensor<4x128x8xf8E8M0FNU>)
      outs(%init : tensor<4x64x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<4x64x128xf32>
  util.return %r : tensor<4x64x128xf32>
}

// CHECK-LABEL: util.func public @dynamic_n(
// CHECK: linalg.generic
// CHECK-SAME: outs({{.*}} : tensor<64x?xf32>) attrs =  {mxcomp.scaled_matmul = {}}
util.func @dynamic_n(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<?x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<?x8xf8E8M0FNU>, %n: index) -> tensor<64x?xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty(%n) : tensor<64x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x?xf32>) -> tensor<64x?xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<?x8x32xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<?x8xf8E8M0FNU>)
      outs(%init : tensor<64x?xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x?xf32>
  util.return %r : tensor<64x?xf32>
}

// CHECK-LABEL: util.func public @dynamic_k(
// CHECK: linalg.generic
// CHECK-SAME: tensor<64x?x32xf4E2M1FN>, {{.*}}mxcomp.scaled_matmul = {}
util.func @dynamic_k(%a: tensor<64x?x32xf4E2M1FN>, %b: tensor<128x?x32xf4E2M1FN>, %as: tensor<64x?xf8E8M0FNU>,
    %bs: tensor<128x?xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x?x32xf4E2M1FN>, tensor<128x?x32xf4E2M1FN>,
                             tensor<64x?xf8E8M0FNU>, tensor<128x?xf8E8M0FNU>)
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

// C + A B^T: the ukernels ignore the accumulator, so it is added to the product.
// CHECK-LABEL: util.func public @accumulates(
// CHECK-SAME: %[[C:[a-z0-9]+]]: tensor<64x128xf32>) ->
// CHECK: %[[ZERO:.+]] = linalg.fill
// CHECK: %[[R:.+]] = linalg.generic {{.*}} outs(%[[ZERO]] : tensor<64x128xf32>) attrs =  {mxcomp.scaled_matmul = {}}
// CHECK: %[[SUM:.+]] = linalg.generic {{.*}} ins(%[[R]], %[[C]] :
// CHECK: arith.addf
// CHECK: util.return %[[SUM]]
util.func @accumulates(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>, %init: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
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

// An accumulator filled with a value that is not known.
// CHECK-LABEL: util.func public @starts_at_argument(
// CHECK: %[[INIT:.+]] = linalg.generic
// CHECK: linalg.yield %arg4
// CHECK: %[[R:.+]] = linalg.generic {{.*}}mxcomp.scaled_matmul = {}
// CHECK: linalg.generic {{.*}} ins(%[[R]], %[[INIT]] :
util.func @starts_at_argument(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>, %start: f32) -> tensor<64x128xf32> {
  %empty = tensor.empty() : tensor<64x128xf32>
  %init = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      outs(%empty : tensor<64x128xf32>) {
  ^bb0(%o: f32):
    linalg.yield %start : f32
  } -> tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
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

// Sizes are lost in a cast, and an operand is a slice of 4-bit elements: read where it lies.
// CHECK-LABEL: util.func public @cast_and_slice(
// CHECK-SAME: %[[ALL:[a-z0-9]+]]: tensor<257x8x32xf4E2M1FN>
// CHECK: mxcomp.gather = #[[SLICE]]
// CHECK: tensor.extract %[[ALL]][
// CHECK: linalg.generic
// CHECK-SAME: outs({{.*}} : tensor<64x128xf32>) attrs =  {mxcomp.scaled_matmul = {}}
util.func @cast_and_slice(%a: tensor<64x8x32xf4E2M1FN>, %all: tensor<257x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %b = tensor.extract_slice %all[1, 0, 0] [128, 8, 32] [2, 1, 1] : tensor<257x8x32xf4E2M1FN> to tensor<128x8x32xf4E2M1FN>
  %open = tensor.cast %a : tensor<64x8x32xf4E2M1FN> to tensor<?x8x32xf4E2M1FN>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%open, %b, %as, %bs : tensor<?x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
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

// Dimensions of the result in any order: here the batch, h, is behind rows.
// CHECK-LABEL: util.func public @batch_behind_rows(
// CHECK: %[[Y:.+]] = linalg.generic {{.*}} outs({{.*}}tensor<3x5x40xf32>) attrs = {{.*}}mxcomp.scaled_matmul = {}
// CHECK: linalg.transpose ins(%[[Y]] : tensor<3x5x40xf32>) {{.*}}permutation = [1, 0, 2]
util.func @batch_behind_rows(%x: tensor<5x3x2x32xf4E2M1FN>, %xs: tensor<5x3x2xf8E8M0FNU>,
    %w: tensor<3x40x2x32xf4E2M1FN>, %ws: tensor<3x40x2xf8E8M0FNU>) -> tensor<5x3x40xf32> {
  %init = arith.constant dense<0.0> : tensor<5x3x40xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(t, h, d, ko, kb) -> (t, h, ko, kb)>,
                                        affine_map<(t, h, d, ko, kb) -> (h, d, ko, kb)>,
                                        affine_map<(t, h, d, ko, kb) -> (t, h, ko)>,
                                        affine_map<(t, h, d, ko, kb) -> (h, d, ko)>,
                                        affine_map<(t, h, d, ko, kb) -> (t, h, d)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w, %xs, %ws : tensor<5x3x2x32xf4E2M1FN>, tensor<3x40x2x32xf4E2M1FN>,
                             tensor<5x3x2xf8E8M0FNU>, tensor<3x40x2xf8E8M0FNU>)
      outs(%init : tensor<5x3x40xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<5x3x40xf32>
  util.return %r : tensor<5x3x40xf32>
}

// A scale for a whole row, and blocks of 64: the same scale for several blocks of 32.
// CHECK-LABEL: util.func public @larger_blocks(
// CHECK-SAME: %[[A:.+]]: tensor<64x256xf4E2M1FN>, %[[B:.+]]: tensor<128x4x64xf4E2M1FN>, %[[AS:.+]]: tensor<64xf8E8M0FNU>, %[[BS:.+]]: tensor<128x4xf8E8M0FNU>)
// CHECK: linalg.generic {{.+}} attrs = {mxcomp.gather = #[[ROW:.+]]} {
// CHECK: tensor.extract %[[AS]][%{{.+}}] : tensor<64xf8E8M0FNU>
// CHECK: linalg.generic {{.+}} attrs = {mxcomp.gather = #[[PAIR:.+]]} {
// CHECK: tensor.extract %[[BS]][%{{.+}}, %{{.+}}] : tensor<128x4xf8E8M0FNU>
// CHECK: linalg.generic
// CHECK-SAME: tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>, tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @larger_blocks(%a: tensor<64x256xf4E2M1FN>, %b: tensor<128x4x64xf4E2M1FN>, %as: tensor<64xf8E8M0FNU>,
    %bs: tensor<128x4xf8E8M0FNU>) -> tensor<64x128xf32> {
  %e = tensor.expand_shape %a [[0], [1, 2]] output_shape [64, 4, 64] : tensor<64x256xf4E2M1FN> into tensor<64x4x64xf4E2M1FN>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, ko, kb) -> (m, ko, kb)>, affine_map<(m, n, ko, kb) -> (n, ko, kb)>,
                                        affine_map<(m, n, ko, kb) -> (m)>, affine_map<(m, n, ko, kb) -> (n, ko)>,
                                        affine_map<(m, n, ko, kb) -> (m, n)>],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%e, %b, %as, %bs : tensor<64x4x64xf4E2M1FN>, tensor<128x4x64xf4E2M1FN>, tensor<64xf8E8M0FNU>,
                             tensor<128x4xf8E8M0FNU>)
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
