// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-fall-back)' | filecheck %s

// What is left to IREE and has 8-bit elements is multiplied as dequantised values; all else stays as it is.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK-DAG: #[[SAME:.+]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[LHS:.+]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG: #[[RHS:.+]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG: #[[OUT:.+]] = affine_map<(d0, d1, d2) -> (d0, d1)>

// CHECK-LABEL: util.func public @left(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<?x8x32xf8E4M3FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<?x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>,
// CHECK-SAME: %[[ZERO:[a-z0-9_]+]]: tensor<?x128xf32>)
// CHECK: %[[C:.+]] = tensor.collapse_shape %[[A]] {{.+}} into tensor<?x256xf8E4M3FN>
// CHECK: %[[M:.+]] = tensor.dim %[[C]]
// CHECK: tensor.empty(%[[M]]) : tensor<?x256xf32>
// CHECK: %[[D:.+]] = linalg.generic {indexing_maps = [#[[SAME]], #[[SAME]]], iterator_types = ["parallel", "parallel"]}
// CHECK-SAME: ins(%[[C]] :
// CHECK: ^bb0(%[[X:.+]]: f8E4M3FN, %{{.+}}: f32):
// CHECK: %[[ROW:.+]] = linalg.index 0
// CHECK: %[[K:.+]] = linalg.index 1
// CHECK: %[[SIZE:.+]] = arith.constant 32 : index
// CHECK: %[[BLOCK:.+]] = arith.divui %[[K]], %[[SIZE]]
// CHECK: %[[S:.+]] = tensor.extract %[[AS]][%[[ROW]], %[[BLOCK]]]
// CHECK: arith.scaling_extf %[[X]], %[[S]] : f8E4M3FN, f8E8M0FNU to f32
// CHECK: %[[F:.+]] = tensor.collapse_shape %[[B]] {{.+}} into tensor<128x256xf4E2M1FN>
// CHECK: %[[E:.+]] = linalg.generic
// CHECK-SAME: ins(%[[F]] :
// CHECK: tensor.extract %[[BS]]
// CHECK: arith.scaling_extf %{{.+}}, %{{.+}} : f4E2M1FN, f8E8M0FNU to f32
// CHECK: linalg.generic {indexing_maps = [#[[LHS]], #[[RHS]], #[[OUT]]], iterator_types = ["parallel", "parallel", "reduction"]}
// CHECK-SAME: ins(%[[D]], %[[E]] : tensor<?x256xf32>, tensor<128x256xf32>) outs(%[[ZERO]] :
// CHECK-SAME: mxcomp.scaled_matmul = {index = 0 : i64, reason = "left to IREE: why"}
// CHECK-NOT: scaling_extf
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK: util.return
util.func public @left(%a: tensor<?x8x32xf8E4M3FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<?x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>, %zero: tensor<?x128xf32>) -> tensor<?x128xf32> {
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<?x8x32xf8E4M3FN>, tensor<128x8x32xf4E2M1FN>, tensor<?x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%zero : tensor<?x128xf32>) attrs = {mxcomp.scaled_matmul = {index = 0 : i64, reason = "left to IREE: why"}} {
  ^bb0(%x: f8E4M3FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?x128xf32>
  util.return %r : tensor<?x128xf32>
}

// CHECK-LABEL: util.func public @four_bits(
// CHECK: linalg.generic {{.*}} ins(%{{.+}}, %{{.+}}, %{{.+}}, %{{.+}} : tensor<64x8x32xf4E2M1FN>
// CHECK: arith.scaling_extf
// CHECK: arith.scaling_extf
util.func public @four_bits(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>, %zero: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>, tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%zero : tensor<64x128xf32>) attrs = {mxcomp.scaled_matmul = {index = 0 : i64, reason = "left to IREE: why"}} {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// IREE's own code generation of a product of one tensor with itself does not compile for some sizes.
// CHECK-LABEL: util.func public @one_tensor(
// CHECK-COUNT-2: tensor.collapse_shape
// CHECK: linalg.generic {{.*}}ins(%{{.+}}, %{{.+}} : tensor<17x64xf32>, tensor<17x64xf32>)
// CHECK-NOT: scaling_extf
util.func public @one_tensor(%a: tensor<17x2x32xf4E2M1FN>, %as: tensor<17x2xf8E8M0FNU>, %zero: tensor<17x17xf32>)
    -> tensor<17x17xf32> {
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %a, %as, %as : tensor<17x2x32xf4E2M1FN>, tensor<17x2x32xf4E2M1FN>, tensor<17x2xf8E8M0FNU>, tensor<17x2xf8E8M0FNU>)
      outs(%zero : tensor<17x17xf32>) attrs = {mxcomp.scaled_matmul = {index = 0 : i64, reason = "left to IREE: why"}} {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<17x17xf32>
  util.return %r : tensor<17x17xf32>
}
