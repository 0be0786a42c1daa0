// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{ukernels=test_tile},mxcomp-materialise{reference})' | filecheck %s

// For targets without scaled MFMA: the same packing and unpacking around a matmul on row-major operands, in no regions
// and kept apart by barriers.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK-LABEL: util.func public @reference(
// CHECK-NOT: flow.dispatch.region
// CHECK-NOT: inner_tiled
// CHECK: %[[AP:.+]] = iree_tensor_ext.bitcast %{{.+}} : {{.*}} -> tensor<2x1x1x2x2x4x16x16xi8>
// CHECK: %[[AB:.+]] = util.optimization_barrier %[[AP]]
// CHECK: %[[AW:.+]] = iree_tensor_ext.bitcast %[[AB]] : {{.*}} -> tensor<2x1x2x2x4x16x4xi32>
// CHECK: %[[AT:.+]] = linalg.transpose ins(%[[AW]] : {{.*}} permutation = [0, 2, 5, 1, 3, 4, 6]
// CHECK: %[[AC:.+]] = tensor.collapse_shape %[[AT]] {{\[}}[0, 1, 2], [3, 4, 5], [6]] : {{.*}} into tensor<64x8x4xi32>
// CHECK: %[[A:.+]] = iree_tensor_ext.bitcast %[[AC]] : tensor<64x8x4xi32> -> tensor<64x8x32xf4E2M1FN>
// CHECK-COUNT-3: util.optimization_barrier
// CHECK: %[[P:.+]] = linalg.generic {{.*}} ins(%[[A]],
// CHECK: arith.scaling_extf
// CHECK: %[[PB:.+]] = util.optimization_barrier %[[P]] : tensor<64x128xf32>
// CHECK: %[[E:.+]] = tensor.expand_shape %[[PB]]
// CHECK: %[[T:.+]] = linalg.transpose ins(%[[E]] : {{.*}} permutation = [0, 4, 5, 1, 6, 2, 7, 3]
// CHECK: %[[TB:.+]] = util.optimization_barrier %[[T]]
// CHECK: %[[U:.+]] = linalg.transpose ins(%[[TB]] : {{.*}} permutation = [0, 3, 5, 7, 1, 2, 4, 6]
// CHECK: %[[R:.+]] = tensor.collapse_shape %[[U]] {{.*}} into tensor<64x128xf32>
// CHECK-NOT: flow.dispatch.region
// CHECK-NOT: inner_tiled
// CHECK: util.return %[[R]]
util.func @reference(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
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
