// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-unpack-elements,mxcomp-keep-reads-behind)' | filecheck %s
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-unpack-elements,mxcomp-keep-reads-behind,mxcomp-unpack-elements,mxcomp-keep-reads-behind)' | filecheck %s

// Parts of what is computed from elements of less than a byte are read from memory: IREE would move such a read in front
// of the computation, and cannot load parts of bytes.

#id = affine_map<(m, k) -> (m, k)>
#row = affine_map<(m, k) -> (m)>

// A slice, and others of the same tensor: of fewer dimensions, and with steps.
// CHECK-LABEL: util.func public @slices(
// CHECK: %[[D:.+]] = linalg.generic {{.*}}f4E2M1FN
// CHECK: %[[H:.+]] = util.optimization_barrier %[[D]] : tensor<64x64xf32>
// CHECK-NOT: util.optimization_barrier
// CHECK: tensor.extract_slice %[[H]][0, 3] [64, 9] [1, 1]
// CHECK: tensor.extract_slice %[[H]][7, 0] [1, 64] [1, 1]
// CHECK: tensor.extract_slice %[[H]][0, 0] [32, 64] [2, 1]
util.func @slices(%w: tensor<64x64xf4E2M1FN>) -> (tensor<64x9xf32>, tensor<64xf32>, tensor<32x64xf32>) {
  %e = tensor.empty() : tensor<64x64xf32>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<64x64xf4E2M1FN>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%i: f4E2M1FN, %o: f32):
    %x = arith.extf %i : f4E2M1FN to f32
    linalg.yield %x : f32
  } -> tensor<64x64xf32>
  %s = tensor.extract_slice %d[0, 3] [64, 9] [1, 1] : tensor<64x64xf32> to tensor<64x9xf32>
  %r = tensor.extract_slice %d[7, 0] [1, 64] [1, 1] : tensor<64x64xf32> to tensor<64xf32>
  %t = tensor.extract_slice %d[0, 0] [32, 64] [2, 1] : tensor<64x64xf32> to tensor<32x64xf32>
  util.return %s, %r, %t : tensor<64x9xf32>, tensor<64xf32>, tensor<32x64xf32>
}

// Also of what is computed on: reshaped, added up; sizes that are dynamic stay known.
// CHECK-LABEL: util.func public @later(
// CHECK: %[[S:.+]] = linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: %[[H:.+]] = util.optimization_barrier %[[S]] : tensor<?xf32>
// CHECK: %[[T:.+]] = flow.tensor.tie_shape %[[H]] : tensor<?xf32>{%{{.+}}}
// CHECK: tensor.extract_slice %[[T]][1] [2] [1]
util.func @later(%w: tensor<?x64xf4E2M1FN>, %m: index) -> tensor<2xf32> {
  %e = tensor.empty(%m) : tensor<?x64xf32>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<?x64xf4E2M1FN>) outs(%e : tensor<?x64xf32>) {
  ^bb0(%i: f4E2M1FN, %o: f32):
    %x = arith.extf %i : f4E2M1FN to f32
    linalg.yield %x : f32
  } -> tensor<?x64xf32>
  %b = tensor.expand_shape %d [[0], [1, 2]] output_shape [%m, 2, 32] : tensor<?x64xf32> into tensor<?x2x32xf32>
  %c = tensor.collapse_shape %b [[0], [1, 2]] : tensor<?x2x32xf32> into tensor<?x64xf32>
  %zero = arith.constant 0.0 : f32
  %v = tensor.empty(%m) : tensor<?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%v : tensor<?xf32>) -> tensor<?xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%c : tensor<?x64xf32>) outs(%z : tensor<?xf32>) {
  ^bb0(%i: f32, %o: f32):
    %x = arith.addf %o, %i : f32
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %r = tensor.extract_slice %s[1] [2] [1] : tensor<?xf32> to tensor<2xf32>
  util.return %r : tensor<2xf32>
}

// Codes of which a slice is taken, and those that are gathered into bytes.
// CHECK-LABEL: util.func public @codes(
// CHECK: %[[C:.+]] = linalg.generic {{.*}} ins(%{{.+}} : tensor<64x2xf4E2M1FN>) outs(%{{.+}} : tensor<64x2xi8>)
// CHECK: %[[H:.+]] = util.optimization_barrier %[[C]] : tensor<64x2xi8>
// CHECK: tensor.extract_slice %[[H]][0, 1] [64, 1] [1, 1]
// CHECK: %[[F:.+]] = tensor.collapse_shape %{{.+}} : tensor<64x2xi8> into tensor<128xi8>
// CHECK: %[[G:.+]] = util.optimization_barrier %[[F]] : tensor<128xi8>
// CHECK: tensor.extract %[[G]]
util.func @codes(%w: tensor<64x2xf4E2M1FN>) -> (tensor<64x1xf32>, tensor<64x1xi8>) {
  %s = tensor.extract_slice %w[0, 1] [64, 1] [1, 1] : tensor<64x2xf4E2M1FN> to tensor<64x1xf4E2M1FN>
  %e = tensor.empty() : tensor<64x1xf32>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x1xf4E2M1FN>) outs(%e : tensor<64x1xf32>) {
  ^bb0(%i: f4E2M1FN, %o: f32):
    %x = arith.extf %i : f4E2M1FN to f32
    linalg.yield %x : f32
  } -> tensor<64x1xf32>
  %f = tensor.empty() : tensor<64x2xf4E2M1FN>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<64x2xf4E2M1FN>) outs(%f : tensor<64x2xf4E2M1FN>) {
  ^bb0(%i: f4E2M1FN, %o: f4E2M1FN):
    %c = arith.constant -8 : i4
    %x = arith.bitcast %i : f4E2M1FN to i4
    %y = arith.xori %x, %c : i4
    %z = arith.bitcast %y : i4 to f4E2M1FN
    linalg.yield %z : f4E2M1FN
  } -> tensor<64x2xf4E2M1FN>
  %b = iree_tensor_ext.bitcast %n : tensor<64x2xf4E2M1FN> -> tensor<64x1xi8>
  util.return %d, %b : tensor<64x1xf32>, tensor<64x1xi8>
}

// Slices that nothing uses make nothing, and of eight bits IREE loads parts.
// CHECK-LABEL: util.func public @left(
// CHECK-NOT: util.optimization_barrier
// CHECK: util.return
util.func @left(%w: tensor<64x64xf4E2M1FN>, %v: tensor<64x64xf8E4M3FN>) -> tensor<64x9xf32> {
  %e = tensor.empty() : tensor<64x64xf32>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<64x64xf4E2M1FN>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%i: f4E2M1FN, %o: f32):
    %x = arith.extf %i : f4E2M1FN to f32
    linalg.yield %x : f32
  } -> tensor<64x64xf32>
  %u = tensor.extract_slice %d[0, 0] [64, 3] [1, 1] : tensor<64x64xf32> to tensor<64x3xf32>
  %c = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%v : tensor<64x64xf8E4M3FN>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%i: f8E4M3FN, %o: f32):
    %x = arith.extf %i : f8E4M3FN to f32
    linalg.yield %x : f32
  } -> tensor<64x64xf32>
  %r = tensor.extract_slice %c[0, 3] [64, 9] [1, 1] : tensor<64x64xf32> to tensor<64x9xf32>
  util.return %r : tensor<64x9xf32>
}
