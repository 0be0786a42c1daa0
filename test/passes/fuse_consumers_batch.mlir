// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode,mxcomp-fuse-consumers)' | filecheck %s

// Consumers of a product with three dimensions: of a batch of both operands, and of a batch that counts as rows.

// CHECK-DAG: #[[ALL:.+]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-DAG: #[[ROWS:.+]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-DAG: #[[M:.+]] = affine_map<(d0, d1, d2) -> (d1)>
// CHECK-DAG: #[[ID:.+]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[ROW:.+]] = affine_map<(d0, d1) -> (d0)>
// CHECK-DAG: #[[INSIDE:.+]] = affine_map<(d0, d1) -> (d0 mod 64)>

// CHECK-LABEL: util.func public @both(
// CHECK: linalg.generic {indexing_maps = [#[[ALL]], #[[ROWS]], #[[M]], #[[ALL]]]
// CHECK-SAME: mxcomp.epilogue
// CHECK: iree_encoding.unset_encoding
// CHECK-NEXT: util.return
util.func @both(%a: tensor<4x64x8x32xf4E2M1FN>, %b: tensor<4x128x8x32xf4E2M1FN>, %as: tensor<4x64x8xf8E8M0FNU>,
    %bs: tensor<4x128x8xf8E8M0FNU>,
    %rows: tensor<4x64xf32>, %m: tensor<64xf32>) -> tensor<4x64x128xf32> {
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
  %y_empty = tensor.empty() : tensor<4x64x128xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m)>,
                                        affine_map<(b, m, n) -> (m)>, affine_map<(b, m, n) -> (b, m, n)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r, %rows, %m : tensor<4x64x128xf32>, tensor<4x64xf32>, tensor<64xf32>)
      outs(%y_empty : tensor<4x64x128xf32>) {
  ^bb0(%v: f32, %f: f32, %g: f32, %o: f32):
    %4 = arith.mulf %v, %f : f32
    %5 = arith.addf %4, %g : f32
    linalg.yield %5 : f32
  } -> tensor<4x64x128xf32>
  util.return %y : tensor<4x64x128xf32>
}

// Operands of the consumer follow: those of whole rows are collapsed, others indexed by parts of the row.
// CHECK-LABEL: util.func public @of_lhs(
// CHECK-SAME: %[[F:[a-z0-9]+]]: tensor<4x64xf32>, %[[G:[a-z0-9]+]]: tensor<64xf32>) ->
// CHECK: %[[FC:.+]] = tensor.collapse_shape %[[F]] {{\[}}[0, 1]] : tensor<4x64xf32> into tensor<256xf32>
// CHECK: linalg.generic {indexing_maps = [#[[ID]], #[[ROW]], #[[INSIDE]], #[[ID]]]
// CHECK-SAME: ins(%{{.+}}, %[[FC]], %[[G]] :
// CHECK-SAME: mxcomp.epilogue
// CHECK: %[[Y:.+]] = iree_encoding.unset_encoding
// CHECK-NEXT: %[[E:.+]] = tensor.expand_shape %[[Y]]
// CHECK-NEXT: util.return %[[E]]
util.func @of_lhs(%a: tensor<4x64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<4x64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>,
    %rows: tensor<4x64xf32>, %m: tensor<64xf32>) -> tensor<4x64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<4x64x128xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(b, m, n, ko, kb) -> (b, m, ko, kb)>,
                                        affine_map<(b, m, n, ko, kb) -> (n, ko, kb)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, m, ko)>,
                                        affine_map<(b, m, n, ko, kb) -> (n, ko)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, m, n)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<4x64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<4x64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<4x64x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<4x64x128xf32>
  %y_empty = tensor.empty() : tensor<4x64x128xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m)>,
                                        affine_map<(b, m, n) -> (m)>, affine_map<(b, m, n) -> (b, m, n)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r, %rows, %m : tensor<4x64x128xf32>, tensor<4x64xf32>, tensor<64xf32>)
      outs(%y_empty : tensor<4x64x128xf32>) {
  ^bb0(%v: f32, %f: f32, %g: f32, %o: f32):
    %4 = arith.mulf %v, %f : f32
    %5 = arith.addf %4, %g : f32
    linalg.yield %5 : f32
  } -> tensor<4x64x128xf32>
  util.return %y : tensor<4x64x128xf32>
}

// A quantised result stays behind the expansion: its blocks are for the packing of what follows.
// CHECK-LABEL: util.func public @quantised(
// CHECK-NOT: mxcomp.epilogue
// CHECK: iree_encoding.unset_encoding
// CHECK: tensor.expand_shape
// CHECK: arith.truncf {{.*}} : f32 to f8E4M3FN
util.func @quantised(%a: tensor<4x64x8x32xf4E2M1FN>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<4x64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>,
    %rows: tensor<4x64xf32>, %m: tensor<64xf32>) -> tensor<4x64x128xf8E4M3FN> {
  %init = arith.constant dense<0.0> : tensor<4x64x128xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(b, m, n, ko, kb) -> (b, m, ko, kb)>,
                                        affine_map<(b, m, n, ko, kb) -> (n, ko, kb)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, m, ko)>,
                                        affine_map<(b, m, n, ko, kb) -> (n, ko)>,
                                        affine_map<(b, m, n, ko, kb) -> (b, m, n)>],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<4x64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<4x64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<4x64x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<4x64x128xf32>
  %y_empty = tensor.empty() : tensor<4x64x128xf8E4M3FN>
  %y = linalg.generic {indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<4x64x128xf32>) outs(%y_empty : tensor<4x64x128xf8E4M3FN>) {
  ^bb0(%v: f32, %o: f8E4M3FN):
    %4 = arith.truncf %v : f32 to f8E4M3FN
    linalg.yield %4 : f8E4M3FN
  } -> tensor<4x64x128xf8E4M3FN>
  util.return %y : tensor<4x64x128xf8E4M3FN>
}
