// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{ukernels=test_tile},mxcomp-materialise,mxcomp-link-ukernels)' | filecheck %s
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-encode{ukernels=benefit},mxcomp-materialise,mxcomp-link-ukernels)' \
// RUN:   | filecheck %s --check-prefix=LOOP

// A batch is one more dimension of everything, and one dispatch. The ukernel gets it as a dimension of size 1.

// CHECK: util.func private @test_tile_batched(%{{.+}}: tensor<1x1x?x1x2x2x4x16x32xf4E2M1FN>, {{.*}}) -> tensor<1x1x1x2x2x4x4x16x4xf32>
// CHECK: tensor.collapse_shape {{.*}} : tensor<1x1x1x2x2x4x4x16x4xf32> into tensor<1x1x2x2x4x4x16x4xf32>
// CHECK: tensor.expand_shape
// CHECK-LABEL: util.func public @batch(
// CHECK: flow.dispatch.region -> (tensor<4x1x1x2x2x4x16x4xi32>) {
// CHECK: flow.dispatch.region -> (tensor<4x1x1x2x4x2x4x16x4xi32>) {
// CHECK: flow.dispatch.region -> (tensor<4x1x1x4x16x1xi32>) {
// CHECK: flow.dispatch.region -> (tensor<4x1x1x2x4x16x2xi32>) {
// CHECK: flow.dispatch.region -> (tensor<4x32x128xf32>) {
// CHECK: iree_codegen.inner_tiled
// CHECK-SAME: iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"test_tile_batched", tensor>
// CHECK: linalg.transpose {{.*}} permutation = [0, 1, 4, 6, 8, 2, 3, 5, 7]
// CHECK: tensor.collapse_shape {{.*}} into tensor<4x32x128xf32>
// CHECK-NOT: flow.dispatch.region
// CHECK: util.return

// A ukernel's loop over lanes inserts its tile with the dimension, and bytes lose the dimension, not elements.
// LOOP: util.func private @mx_f4_f4_f32_m64_n128_k512_batched(%[[LHS:[a-z0-9]+]]: tensor<1x1x?x1x4x4x4x16x32xf4E2M1FN>
// LOOP: %[[BYTES:.+]] = iree_tensor_ext.bitcast %[[LHS]] : tensor<1x1x?x1x4x4x4x16x32xf4E2M1FN>{%{{.+}}} -> tensor<1x1x?x1x4x4x4x16x16xi8>
// LOOP-NEXT: tensor.collapse_shape %[[BYTES]]
// LOOP: %[[R:.+]] = scf.forall {{.*}} -> (tensor<1x1x1x4x4x2x4x16x4xf32>) {
// LOOP: %[[TILE:.+]] = tensor.expand_shape {{.*}} into tensor<1x1x1x1x4x2x1x1x4xf32>
// LOOP: tensor.parallel_insert_slice %[[TILE]] into %{{.+}}[0, 0, 0, %
// LOOP: util.return %[[R]] : tensor<1x1x1x4x4x2x4x16x4xf32>
util.func @batch(%a: tensor<4x32x8x32xf4E2M1FN>, %b: tensor<4x128x8x32xf4E2M1FN>, %as: tensor<4x32x8xf8E8M0FNU>,
    %bs: tensor<4x128x8xf8E8M0FNU>) -> tensor<4x32x128xf32> {
  %init = arith.constant dense<0.0> : tensor<4x32x128xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(b, m, n, ko, kb) -> (b, m, ko, kb)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, n, ko, kb)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, m, ko)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, n, ko)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, m, n)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<4x32x8x32xf4E2M1FN>, tensor<4x128x8x32xf4E2M1FN>,
                             tensor<4x32x8xf8E8M0FNU>, tensor<4x128x8xf8E8M0FNU>)
      outs(%init : tensor<4x32x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<4x32x128xf32>
  util.return %r : tensor<4x32x128xf32>
}
