// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode,mxcomp-materialise,mxcomp-link-ukernels)' | filecheck %s
// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode,mxcomp-materialise,mxcomp-outline,mxcomp-link-ukernels)' \
// RUN:   | filecheck %s --check-prefix=OUTLINED
// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{ukernels=none},mxcomp-materialise,mxcomp-link-ukernels)' \
// RUN:   | filecheck %s --check-prefix=NONE

// Each module gets exactly the ukernels that its own operations name, once each, without their rules.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK-LABEL: {{^}}module {
// CHECK-NEXT: util.func private @test_wide(
// CHECK-NOT: mxcomp.ukernel
// CHECK: util.func private @test_tile(%{{.+}}: tensor<1x?x1x2x2x4x16x32xf4E2M1FN>,
// CHECK-NOT: mxcomp.ukernel
// CHECK-NOT: util.func private
// CHECK: util.func public @first(
// CHECK-NOT: util.func private
// CHECK: iree_codegen.ukernel_descriptor<"test_tile", tensor>
// CHECK-NOT: util.func private
// CHECK: iree_codegen.ukernel_descriptor<"test_tile", tensor>
// CHECK-NOT: util.func private
// CHECK: iree_codegen.ukernel_descriptor<"test_wide", tensor>
// CHECK-NOT: util.func private

// One executable per dispatch: only the last of each function has a matmul, and so a ukernel.
// OUTLINED-COUNT-4: flow.executable private
// OUTLINED-NOT: util.func private
// OUTLINED: flow.executable private @mxcomp_first_dispatch_4
// OUTLINED: builtin.module {
// OUTLINED-NEXT: util.func private @test_tile(
// OUTLINED-NOT: util.func private
// OUTLINED: iree_codegen.ukernel_descriptor<"test_tile", tensor>
// OUTLINED-NOT: util.func private
// OUTLINED: flow.executable private @mxcomp_second_dispatch_4
// OUTLINED: builtin.module {
// OUTLINED-NEXT: util.func private @test_tile(
// OUTLINED-NOT: util.func private
// OUTLINED: flow.executable private @mxcomp_third_dispatch_4
// OUTLINED: builtin.module {
// OUTLINED-NEXT: util.func private @test_wide(
// OUTLINED-NOT: util.func private
// OUTLINED: util.func public @third(

// NONE-NOT: util.func private
// NONE-NOT: ukernel_descriptor
// NONE-COUNT-3: iree_codegen.inner_tiled
// NONE-NOT: util.func private
// NONE-NOT: ukernel_descriptor
util.func @first(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
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

util.func @second(%a: tensor<96x16x32xf4E2M1FN>, %b: tensor<128x16x32xf4E2M1FN>,
    %as: tensor<96x16xf8E8M0FNU>, %bs: tensor<128x16xf8E8M0FNU>) -> tensor<96x128xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<96x128xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<96x128xf32>) -> tensor<96x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<96x16x32xf4E2M1FN>, tensor<128x16x32xf4E2M1FN>,
                             tensor<96x16xf8E8M0FNU>, tensor<128x16xf8E8M0FNU>)
      outs(%init : tensor<96x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<96x128xf32>
  util.return %r : tensor<96x128xf32>
}

util.func @third(%a: tensor<256x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
    %as: tensor<256x8xf8E8M0FNU>, %bs: tensor<128x8xf8E8M0FNU>) -> tensor<256x128xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<256x128xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<256x128xf32>) -> tensor<256x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<256x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<256x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<256x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<256x128xf32>
  util.return %r : tensor<256x128xf32>
}
