// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{data-tiling=off},mxcomp-materialise)' | filecheck %s

// Without data tiling the matmul stays as it is, in a dispatch with the ukernel's descriptor and tile sizes.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK-DAG: #[[TRANSLATION:.+]] = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [128, 1, 1] subgroup_size = 64,
// CHECK-DAG: #[[INFO:.+]] = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{workgroup = [32, 128, 0, 0]}>, translation_info = #[[TRANSLATION]]>

// CHECK-LABEL: util.func public @row_major(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>)
// CHECK-NOT: inner_tiled
// CHECK: %[[R:.+]] = flow.dispatch.region -> (tensor<64x128xf32>) {
// CHECK: %[[ZERO:.+]] = linalg.fill
// CHECK-NEXT: %[[T:.+]] = linalg.generic
// CHECK-SAME: ins(%[[A]], %[[B]], %[[AS]], %[[BS]] :
// CHECK-SAME: outs(%[[ZERO]] : tensor<64x128xf32>)
// CHECK-SAME: attrs = {compilation_info = #[[INFO]], iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"test_row_major", tensor>}
// CHECK: flow.return %[[T]]
// CHECK: util.return %[[R]]
util.func @row_major(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
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

// Nothing fits: left to IREE, and no mark stays behind.
// CHECK-LABEL: util.func public @left(
// CHECK-NOT: flow.dispatch.region
// CHECK-NOT: mxcomp.scaled_matmul
// CHECK: linalg.generic
// CHECK-NOT: mxcomp.scaled_matmul
// CHECK-NOT: flow.dispatch.region
// CHECK: util.return
util.func @left(%a: tensor<64x7x32xf4E2M1FN>, %b: tensor<126x7x32xf4E2M1FN>,
    %as: tensor<64x7xf8E8M0FNU>, %bs: tensor<126x7xf8E8M0FNU>) -> tensor<64x126xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64x126xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x126xf32>) -> tensor<64x126xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<64x7x32xf4E2M1FN>, tensor<126x7x32xf4E2M1FN>,
                             tensor<64x7xf8E8M0FNU>, tensor<126x7xf8E8M0FNU>)
      outs(%init : tensor<64x126xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x126xf32>
  util.return %r : tensor<64x126xf32>
}
