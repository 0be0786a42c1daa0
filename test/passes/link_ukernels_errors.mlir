// RUN: mxcomp-opt %s --split-input-file --verify-diagnostics --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-link-ukernels)'

// Errors name the operation and the ukernel's file.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
util.func @unknown(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
    %as: tensor<64x8xf8E8M0FNU>, %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  // expected-error @+1 {{unknown ukernel 'no_such': known are }}
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"no_such", tensor>}
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

// -----

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
util.func @mistyped(%a: tensor<64x8x32xf8E4M3FN>, %b: tensor<128x8x32xf4E2M1FN>,
    %as: tensor<64x8xf8E8M0FNU>, %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  // expected-error @+1 {{operand 0 of linalg.generic is tensor<64x8x32xf8E4M3FN>, but @test_row_major in}}
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"test_row_major", tensor>}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf8E4M3FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f8E4M3FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// -----

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
// A ukernel for packed operands on row-major ones.
util.func @not_packed(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
    %as: tensor<64x8xf8E8M0FNU>, %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  // expected-error @+1 {{operand 0 of linalg.generic is tensor<64x8x32xf4E2M1FN>, but @test_tile in}}
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"test_tile", tensor>}
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

// -----

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
#parallel = #linalg.iterator_type<parallel>
#reduction = #linalg.iterator_type<reduction>
#layout = #iree_gpu.data_tiled_scaled_mma_layout<
  intrinsic = MFMA_SCALE_F32_16x16x128_B32, lhs_elem_type = f4E2M1FN, rhs_elem_type = f4E2M1FN, acc_elem_type = f32,
  intrinsics_m = 2, intrinsics_n = 2, intrinsics_k = 2>

// Packed, but in a layout with half as many intrinsics in N.
util.func @misshaped(%a: tensor<2x1x1x2x2x4x16x32xf4E2M1FN>, %b: tensor<4x1x1x2x2x4x16x32xf4E2M1FN>,
    %as: tensor<2x1x4x2x16x2xf8E8M0FNU>, %bs: tensor<4x1x4x2x16x2xf8E8M0FNU>, %init: tensor<2x4x2x2x4x16x4xf32>)
    -> tensor<2x4x2x2x4x16x4xf32> {
  // expected-error @+1 {{operand 1 of iree_codegen.inner_tiled is tensor<4x1x1x2x2x4x16x32xf4E2M1FN>, but @test_tile in}}
  %r = iree_codegen.inner_tiled ins(%a, %b, %as, %bs) outs(%init) <
    indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
    iterator_types = [#parallel, #parallel, #reduction, #reduction], kind = #layout,
    semantics = #iree_gpu.mma_semantics<distributed = false, opaque = true>
  > {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"test_tile", tensor>}
    : tensor<2x1x1x2x2x4x16x32xf4E2M1FN>, tensor<4x1x1x2x2x4x16x32xf4E2M1FN>, tensor<2x1x4x2x16x2xf8E8M0FNU>,
      tensor<4x1x4x2x16x2xf8E8M0FNU> into tensor<2x4x2x2x4x16x4xf32>
  util.return %r : tensor<2x4x2x2x4x16x4xf32>
}

// -----

util.func @too_few_operands(%a: tensor<64x128xf32>, %b: tensor<64x128xf32>) -> tensor<64x128xf32> {
  // expected-error @+1 {{linalg.elementwise has 3 operands, @test_row_major in}}
  %r = linalg.elementwise <add> {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"test_row_major", tensor>}
      ins(%a, %b : tensor<64x128xf32>, tensor<64x128xf32>) outs(%a : tensor<64x128xf32>) -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// -----

// expected-error @+1 {{has that name}}
util.func private @test_row_major()

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
util.func @name_taken(%a: tensor<64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>,
    %as: tensor<64x8xf8E8M0FNU>, %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"test_row_major", tensor>}
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
