// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-join-rotations)' | filecheck %s

#all = affine_map<(d0, d1) -> (d0, d1)>
#table = affine_map<(d0, d1) -> (0, d1)>
#of3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#row3 = affine_map<(d0, d1, d2) -> (d1, d2)>

// Queries and keys are rotated by one dispatch, with the cosines of angles; each is a part of its rows.

// CHECK-LABEL: util.func public @both(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<4x64xbf16>, %[[K:[a-z0-9]+]]: tensor<2x64xbf16>, %[[ANGLES:[a-z0-9]+]]: tensor<1x32xf32>
// CHECK-NOT: tensor.concat
// CHECK: %[[ROWS:.+]] = flow.dispatch.region -> (tensor<6x64xbf16>)
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} outs({{.*}} : tensor<6x64xbf16>) attrs = {compilation_info
// CHECK-COUNT-3: tensor.extract %[[K]]
// CHECK-COUNT-3: tensor.extract %[[Q]]
// CHECK: }
// CHECK-NOT: linalg.generic
// CHECK: %[[FIRST:.+]] = tensor.extract_slice %[[ROWS]][0, 0] [4, 64] [1, 1]
// CHECK: %[[SECOND:.+]] = tensor.extract_slice %[[ROWS]][4, 0] [2, 64] [1, 1]
// CHECK-NOT: tensor.concat
// CHECK: util.return
util.func public @both(%q: tensor<4x64xbf16>, %k: tensor<2x64xbf16>, %angles: tensor<1x32xf32>)
    -> (tensor<4x64xbf16>, tensor<2x64xbf16>) {
  %twice = tensor.concat dim(1) %angles, %angles : (tensor<1x32xf32>, tensor<1x32xf32>) -> tensor<1x64xf32>
  %row = tensor.empty() : tensor<1x64xbf16>
  %cos = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%twice : tensor<1x64xf32>) outs(%row : tensor<1x64xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = math.cos %in : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<1x64xbf16>
  %q0 = tensor.extract_slice %q[0, 0] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %q1 = tensor.extract_slice %q[0, 32] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %qt = tensor.concat dim(1) %q1, %q0 : (tensor<4x32xbf16>, tensor<4x32xbf16>) -> tensor<4x64xbf16>
  %rows4 = tensor.empty() : tensor<4x64xbf16>
  %qr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%q, %cos, %qt : tensor<4x64xbf16>, tensor<1x64xbf16>, tensor<4x64xbf16>) outs(%rows4 : tensor<4x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<4x64xbf16>
  %k0 = tensor.extract_slice %k[0, 0] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %k1 = tensor.extract_slice %k[0, 32] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %kt = tensor.concat dim(1) %k1, %k0 : (tensor<2x32xbf16>, tensor<2x32xbf16>) -> tensor<2x64xbf16>
  %rows2 = tensor.empty() : tensor<2x64xbf16>
  %kr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%k, %cos, %kt : tensor<2x64xbf16>, tensor<1x64xbf16>, tensor<2x64xbf16>) outs(%rows2 : tensor<2x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x64xbf16>
  util.return %qr, %kr : tensor<4x64xbf16>, tensor<2x64xbf16>
}

// Of many elements there is no sine for each: the table is one operation, and the rotation another, not in a region.

// CHECK-LABEL: util.func public @many(
// CHECK-NOT: flow.dispatch.region
// CHECK: %[[TABLE:.+]] = linalg.generic {{.*}} outs({{.*}} : tensor<2048x64xf32>)
// CHECK: math.sin
// CHECK: linalg.generic {{.*}} outs({{.*}} : tensor<2048x64xf32>)
// CHECK-NOT: math.sin
// CHECK: tensor.extract %[[TABLE]]
// CHECK-NOT: linalg.generic
// CHECK-NOT: tensor.concat
// CHECK: util.return
util.func public @many(%x: tensor<2048x64xf32>, %angles: tensor<2048x32xf32>) -> tensor<2048x64xf32> {
  %twice = tensor.concat dim(1) %angles, %angles : (tensor<2048x32xf32>, tensor<2048x32xf32>) -> tensor<2048x64xf32>
  %none = tensor.empty() : tensor<2048x64xf32>
  %sin = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%twice : tensor<2048x64xf32>) outs(%none : tensor<2048x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.sin %in : f32
    linalg.yield %0 : f32
  } -> tensor<2048x64xf32>
  %x0 = tensor.extract_slice %x[0, 0] [2048, 32] [1, 1] : tensor<2048x64xf32> to tensor<2048x32xf32>
  %x1 = tensor.extract_slice %x[0, 32] [2048, 32] [1, 1] : tensor<2048x64xf32> to tensor<2048x32xf32>
  %xt = tensor.concat dim(1) %x1, %x0 : (tensor<2048x32xf32>, tensor<2048x32xf32>) -> tensor<2048x64xf32>
  %r = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%xt, %sin : tensor<2048x64xf32>, tensor<2048x64xf32>) outs(%none : tensor<2048x64xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2048x64xf32>
  util.return %r : tensor<2048x64xf32>
}

// Two tables are one operation.

// CHECK-LABEL: util.func public @tables(
// CHECK: %[[TABLES:.+]]:2 = flow.dispatch.region -> (tensor<2048x64xf32>, tensor<2048x64xf32>)
// CHECK: math.sin
// CHECK: math.cos
// CHECK: flow.return
// CHECK-NOT: {{math.(cos|sin)}}
// CHECK: util.return
util.func public @tables(%x: tensor<2048x64xf32>, %angles: tensor<2048x32xf32>) -> tensor<2048x64xf32> {
  %twice = tensor.concat dim(1) %angles, %angles : (tensor<2048x32xf32>, tensor<2048x32xf32>) -> tensor<2048x64xf32>
  %none = tensor.empty() : tensor<2048x64xf32>
  %cos = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%twice : tensor<2048x64xf32>) outs(%none : tensor<2048x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.cos %in : f32
    linalg.yield %0 : f32
  } -> tensor<2048x64xf32>
  %sin = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%twice : tensor<2048x64xf32>) outs(%none : tensor<2048x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.sin %in : f32
    linalg.yield %0 : f32
  } -> tensor<2048x64xf32>
  %x0 = tensor.extract_slice %x[0, 0] [2048, 32] [1, 1] : tensor<2048x64xf32> to tensor<2048x32xf32>
  %x1 = tensor.extract_slice %x[0, 32] [2048, 32] [1, 1] : tensor<2048x64xf32> to tensor<2048x32xf32>
  %xt = tensor.concat dim(1) %x1, %x0 : (tensor<2048x32xf32>, tensor<2048x32xf32>) -> tensor<2048x64xf32>
  %r = linalg.generic {indexing_maps = [#all, #all, #all, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %cos, %xt, %sin : tensor<2048x64xf32>, tensor<2048x64xf32>, tensor<2048x64xf32>, tensor<2048x64xf32>)
      outs(%none : tensor<2048x64xf32>) {
  ^bb0(%a: f32, %c: f32, %b: f32, %s: f32, %out: f32):
    %0 = arith.mulf %a, %c : f32
    %1 = arith.mulf %b, %s : f32
    %2 = arith.addf %0, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<2048x64xf32>
  util.return %r : tensor<2048x64xf32>
}

// Queries and keys of many tokens are rotated, and values of the same product transposed, by one kernel. A workgroup has
// a token.

// CHECK-LABEL: util.func public @fused(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<128x1280xbf16>
// CHECK: %[[TABLE:.+]] = linalg.generic {{.*}} outs({{.*}} : tensor<128x64xbf16>)
// CHECK: math.cos
// CHECK-NOT: linalg.generic
// CHECK: %[[ALL:.+]]:3 = flow.dispatch.region -> (tensor<16x128x64xbf16>, tensor<2x128x64xbf16>, tensor<2x128x64xbf16>)
// CHECK: linalg.generic
// CHECK-SAME: #iree_codegen.ukernel_descriptor<"mx_elementwise_16x128x64_2x128x64_2x128x64"
// CHECK-NOT: {{tensor.concat|linalg.transpose}}
// CHECK: util.return
util.func public @fused(%x: tensor<128x1280xbf16>, %angles: tensor<128x64xf32>)
    -> (tensor<16x128x64xbf16>, tensor<2x128x64xbf16>, tensor<2x128x64xbf16>) {
  %row = tensor.empty() : tensor<128x64xbf16>
  %cos = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%angles : tensor<128x64xf32>) outs(%row : tensor<128x64xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = math.cos %in : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<128x64xbf16>
  %e16 = tensor.empty() : tensor<16x128x64xbf16>
  %e2 = tensor.empty() : tensor<2x128x64xbf16>
  %qs = tensor.extract_slice %x[0, 0] [128, 1024] [1, 1] : tensor<128x1280xbf16> to tensor<128x1024xbf16>
  %qh = tensor.expand_shape %qs [[0], [1, 2]] output_shape [128, 16, 64] : tensor<128x1024xbf16> into tensor<128x16x64xbf16>
  %q = linalg.transpose ins(%qh : tensor<128x16x64xbf16>) outs(%e16 : tensor<16x128x64xbf16>) permutation = [1, 0, 2]
  %ks = tensor.extract_slice %x[0, 1024] [128, 128] [1, 1] : tensor<128x1280xbf16> to tensor<128x128xbf16>
  %kh = tensor.expand_shape %ks [[0], [1, 2]] output_shape [128, 2, 64] : tensor<128x128xbf16> into tensor<128x2x64xbf16>
  %k = linalg.transpose ins(%kh : tensor<128x2x64xbf16>) outs(%e2 : tensor<2x128x64xbf16>) permutation = [1, 0, 2]
  %vs = tensor.extract_slice %x[0, 1152] [128, 128] [1, 1] : tensor<128x1280xbf16> to tensor<128x128xbf16>
  %vh = tensor.expand_shape %vs [[0], [1, 2]] output_shape [128, 2, 64] : tensor<128x128xbf16> into tensor<128x2x64xbf16>
  %v = linalg.transpose ins(%vh : tensor<128x2x64xbf16>) outs(%e2 : tensor<2x128x64xbf16>) permutation = [1, 0, 2]
  %q0 = tensor.extract_slice %q[0, 0, 0] [16, 128, 32] [1, 1, 1] : tensor<16x128x64xbf16> to tensor<16x128x32xbf16>
  %q1 = tensor.extract_slice %q[0, 0, 32] [16, 128, 32] [1, 1, 1] : tensor<16x128x64xbf16> to tensor<16x128x32xbf16>
  %qt = tensor.concat dim(2) %q1, %q0 : (tensor<16x128x32xbf16>, tensor<16x128x32xbf16>) -> tensor<16x128x64xbf16>
  %qr = linalg.generic {indexing_maps = [#of3, #row3, #of3, #of3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%q, %cos, %qt : tensor<16x128x64xbf16>, tensor<128x64xbf16>, tensor<16x128x64xbf16>) outs(%e16 : tensor<16x128x64xbf16>) {
  ^bb0(%x0: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x0, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<16x128x64xbf16>
  %k0 = tensor.extract_slice %k[0, 0, 0] [2, 128, 32] [1, 1, 1] : tensor<2x128x64xbf16> to tensor<2x128x32xbf16>
  %k1 = tensor.extract_slice %k[0, 0, 32] [2, 128, 32] [1, 1, 1] : tensor<2x128x64xbf16> to tensor<2x128x32xbf16>
  %kt = tensor.concat dim(2) %k1, %k0 : (tensor<2x128x32xbf16>, tensor<2x128x32xbf16>) -> tensor<2x128x64xbf16>
  %kr = linalg.generic {indexing_maps = [#of3, #row3, #of3, #of3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%k, %cos, %kt : tensor<2x128x64xbf16>, tensor<128x64xbf16>, tensor<2x128x64xbf16>) outs(%e2 : tensor<2x128x64xbf16>) {
  ^bb0(%x0: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x0, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x128x64xbf16>
  util.return %qr, %kr, %v : tensor<16x128x64xbf16>, tensor<2x128x64xbf16>, tensor<2x128x64xbf16>
}

// A transpose that is read in front of the last rotation stays, and so does what belongs to another tensor.

// CHECK-LABEL: util.func public @stays(
// CHECK: %[[V:.+]] = linalg.transpose
// CHECK: util.optimization_barrier %[[V]]
// CHECK: %[[ALL:.+]]:2 = flow.dispatch.region -> (tensor<16x128x64xbf16>, tensor<2x128x64xbf16>)
// CHECK: linalg.transpose
// CHECK: util.return
util.func public @stays(%x: tensor<128x1280xbf16>, %angles: tensor<128x64xf32>, %y: tensor<128x2x64xbf16>)
    -> (tensor<16x128x64xbf16>, tensor<2x128x64xbf16>, tensor<2x128x64xbf16>) {
  %row = tensor.empty() : tensor<128x64xbf16>
  %cos = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%angles : tensor<128x64xf32>) outs(%row : tensor<128x64xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = math.cos %in : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<128x64xbf16>
  %e16 = tensor.empty() : tensor<16x128x64xbf16>
  %e2 = tensor.empty() : tensor<2x128x64xbf16>
  %qs = tensor.extract_slice %x[0, 0] [128, 1024] [1, 1] : tensor<128x1280xbf16> to tensor<128x1024xbf16>
  %qh = tensor.expand_shape %qs [[0], [1, 2]] output_shape [128, 16, 64] : tensor<128x1024xbf16> into tensor<128x16x64xbf16>
  %q = linalg.transpose ins(%qh : tensor<128x16x64xbf16>) outs(%e16 : tensor<16x128x64xbf16>) permutation = [1, 0, 2]
  %ks = tensor.extract_slice %x[0, 1024] [128, 128] [1, 1] : tensor<128x1280xbf16> to tensor<128x128xbf16>
  %kh = tensor.expand_shape %ks [[0], [1, 2]] output_shape [128, 2, 64] : tensor<128x128xbf16> into tensor<128x2x64xbf16>
  %k = linalg.transpose ins(%kh : tensor<128x2x64xbf16>) outs(%e2 : tensor<2x128x64xbf16>) permutation = [1, 0, 2]
  %vs = tensor.extract_slice %x[0, 1152] [128, 128] [1, 1] : tensor<128x1280xbf16> to tensor<128x128xbf16>
  %vh = tensor.expand_shape %vs [[0], [1, 2]] output_shape [128, 2, 64] : tensor<128x128xbf16> into tensor<128x2x64xbf16>
  %v = linalg.transpose ins(%vh : tensor<128x2x64xbf16>) outs(%e2 : tensor<2x128x64xbf16>) permutation = [1, 0, 2]
  %read = util.optimization_barrier %v : tensor<2x128x64xbf16>
  %q0 = tensor.extract_slice %q[0, 0, 0] [16, 128, 32] [1, 1, 1] : tensor<16x128x64xbf16> to tensor<16x128x32xbf16>
  %q1 = tensor.extract_slice %q[0, 0, 32] [16, 128, 32] [1, 1, 1] : tensor<16x128x64xbf16> to tensor<16x128x32xbf16>
  %qt = tensor.concat dim(2) %q1, %q0 : (tensor<16x128x32xbf16>, tensor<16x128x32xbf16>) -> tensor<16x128x64xbf16>
  %qr = linalg.generic {indexing_maps = [#of3, #row3, #of3, #of3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%q, %cos, %qt : tensor<16x128x64xbf16>, tensor<128x64xbf16>, tensor<16x128x64xbf16>) outs(%e16 : tensor<16x128x64xbf16>) {
  ^bb0(%x0: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x0, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<16x128x64xbf16>
  %k0 = tensor.extract_slice %k[0, 0, 0] [2, 128, 32] [1, 1, 1] : tensor<2x128x64xbf16> to tensor<2x128x32xbf16>
  %k1 = tensor.extract_slice %k[0, 0, 32] [2, 128, 32] [1, 1, 1] : tensor<2x128x64xbf16> to tensor<2x128x32xbf16>
  %kt = tensor.concat dim(2) %k1, %k0 : (tensor<2x128x32xbf16>, tensor<2x128x32xbf16>) -> tensor<2x128x64xbf16>
  %kr = linalg.generic {indexing_maps = [#of3, #row3, #of3, #of3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%k, %cos, %kt : tensor<2x128x64xbf16>, tensor<128x64xbf16>, tensor<2x128x64xbf16>) outs(%e2 : tensor<2x128x64xbf16>) {
  ^bb0(%x0: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x0, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x128x64xbf16>
  %w = linalg.transpose ins(%y : tensor<128x2x64xbf16>) outs(%e2 : tensor<2x128x64xbf16>) permutation = [1, 0, 2]
  util.return %qr, %kr, %w : tensor<16x128x64xbf16>, tensor<2x128x64xbf16>, tensor<2x128x64xbf16>
}

// Queries that are read in front of keys are rotated apart from these; halves of odd sizes are in no pieces.

// CHECK-LABEL: util.func public @apart(
// CHECK-NOT: mx_elementwise_16x128x64_2x128x64
// CHECK: util.return
util.func public @apart(%x: tensor<128x1280xbf16>, %angles: tensor<128x64xf32>)
    -> (tensor<16x128x64xbf16>, tensor<2x128x64xbf16>, tensor<2x128x64xbf16>) {
  %row = tensor.empty() : tensor<128x64xbf16>
  %cos = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%angles : tensor<128x64xf32>) outs(%row : tensor<128x64xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = math.cos %in : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<128x64xbf16>
  %e16 = tensor.empty() : tensor<16x128x64xbf16>
  %e2 = tensor.empty() : tensor<2x128x64xbf16>
  %qs = tensor.extract_slice %x[0, 0] [128, 1024] [1, 1] : tensor<128x1280xbf16> to tensor<128x1024xbf16>
  %qh = tensor.expand_shape %qs [[0], [1, 2]] output_shape [128, 16, 64] : tensor<128x1024xbf16> into tensor<128x16x64xbf16>
  %q = linalg.transpose ins(%qh : tensor<128x16x64xbf16>) outs(%e16 : tensor<16x128x64xbf16>) permutation = [1, 0, 2]
  %ks = tensor.extract_slice %x[0, 1024] [128, 128] [1, 1] : tensor<128x1280xbf16> to tensor<128x128xbf16>
  %kh = tensor.expand_shape %ks [[0], [1, 2]] output_shape [128, 2, 64] : tensor<128x128xbf16> into tensor<128x2x64xbf16>
  %k = linalg.transpose ins(%kh : tensor<128x2x64xbf16>) outs(%e2 : tensor<2x128x64xbf16>) permutation = [1, 0, 2]
  %q0 = tensor.extract_slice %q[0, 0, 0] [16, 128, 32] [1, 1, 1] : tensor<16x128x64xbf16> to tensor<16x128x32xbf16>
  %q1 = tensor.extract_slice %q[0, 0, 32] [16, 128, 32] [1, 1, 1] : tensor<16x128x64xbf16> to tensor<16x128x32xbf16>
  %qt = tensor.concat dim(2) %q1, %q0 : (tensor<16x128x32xbf16>, tensor<16x128x32xbf16>) -> tensor<16x128x64xbf16>
  %qr = linalg.generic {indexing_maps = [#of3, #row3, #of3, #of3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%q, %cos, %qt : tensor<16x128x64xbf16>, tensor<128x64xbf16>, tensor<16x128x64xbf16>) outs(%e16 : tensor<16x128x64xbf16>) {
  ^bb0(%x0: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x0, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<16x128x64xbf16>
  %read = util.optimization_barrier %qr : tensor<16x128x64xbf16>
  %k0 = tensor.extract_slice %k[0, 0, 0] [2, 128, 32] [1, 1, 1] : tensor<2x128x64xbf16> to tensor<2x128x32xbf16>
  %k1 = tensor.extract_slice %k[0, 0, 32] [2, 128, 32] [1, 1, 1] : tensor<2x128x64xbf16> to tensor<2x128x32xbf16>
  %kt = tensor.concat dim(2) %k1, %k0 : (tensor<2x128x32xbf16>, tensor<2x128x32xbf16>) -> tensor<2x128x64xbf16>
  %kr = linalg.generic {indexing_maps = [#of3, #row3, #of3, #of3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%k, %cos, %kt : tensor<2x128x64xbf16>, tensor<128x64xbf16>, tensor<2x128x64xbf16>) outs(%e2 : tensor<2x128x64xbf16>) {
  ^bb0(%x0: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x0, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x128x64xbf16>
  util.return %qr, %kr, %kr : tensor<16x128x64xbf16>, tensor<2x128x64xbf16>, tensor<2x128x64xbf16>
}

// CHECK-LABEL: util.func public @odd(
// CHECK-NOT: flow.dispatch.region
// CHECK: tensor.extract %
// CHECK-NOT: flow.dispatch.region
// CHECK: util.return
util.func public @odd(%x: tensor<16x4096x6xf32>) -> tensor<16x4096x6xf32> {
  %a = tensor.extract_slice %x[0, 0, 0] [16, 4096, 3] [1, 1, 1] : tensor<16x4096x6xf32> to tensor<16x4096x3xf32>
  %b = tensor.extract_slice %x[0, 0, 3] [16, 4096, 3] [1, 1, 1] : tensor<16x4096x6xf32> to tensor<16x4096x3xf32>
  %c = tensor.concat dim(2) %b, %a : (tensor<16x4096x3xf32>, tensor<16x4096x3xf32>) -> tensor<16x4096x6xf32>
  util.return %c : tensor<16x4096x6xf32>
}

// So are those of rows whose number the program knows, from an index to the rotated rows; buffers have room for them.

// CHECK-LABEL: util.func public @rows(
// CHECK: %[[BOTH:.+]]:2 = flow.dispatch.region -> (tensor<?x64xf32>{%{{.+}}}, tensor<?x64xf32>{%{{.+}}})
// CHECK: linalg.generic {{.*}} outs({{.*}} : tensor<?x64xf32>, tensor<?x64xf32>)
// CHECK: linalg.index 0
// CHECK: math.sin
// CHECK: math.cos
// CHECK: flow.return
// CHECK: cf.assert %{{.+}}, "mxcomp: sizes of what is rotated, or written to caches, must be at most 8388607"
// CHECK: util.assume.int %{{.+}}<umin = 0, umax = 8388607> : index
// CHECK: flow.dispatch.region -> (tensor<?x64xf32>{%{{.+}}})
// CHECK: "mx_elementwise_Dx64"
// CHECK-NOT: {{tensor.concat|tensor.extract %}}
// CHECK: util.return
util.func public @rows(%x: tensor<?x64xf32>, %speeds: tensor<32xf32>, %n: index) -> tensor<?x64xf32> {
  %n32 = tensor.empty(%n) : tensor<?x32xf32>
  %angles = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1)>, #all], iterator_types = ["parallel", "parallel"]}
      ins(%speeds : tensor<32xf32>) outs(%n32 : tensor<?x32xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.sitofp %1 : i64 to f32
    %3 = arith.mulf %in, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?x32xf32>
  %twice = tensor.concat dim(1) %angles, %angles : (tensor<?x32xf32>, tensor<?x32xf32>) -> tensor<?x64xf32>
  %none = tensor.empty(%n) : tensor<?x64xf32>
  %cos = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%twice : tensor<?x64xf32>) outs(%none : tensor<?x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.cos %in : f32
    linalg.yield %0 : f32
  } -> tensor<?x64xf32>
  %sin = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%twice : tensor<?x64xf32>) outs(%none : tensor<?x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.sin %in : f32
    linalg.yield %0 : f32
  } -> tensor<?x64xf32>
  %x0 = tensor.extract_slice %x[0, 0] [%n, 32] [1, 1] : tensor<?x64xf32> to tensor<?x32xf32>
  %x1 = tensor.extract_slice %x[0, 32] [%n, 32] [1, 1] : tensor<?x64xf32> to tensor<?x32xf32>
  %xt = tensor.concat dim(1) %x1, %x0 : (tensor<?x32xf32>, tensor<?x32xf32>) -> tensor<?x64xf32>
  %r = linalg.generic {indexing_maps = [#all, #all, #all, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %cos, %xt, %sin : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>)
      outs(%none : tensor<?x64xf32>) {
  ^bb0(%a: f32, %c: f32, %b: f32, %s: f32, %out: f32):
    %0 = arith.mulf %a, %c : f32
    %1 = arith.mulf %b, %s : f32
    %2 = arith.addf %0, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<?x64xf32>
  util.return %r : tensor<?x64xf32>
}

// Of rows whose first elements only are rotated the whole is one.

// CHECK-LABEL: util.func public @partial(
// CHECK: flow.dispatch.region -> (tensor<16x128x96xbf16>)
// CHECK: "mx_elementwise_16x128x96"
// CHECK-NOT: {{tensor.concat|linalg.generic}}
// CHECK: util.return
util.func public @partial(%x: tensor<16x128x96xbf16>) -> tensor<16x128x96xbf16> {
  %a = tensor.extract_slice %x[0, 0, 0] [16, 128, 32] [1, 1, 1] : tensor<16x128x96xbf16> to tensor<16x128x32xbf16>
  %b = tensor.extract_slice %x[0, 0, 32] [16, 128, 32] [1, 1, 1] : tensor<16x128x96xbf16> to tensor<16x128x32xbf16>
  %rest = tensor.extract_slice %x[0, 0, 64] [16, 128, 32] [1, 1, 1] : tensor<16x128x96xbf16> to tensor<16x128x32xbf16>
  %turned = tensor.concat dim(2) %b, %a : (tensor<16x128x32xbf16>, tensor<16x128x32xbf16>) -> tensor<16x128x64xbf16>
  %whole = tensor.concat dim(2) %turned, %rest : (tensor<16x128x64xbf16>, tensor<16x128x32xbf16>) -> tensor<16x128x96xbf16>
  util.return %whole : tensor<16x128x96xbf16>
}

// These stay: halves of unlike sizes, halves of columns, of tensors that are no slices, and of two unknown sizes.

// CHECK-LABEL: util.func public @left(
// CHECK-COUNT-4: tensor.concat
// CHECK-NOT: linalg.generic
// CHECK: util.return
util.func public @left(%x: tensor<4x64xf32>, %y: tensor<4x64xf32>, %z: tensor<?x?x64xf32>, %n: index)
    -> (tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x128xf32>, tensor<?x?x64xf32>) {
  %a = tensor.extract_slice %x[0, 0] [4, 16] [1, 1] : tensor<4x64xf32> to tensor<4x16xf32>
  %b = tensor.extract_slice %x[0, 16] [4, 48] [1, 1] : tensor<4x64xf32> to tensor<4x48xf32>
  %unlike = tensor.concat dim(1) %b, %a : (tensor<4x48xf32>, tensor<4x16xf32>) -> tensor<4x64xf32>
  %c = tensor.extract_slice %x[0, 0] [2, 64] [1, 1] : tensor<4x64xf32> to tensor<2x64xf32>
  %d = tensor.extract_slice %x[2, 0] [2, 64] [1, 1] : tensor<4x64xf32> to tensor<2x64xf32>
  %columns = tensor.concat dim(0) %d, %c : (tensor<2x64xf32>, tensor<2x64xf32>) -> tensor<4x64xf32>
  %whole = tensor.concat dim(1) %x, %y : (tensor<4x64xf32>, tensor<4x64xf32>) -> tensor<4x128xf32>
  %e = tensor.extract_slice %z[0, 0, 0] [%n, %n, 32] [1, 1, 1] : tensor<?x?x64xf32> to tensor<?x?x32xf32>
  %f = tensor.extract_slice %z[0, 0, 32] [%n, %n, 32] [1, 1, 1] : tensor<?x?x64xf32> to tensor<?x?x32xf32>
  %unknown = tensor.concat dim(2) %f, %e : (tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x64xf32>
  util.return %unlike, %columns, %whole, %unknown : tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x128xf32>, tensor<?x?x64xf32>
}
