// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{ukernels=test_tile},mxcomp-materialise{packed-parameters})' \
// RUN:   | filecheck %s
// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode{ukernels=test_tile},mxcomp-materialise)' \
// RUN:   | filecheck %s --check-prefix=PLAIN

// Operands that are parameters are read packed if that is asked for; the new parameter's global says how it is made.

// PLAIN-NOT: .packed.
// PLAIN-NOT: mxcomp.packing

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK: util.global private @w_packed_rhs_[[RHS:128x256_[0-9a-f]+]] {
// CHECK-SAME: mxcomp.packing = {batch = [], element = "f4E2M1FN", k = 256 : i64
// CHECK-SAME: layout = {intrinsic = "MFMA_SCALE_F32_16x16x128_B32", intrinsics_k = 2 : i64
// CHECK-SAME: operand = "rhs", rows = 128 : i64, source = "fc.weight"
// CHECK-SAME: type = {element = "i8", shape = [128, 8, 16]}
// CHECK-SAME: view = {batch = [], k = {{\[\[}}1024, 1]], offset = 0 : i64, rows = {{\[\[}}128, 1024]]}
// CHECK-SAME: noted = "x"} = #flow.parameter.named<"model"::"fc.weight.packed.rhs.128x256.{{[0-9a-f]+}}">
// CHECK-SAME: : tensor<1x1x1x2x4x2x4x16x16xi8>
// CHECK: util.global public @w {
// CHECK: util.global private @ws_packed_rhs_scale_[[SCALE:128x256_[0-9a-f]+]] {mxcomp.packing =
// CHECK-SAME: = #flow.parameter.named<"fc.weight_scale.packed.rhs_scale.128x256.{{[0-9a-f]+}}">
// CHECK-SAME: : tensor<1x1x2x4x16x4x2xf8E8M0FNU>
// CHECK: util.global private @ws =
util.global @w {noted = "x"} = #flow.parameter.named<"model"::"fc.weight"> : tensor<128x8x16xi8>
util.global private @ws = #flow.parameter.named<"fc.weight_scale"> : tensor<128x8xf8E8M0FNU>

// Both uses share what is read.
// CHECK-NOT: util.global private
// CHECK-LABEL: util.func public @parameters(
// CHECK: util.global.load immutable @w_packed_rhs_[[RHS]] : tensor<1x1x1x2x4x2x4x16x16xi8>
// CHECK: util.global.load immutable @ws_packed_rhs_scale_[[SCALE]]
// CHECK-NOT: util.global.load immutable @{{.*}}packed
// CHECK: flow.dispatch.region -> (tensor<64x128xf32>)
// CHECK-NOT: util.global.load immutable @{{.*}}packed
// CHECK: flow.dispatch.region -> (tensor<64x128xf32>)
// CHECK: util.return

// PLAIN-LABEL: util.func public @parameters(
// PLAIN: flow.dispatch.region -> (tensor<1x1x2x4x2x4x16x4xi32>)
util.func @parameters(%a: tensor<64x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>) -> (tensor<64x128xf32>, tensor<64x128xf32>) {
  %b8 = util.global.load @w : tensor<128x8x16xi8>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x8x16xi8> -> tensor<128x8x32xf4E2M1FN>
  %bs = util.global.load immutable @ws : tensor<128x8xf8E8M0FNU>
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
  %r2 = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
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
  util.return %r, %r2 : tensor<64x128xf32>, tensor<64x128xf32>
}

// What may change is not read packed, nor is what has been computed with; a value inside is packed at compile time.
// CHECK-LABEL: util.func public @others(
// CHECK-NOT: _packed_
// CHECK: flow.dispatch.region -> (tensor<2x1x2x2x4x16x4xi32>)
// CHECK: flow.dispatch.region -> (tensor<1x1x2x4x2x4x16x4xi32>)
// CHECK: flow.dispatch.region -> (tensor<2x1x4x16x1xi32>)
// CHECK-NOT: flow.dispatch.region -> (tensor<1x1x2x4x16x2xi32>)
// CHECK: flow.dispatch.region -> (tensor<64x128xf32>)
// CHECK: flow.dispatch.region -> (tensor<1x1x2x4x2x4x16x4xi32>)
// CHECK: util.return
util.global private mutable @mutable = #flow.parameter.named<"model"::"mutable"> : tensor<128x128xi8>
util.global private @value = dense<120> : tensor<128x8xi8>
util.global private @flags = #flow.parameter.named<"model"::"flags"> : tensor<128x128xi8>
util.func @others(%a: tensor<64x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>) -> (tensor<64x128xf32>, tensor<64x128xf32>) {
  %b8 = util.global.load @mutable : tensor<128x128xi8>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>
  %bs8 = util.global.load @value : tensor<128x8xi8>
  %bs = iree_tensor_ext.bitcast %bs8 : tensor<128x8xi8> -> tensor<128x8xf8E8M0FNU>
  %f = util.global.load @flags : tensor<128x128xi8>
  %flipped = arith.xori %f, %b8 : tensor<128x128xi8>
  %b2 = iree_tensor_ext.bitcast %flipped : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>
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
  %r2 = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b2, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r, %r2 : tensor<64x128xf32>, tensor<64x128xf32>
}

// Part of a parameter is read packed as well, also if it lies in it in another order; each part is one of its own. Where
// the slice is taken only at run time, the program packs: `expert`, below.
// CHECK: util.global private @experts_packed_rhs_[[EXPERT:128x256_[0-9a-f]+]] {mxcomp.packing = {batch = [],
// CHECK-SAME: rows = 128 : i64, source = "experts", type = {element = "i8", shape = [4, 8, 128, 16]},
// CHECK-SAME: view = {batch = [], k = {{\[\[}}8, 16384], [128, 1]], offset = 262144 : i64, rows = {{\[\[}}128, 128]]}}
// CHECK: util.global private @experts =
// CHECK: util.global private @shared_packed_rhs_scale_[[SHARED:128x256_[0-9a-f]+]] {mxcomp.packing = {batch = [],
// CHECK-SAME: type = {element = "i8", shape = [8]}, view = {batch = [], k = {{\[\[}}64, 1]], offset = 0 : i64,
// CHECK-SAME: rows = {{\[\[}}128, 0]]}}
// CHECK-LABEL: util.func public @parts(
// CHECK-DAG: util.global.load immutable @experts_packed_rhs_[[EXPERT]]
// CHECK-DAG: util.global.load immutable @shared_packed_rhs_scale_[[SHARED]]
// CHECK: util.return
util.global private @experts = #flow.parameter.named<"experts"> : tensor<4x8x128x16xi8>
util.global private @shared = #flow.parameter.named<"shared"> : tensor<8xi8>
util.func @parts(%a: tensor<64x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %all = util.global.load @experts : tensor<4x8x128x16xi8>
  %bytes = tensor.extract_slice %all[2, 0, 0, 0] [1, 8, 128, 16] [1, 1, 1, 1] : tensor<4x8x128x16xi8> to tensor<8x128x16xi8>
  %blocks = iree_tensor_ext.bitcast %bytes : tensor<8x128x16xi8> -> tensor<8x128x32xf4E2M1FN>
  %empty_b = tensor.empty() : tensor<128x8x32xf4E2M1FN>
  %b = linalg.generic {indexing_maps = [affine_map<(n, ko, kb) -> (n, ko, kb)>],
                       iterator_types = ["parallel", "parallel", "parallel"],
                       mxcomp.gather = affine_map<(n, k) -> (k floordiv 32, n, k mod 32)>}
      outs(%empty_b : tensor<128x8x32xf4E2M1FN>) {
  ^bb0(%out: f4E2M1FN):
    %n = linalg.index 0 : index
    %ko = linalg.index 1 : index
    %kb = linalg.index 2 : index
    %code = tensor.extract %blocks[%ko, %n, %kb] : tensor<8x128x32xf4E2M1FN>
    linalg.yield %code : f4E2M1FN
  } -> tensor<128x8x32xf4E2M1FN>
  %scales = util.global.load @shared : tensor<8xi8>
  %row = iree_tensor_ext.bitcast %scales : tensor<8xi8> -> tensor<8xf8E8M0FNU>
  %empty_bs = tensor.empty() : tensor<128x8xf8E8M0FNU>
  %bs = linalg.generic {indexing_maps = [affine_map<(n, ko) -> (n, ko)>], iterator_types = ["parallel", "parallel"],
                        mxcomp.gather = affine_map<(n, k) -> (k)>} outs(%empty_bs : tensor<128x8xf8E8M0FNU>) {
  ^bb0(%out: f8E8M0FNU):
    %ko = linalg.index 1 : index
    %code = tensor.extract %row[%ko] : tensor<8xf8E8M0FNU>
    linalg.yield %code : f8E8M0FNU
  } -> tensor<128x8xf8E8M0FNU>
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

// CHECK-LABEL: util.func public @expert(
// CHECK: util.global.load @experts :
// CHECK-NOT: util.global.load {{.*}}@experts_packed
// CHECK: util.global.load immutable @shared_packed_rhs_scale_[[SHARED]]
// CHECK: util.return
util.func @expert(%a: tensor<64x8x32xf4E2M1FN>, %as: tensor<64x8xf8E8M0FNU>, %at: index) -> tensor<64x128xf32> {
  %all = util.global.load @experts : tensor<4x8x128x16xi8>
  %bytes = tensor.extract_slice %all[%at, 0, 0, 0] [1, 8, 128, 16] [1, 1, 1, 1] : tensor<4x8x128x16xi8> to tensor<8x128x16xi8>
  %b = iree_tensor_ext.bitcast %bytes : tensor<8x128x16xi8> -> tensor<128x8x32xf4E2M1FN>
  %scales = util.global.load @shared : tensor<8xi8>
  %row = iree_tensor_ext.bitcast %scales : tensor<8xi8> -> tensor<8xf8E8M0FNU>
  %empty_bs = tensor.empty() : tensor<128x8xf8E8M0FNU>
  %bs = linalg.generic {indexing_maps = [affine_map<(n, ko) -> (n, ko)>], iterator_types = ["parallel", "parallel"],
                        mxcomp.gather = affine_map<(n, k) -> (k)>} outs(%empty_bs : tensor<128x8xf8E8M0FNU>) {
  ^bb0(%out: f8E8M0FNU):
    %ko = linalg.index 1 : index
    %code = tensor.extract %row[%ko] : tensor<8xf8E8M0FNU>
    linalg.yield %code : f8E8M0FNU
  } -> tensor<128x8xf8E8M0FNU>
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
