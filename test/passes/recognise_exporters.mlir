// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise)' | filecheck %s

// Spellings of particular exporters and of IREE's own tests.

!lhs = tensor<64x8x32xf4E2M1FN>
!rhs = tensor<128x8x32xf4E2M1FN>
!lhs_scale = tensor<64x8xf8E8M0FNU>
!rhs_scale = tensor<128x8xf8E8M0FNU>
!out = tensor<64x128xf32>

#id2 = affine_map<(r, k) -> (r, k)>
#id3 = affine_map<(r, ko, kb) -> (r, ko, kb)>
#per_block = affine_map<(r, ko, kb) -> (r, ko)>
#unit_block = affine_map<(r, ko, kb) -> (r, ko, 0)>
#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// MLIR's named op: operands and scales alternate.
// CHECK-LABEL: util.func public @scaled_contract(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>)
// CHECK-NOT: scaled_contract
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[A]], %[[B]], %[[AS]], %[[BS]] :
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @scaled_contract(%a: !lhs, %b: !rhs, %as: !lhs_scale, %bs: !rhs_scale) -> !out {
  %init = arith.constant dense<0.0> : !out
  %r = linalg.scaled_contract indexing_maps = [#lhs, #lhs_scale, #rhs, #rhs_scale, #out]
      ins(%a, %as, %b, %bs : !lhs, !lhs_scale, !rhs, !rhs_scale) outs(%init : !out) -> !out
  util.return %r : !out
}

// IREE's end-to-end tests: bytes are expanded, then bitcast in the flow dialect.
// CHECK-LABEL: util.func public @bytes_expanded(
// CHECK-SAME: %[[A8:[a-z0-9_]+]]: tensor<64x128xi8>,
// CHECK: %[[EA:.+]] = tensor.expand_shape %[[A8]]
// CHECK: %[[A:.+]] = flow.tensor.bitcast %[[EA]] : tensor<64x8x16xi8> -> tensor<64x8x32xf4E2M1FN>
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[A]],
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @bytes_expanded(%a8: tensor<64x128xi8>, %as: !lhs_scale, %b8: tensor<128x128xi8>, %bs: !rhs_scale) -> !out {
  %empty = tensor.empty() : !out
  %zero = arith.constant 0.0 : f32
  %init = linalg.fill ins(%zero : f32) outs(%empty : !out) -> !out
  %ea = tensor.expand_shape %a8 [[0], [1, 2]] output_shape [64, 8, 16] : tensor<64x128xi8> into tensor<64x8x16xi8>
  %eb = tensor.expand_shape %b8 [[0], [1, 2]] output_shape [128, 8, 16] : tensor<128x128xi8> into tensor<128x8x16xi8>
  %a = flow.tensor.bitcast %ea : tensor<64x8x16xi8> -> !lhs
  %b = flow.tensor.bitcast %eb : tensor<128x8x16xi8> -> !rhs
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : !lhs, !rhs, !lhs_scale, !rhs_scale) outs(%init : !out) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> !out
  util.return %r : !out
}

// Activations quantised in the model: the quantisation, which is elementwise too, is not looked through.
// CHECK-LABEL: util.func public @quantised_activations(
// CHECK-SAME: %[[X:[a-z0-9_]+]]: tensor<64x8x32xf32>, %[[S:[a-z0-9_]+]]: tensor<64x8xf32>,
// CHECK-SAME: %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>, %[[BS:[a-z0-9_]+]]: tensor<128x8xf8E8M0FNU>)
// CHECK: %[[AS:.+]] = linalg.generic {{.*}} ins(%[[S]] :
// CHECK: arith.truncf %{{.+}} : f32 to f8E8M0FNU
// CHECK: %[[A:.+]] = linalg.generic {{.*}} ins(%[[X]], %[[AS]] :
// CHECK: arith.scaling_truncf %{{.+}}, %{{.+}} : f32, f8E8M0FNU to f4E2M1FN
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[A]], %[[B]], %[[AS]], %[[BS]] :
// CHECK-SAME: mxcomp.scaled_matmul = {}
// CHECK: util.return %{{.+}}, %[[A]]
util.func @quantised_activations(%x: tensor<64x8x32xf32>, %s: tensor<64x8xf32>, %b: !rhs, %bs: !rhs_scale)
    -> (!out, !lhs) {
  %es = tensor.empty() : !lhs_scale
  %as = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<64x8xf32>) outs(%es : !lhs_scale) {
  ^bb0(%i: f32, %o: f8E8M0FNU):
    %0 = arith.truncf %i : f32 to f8E8M0FNU
    linalg.yield %0 : f8E8M0FNU
  } -> !lhs_scale
  %ea = tensor.empty() : !lhs
  %a = linalg.generic {indexing_maps = [#id3, #per_block, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %as : tensor<64x8x32xf32>, !lhs_scale) outs(%ea : !lhs) {
  ^bb0(%i: f32, %j: f8E8M0FNU, %o: f4E2M1FN):
    %0 = arith.scaling_truncf %i, %j : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %0 : f4E2M1FN
  } -> !lhs
  %init = arith.constant dense<0.0> : !out
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : !lhs, !rhs, !lhs_scale, !rhs_scale) outs(%init : !out) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %is: f8E8M0FNU, %js: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %i, %is : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %j, %js : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> !out
  util.return %r, %a : !out, !lhs
}

// torch-mlir: scales get a unit dimension that is broadcast by a constant subscript; their bytes are bitcast singly; the
// weight is transposed by a generic whose result is the permuted side; M is dynamic.
// CHECK-LABEL: util.func public @torch_linear(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<?x8x32xf4E2M1FN>, %[[AS:[a-z0-9_]+]]: tensor<?x8xi8>,
// CHECK-SAME: %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>, %[[BS8:[a-z0-9_]+]]: tensor<128x8xi8>)
// CHECK-NOT: x32xf32>
// CHECK-NOT: x256xf32>
// CHECK-NOT: tensor<256x128xf32>
// CHECK-NOT: tensor.expand_shape
// CHECK: %[[AS8:.+]] = iree_tensor_ext.bitcast %[[AS]] : tensor<?x8xi8>{%{{.+}}} -> tensor<?x8xf8E8M0FNU>{%{{.+}}}
// CHECK: %[[BS:.+]] = iree_tensor_ext.bitcast %[[BS8]] : tensor<128x8xi8> -> tensor<128x8xf8E8M0FNU>
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[A]], %[[B]], %[[AS8]], %[[BS]] :
// CHECK-SAME: outs(%{{.+}} : tensor<?x128xf32>)
// CHECK-SAME: mxcomp.scaled_matmul = {}
// CHECK-NOT: linalg.generic
// CHECK: util.return
util.func @torch_linear(%a: tensor<?x8x32xf4E2M1FN>, %as: tensor<?x8xi8>, %b: !rhs, %bs: tensor<128x8xi8>)
    -> tensor<?x128xf32> {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %a, %c0 : tensor<?x8x32xf4E2M1FN>
  %as3 = tensor.expand_shape %as [[0], [1, 2]] output_shape [%m, 8, 1] : tensor<?x8xi8> into tensor<?x8x1xi8>
  %ea = tensor.empty(%m) : tensor<?x8x32xf32>
  %da = linalg.generic {indexing_maps = [#id3, #unit_block, #id3],
                        iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a, %as3 : tensor<?x8x32xf4E2M1FN>, tensor<?x8x1xi8>) outs(%ea : tensor<?x8x32xf32>) {
  ^bb0(%x: f4E2M1FN, %s: i8, %o: f32):
    %0 = arith.bitcast %s : i8 to f8E8M0FNU
    %1 = arith.scaling_extf %x, %0 : f4E2M1FN, f8E8M0FNU to f32
    linalg.yield %1 : f32
  } -> tensor<?x8x32xf32>
  %ca = tensor.collapse_shape %da [[0], [1, 2]] : tensor<?x8x32xf32> into tensor<?x256xf32>
  %bs3 = tensor.expand_shape %bs [[0], [1, 2]] output_shape [128, 8, 1] : tensor<128x8xi8> into tensor<128x8x1xi8>
  %eb = tensor.empty() : tensor<128x8x32xf32>
  %db = linalg.generic {indexing_maps = [#id3, #unit_block, #id3],
                        iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%b, %bs3 : !rhs, tensor<128x8x1xi8>) outs(%eb : tensor<128x8x32xf32>) {
  ^bb0(%x: f4E2M1FN, %s: i8, %o: f32):
    %0 = arith.bitcast %s : i8 to f8E8M0FNU
    %1 = arith.scaling_extf %x, %0 : f4E2M1FN, f8E8M0FNU to f32
    linalg.yield %1 : f32
  } -> tensor<128x8x32xf32>
  %cb = tensor.collapse_shape %db [[0], [1, 2]] : tensor<128x8x32xf32> into tensor<128x256xf32>
  %et = tensor.empty() : tensor<256x128xf32>
  %tb = linalg.generic {indexing_maps = [#id2, affine_map<(r, k) -> (k, r)>], iterator_types = ["parallel", "parallel"]}
      ins(%cb : tensor<128x256xf32>) outs(%et : tensor<256x128xf32>) {
  ^bb0(%x: f32, %o: f32):
    linalg.yield %x : f32
  } -> tensor<256x128xf32>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty(%m) : tensor<?x128xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x128xf32>) -> tensor<?x128xf32>
  %r = linalg.matmul ins(%ca, %tb : tensor<?x256xf32>, tensor<256x128xf32>) outs(%init : tensor<?x128xf32>)
      -> tensor<?x128xf32>
  util.return %r : tensor<?x128xf32>
}

// One row and one block: dimensions of size 1 leave no trace in subscripts.
// CHECK-LABEL: util.func public @one_row_one_block(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<1x1x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x1x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<1x1xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<128x1xf8E8M0FNU>)
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[A]], %[[B]], %[[AS]], %[[BS]] :
// CHECK-SAME: outs(%{{.+}} : tensor<1x128xf32>)
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @one_row_one_block(%a: tensor<1x1x32xf4E2M1FN>, %b: tensor<128x1x32xf4E2M1FN>, %as: tensor<1x1xf8E8M0FNU>,
                             %bs: tensor<128x1xf8E8M0FNU>) -> tensor<1x128xf32> {
  %init = arith.constant dense<0.0> : tensor<1x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<1x1x32xf4E2M1FN>, tensor<128x1x32xf4E2M1FN>, tensor<1x1xf8E8M0FNU>,
                             tensor<128x1xf8E8M0FNU>)
      outs(%init : tensor<1x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1x128xf32>
  util.return %r : tensor<1x128xf32>
}

// After linalg-generalize-named-ops: even the zeros are a generic.
// CHECK-LABEL: util.func public @generalised_fill(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>,
// CHECK: %[[ZERO:.+]] = linalg.generic
// CHECK: linalg.yield
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[A]],
// CHECK-SAME: outs(%[[ZERO]] : tensor<64x128xf32>)
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @generalised_fill(%a: !lhs, %b: !rhs, %as: !lhs_scale, %bs: !rhs_scale) -> !out {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : !out
  %init = linalg.generic {indexing_maps = [affine_map<(m, n) -> ()>, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%zero : f32) outs(%empty : !out) {
  ^bb0(%x: f32, %o: f32):
    linalg.yield %x : f32
  } -> !out
  %r = linalg.scaled_contract indexing_maps = [#lhs, #lhs_scale, #rhs, #rhs_scale, #out]
      ins(%a, %as, %b, %bs : !lhs, !lhs_scale, !rhs, !rhs_scale) outs(%init : !out) -> !out
  util.return %r : !out
}

// Elements are multiplied first, and their scales.
// CHECK-LABEL: util.func public @scales_multiplied(
// CHECK-SAME: %[[A:[a-z0-9_]+]]: tensor<64x8x32xf4E2M1FN>, %[[B:[a-z0-9_]+]]: tensor<128x8x32xf4E2M1FN>,
// CHECK-SAME: %[[AS:[a-z0-9_]+]]: tensor<64x8xf8E8M0FNU>, %[[BS:[a-z0-9_]+]]: tensor<8xf8E8M0FNU>)
// CHECK: linalg.generic
// CHECK: tensor.extract %[[BS]]
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[A]], %[[B]], %[[AS]],
// CHECK-SAME: mxcomp.scaled_matmul = {}
util.func @scales_multiplied(%a: !lhs, %b: !rhs, %as: !lhs_scale, %bs: tensor<8xf8E8M0FNU>) -> !out {
  %init = arith.constant dense<0.0> : !out
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, affine_map<(m, n, ko, kb) -> (ko)>, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : !lhs, !rhs, !lhs_scale, tensor<8xf8E8M0FNU>) outs(%init : !out) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.extf %x : f4E2M1FN to f32
    %1 = arith.extf %y : f4E2M1FN to f32
    %2 = arith.extf %xs : f8E8M0FNU to f32
    %3 = arith.extf %ys : f8E8M0FNU to f32
    %4 = arith.mulf %0, %1 : f32
    %5 = arith.mulf %3, %2 : f32
    %6 = math.fma %4, %5, %acc : f32
    linalg.yield %6 : f32
  } -> !out
  util.return %r : !out
}
