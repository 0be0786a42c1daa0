// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-unpack-elements)' | filecheck %s

// Tensors of less than a byte that are computed and stored are computed as codes, and stored without gaps.

#element = affine_map<(m, ko, kb) -> (m, ko, kb)>
#block = affine_map<(m, ko, kb) -> (m, ko)>
#id = affine_map<(m, k) -> (m, k)>

// CHECK-DAG: #[[BIT:.+]] = affine_map<(d0, d1) -> (d0 * -64 + d1 * 6)>
// CHECK-LABEL: util.func public @scaled(
// CHECK: %[[CODES:.+]] = linalg.generic {{.*}} ins(%{{.+}}, %{{.+}} : tensor<64x8x32xf32>, tensor<64x8xf8E8M0FNU>) outs(%{{.+}} : tensor<64x8x32xi8>)
// CHECK-NOT: arith.scaling_truncf
// CHECK: math.roundeven
// CHECK: %[[WORDS:.+]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%[[CODES]] : tensor<64x8x32xi8>) outs(%{{.+}} : tensor<64x8x3xi64>)
// CHECK: affine.apply #[[BIT]]
// CHECK: arith.ori
// CHECK: iree_tensor_ext.bitcast %[[WORDS]] : tensor<64x8x3xi64> -> tensor<64x8x32xf6E2M3FN>
util.func @scaled(%x: tensor<64x8x32xf32>, %s: tensor<64x8xf8E8M0FNU>) -> tensor<64x8x24xi8> {
  %e = tensor.empty() : tensor<64x8x32xf6E2M3FN>
  %q = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s : tensor<64x8x32xf32>, tensor<64x8xf8E8M0FNU>) outs(%e : tensor<64x8x32xf6E2M3FN>) {
  ^bb0(%i: f32, %j: f8E8M0FNU, %o: f6E2M3FN):
    %t = arith.scaling_truncf %i, %j : f32, f8E8M0FNU to f6E2M3FN
    linalg.yield %t : f6E2M3FN
  } -> tensor<64x8x32xf6E2M3FN>
  %b = iree_tensor_ext.bitcast %q : tensor<64x8x32xf6E2M3FN> -> tensor<64x8x24xi8>
  util.return %b : tensor<64x8x24xi8>
}

// Blocks are found in rows; M may be dynamic.
// CHECK-LABEL: util.func public @rows(
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<?x64xi8>)
// CHECK: tensor.expand_shape {{.*}} : tensor<?x64xi8> into tensor<?x2x32xi8>
// CHECK: iree_tensor_ext.bitcast %{{.+}} : tensor<?x2x3xi64>{{.*}} -> tensor<?x64xf6E3M2FN>
util.func @rows(%x: tensor<?x64xbf16>, %m: index) -> tensor<?x48xi8> {
  %e = tensor.empty(%m) : tensor<?x64xf6E3M2FN>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x64xbf16>) outs(%e : tensor<?x64xf6E3M2FN>) {
  ^bb0(%i: bf16, %o: f6E3M2FN):
    %t = arith.truncf %i : bf16 to f6E3M2FN
    linalg.yield %t : f6E3M2FN
  } -> tensor<?x64xf6E3M2FN>
  %b = iree_tensor_ext.bitcast %q : tensor<?x64xf6E3M2FN>{%m} -> tensor<?x48xi8>{%m}
  util.return %b : tensor<?x48xi8>
}

// 4-bit elements and what only moves 6-bit ones, in rows that are no whole blocks as well.
// CHECK-LABEL: util.func public @others(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<64x32xf32>, %[[Y:[a-z0-9]+]]: tensor<8x64xf6E2M3FN>
// CHECK: %[[FP4:.+]] = linalg.generic {{.*}} ins(%[[X]] : tensor<64x32xf32>) outs(%{{.+}} : tensor<64x32xi8>)
// CHECK: %[[NARROW:.+]] = arith.scaling_truncf %{{.+}}, %{{.+}} : f32, f8E8M0FNU to f4E2M1FN
// CHECK: %[[BITS:.+]] = arith.bitcast %[[NARROW]] : f4E2M1FN to i4
// CHECK: arith.extui %[[BITS]] : i4 to i8
// CHECK: %[[WORDS:.+]] = linalg.generic {{.*}} ins(%[[FP4]] : tensor<64x32xi8>) outs(%{{.+}} : tensor<64x2xi64>)
// CHECK: iree_tensor_ext.bitcast %[[WORDS]] : tensor<64x2xi64> -> tensor<64x32xf4E2M1FN>
// CHECK: %[[STORED:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<8x64xi8>)
// CHECK: %[[KEPT:.+]] = util.optimization_barrier %[[STORED]] : tensor<8x64xi8>
// CHECK: %[[MOVED:.+]] = linalg.generic {{.*}} ins(%[[KEPT]] : tensor<8x64xi8>) outs(%{{.+}} : tensor<64x8xi8>)
// CHECK: %[[FLAT:.+]] = tensor.collapse_shape %[[MOVED]] {{\[}}[0, 1]] : tensor<64x8xi8> into tensor<512xi8>
// CHECK: %[[BYTES:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<384xi8>)
// CHECK: tensor.extract %[[FLAT]]
// CHECK: iree_tensor_ext.bitcast %[[BYTES]] : tensor<384xi8> -> tensor<64x8xf6E2M3FN>
util.func @others(%x: tensor<64x32xf32>, %y: tensor<8x64xf6E2M3FN>) -> (tensor<64x32xf4E2M1FN>, tensor<64x8xf6E2M3FN>) {
  %one = arith.constant 1.0 : f8E8M0FNU
  %e = tensor.empty() : tensor<64x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x32xf32>) outs(%e : tensor<64x32xf4E2M1FN>) {
  ^bb0(%i: f32, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %one : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<64x32xf4E2M1FN>
  %f = tensor.empty() : tensor<64x8xf6E2M3FN>
  %z = linalg.generic {indexing_maps = [affine_map<(m, k) -> (k, m)>, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<8x64xf6E2M3FN>) outs(%f : tensor<64x8xf6E2M3FN>) {
  ^bb0(%i: f6E2M3FN, %o: f6E2M3FN):
    linalg.yield %i : f6E2M3FN
  } -> tensor<64x8xf6E2M3FN>
  util.return %q, %z : tensor<64x32xf4E2M1FN>, tensor<64x8xf6E2M3FN>
}

// What linalg reads of it again, it reads as codes; nothing is stored without gaps.
// CHECK-LABEL: util.func public @read_again(
// CHECK: %[[CODES:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<64x32xi8>)
// CHECK: %[[SLICE:.+]] = tensor.extract_slice %[[CODES]][8, 0] [2, 32] [1, 1] : tensor<64x32xi8> to tensor<2x32xi8>
// CHECK: %[[READ:.+]] = linalg.generic {{.*}} ins(%[[SLICE]] : tensor<2x32xi8>)
// CHECK-NEXT: ^bb0(%[[CODE:.+]]: i8, %{{.+}}: f32):
// CHECK-NEXT: %[[BITS:.+]] = arith.trunci %[[CODE]] : i8 to i4
// CHECK-NEXT: %[[ELEMENT:.+]] = arith.bitcast %[[BITS]] : i4 to f4E2M1FN
// CHECK-NEXT: arith.extf %[[ELEMENT]] : f4E2M1FN to f32
// CHECK-NOT: i64
// CHECK: util.return %[[READ]]
util.func @read_again(%x: tensor<64x32xf32>) -> tensor<2x32xf32> {
  %one = arith.constant 1.0 : f8E8M0FNU
  %e = tensor.empty() : tensor<64x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x32xf32>) outs(%e : tensor<64x32xf4E2M1FN>) {
  ^bb0(%i: f32, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %one : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<64x32xf4E2M1FN>
  %s = tensor.extract_slice %q[8, 0] [2, 32] [1, 1] : tensor<64x32xf4E2M1FN> to tensor<2x32xf4E2M1FN>
  %f = tensor.empty() : tensor<2x32xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<2x32xf4E2M1FN>) outs(%f : tensor<2x32xf32>) {
  ^bb0(%i: f4E2M1FN, %o: f32):
    %t = arith.extf %i : f4E2M1FN to f32
    linalg.yield %t : f32
  } -> tensor<2x32xf32>
  util.return %y : tensor<2x32xf32>
}

// 4-bit elements that are only loaded stay as they are: IREE does that well. So do 6-bit ones that are only encoded.
// CHECK-LABEL: util.func public @left(
// CHECK: linalg.generic {{.*}} ins(%{{.+}} : tensor<64x32xf4E2M1FN>) outs(%{{.+}} : tensor<64x32xf32>)
util.func @left(%x: tensor<64x32xf4E2M1FN>) -> tensor<64x32xf32> {
  %f = tensor.empty() : tensor<64x32xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x32xf4E2M1FN>) outs(%f : tensor<64x32xf32>) {
  ^bb0(%i: f4E2M1FN, %o: f32):
    %t = arith.extf %i : f4E2M1FN to f32
    linalg.yield %t : f32
  } -> tensor<64x32xf32>
  util.return %y : tensor<64x32xf32>
}

// What a reduction reads a slice of is gathered from bytes before, and kept: as a part of it the gather would be wrong.
// CHECK-LABEL: util.func public @sliced_and_reduced(
// CHECK: %[[CODES:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<4x64xi8>)
// CHECK: %[[KEPT:.+]] = util.optimization_barrier %[[CODES]] : tensor<4x64xi8>
// CHECK: %[[SLICE:.+]] = tensor.extract_slice %[[KEPT]][2, 0] [2, 64] [1, 1] : tensor<4x64xi8> to tensor<2x64xi8>
// CHECK: %[[DECODED:.+]] = linalg.generic {{.*}} ins(%[[SLICE]] : tensor<2x64xi8>) outs(%{{.+}} : tensor<2x64xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[DECODED]] : tensor<2x64xf32>) outs(%{{.+}} : tensor<2xf32>)
util.func @sliced_and_reduced(%x: tensor<4x64xf6E2M3FN>, %init: tensor<2xf32>) -> tensor<2xf32> {
  %s = tensor.extract_slice %x[2, 0] [2, 64] [1, 1] : tensor<4x64xf6E2M3FN> to tensor<2x64xf6E2M3FN>
  %y = linalg.generic {indexing_maps = [#id, affine_map<(m, k) -> (m)>], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<2x64xf6E2M3FN>) outs(%init : tensor<2xf32>) {
  ^bb0(%i: f6E2M3FN, %o: f32):
    %t = arith.extf %i : f6E2M3FN to f32
    %u = arith.addf %t, %o : f32
    linalg.yield %u : f32
  } -> tensor<2xf32>
  util.return %y : tensor<2xf32>
}
