// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{fuse-quantisers=on})' | filecheck %s --check-prefix=ENCODE
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode)' | filecheck %s --check-prefix=TIMED
// RUN: mxcomp-opt %s --fuse-quantisers=off --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode)' | filecheck %s --check-prefix=OFF
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{fuse-quantisers=on},mxcomp-fuse-consumers,mxcomp-materialise)' | filecheck %s

// A result that is quantised to be the LHS of another matmul is quantised in its own dispatch, in the layout that the
// other wants. Both are computed transposed, on tiles whose accumulators lie in a lane as blocks do.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
#element = affine_map<(m, ko, kb) -> (m, ko, kb)>
#block = affine_map<(m, ko, kb) -> (m, ko)>
#blocks = affine_map<(m, ko) -> (m, ko)>

// By time they are not: the ukernel's tiles are large, and few.
// TIMED: not re-quantised in its tile: modelled {{.+}} in the tile with what is behind, apart {{[0-9.]+}}
// TIMED-LABEL: util.func public @chain(
// TIMED-NOT: plan = "requantised"
// OFF-NOT: plan = "requantised"
// OFF-NOT: in its tile

// ENCODE-LABEL: util.func public @chain(
// ENCODE-COUNT-2: mxcomp.scaled_matmul = {{{.*}}lane_rows = true{{.*}}plan = "requantised", {{.*}}ukernel = "mx_f4E2M1FN_f4E2M1FN_f32_m128_n256_k128"
// ENCODE-LABEL: util.func public @few_rows(
// ENCODE-NOT: lane_rows
// ENCODE-NOT: plan = "requantised"

// It has all registers of a SIMD to itself.
// CHECK: #translation = {{.*}}llvm_func_attrs = {"amdgpu-unroll-threshold" = "20000", "amdgpu-waves-per-eu" = "1"}

// Packed as LHS of the ukernel: the 384 rows of the weights, in tiles of 128 whose rows are split in lanes.
// CHECK-LABEL: util.func public @chain(
// CHECK: flow.dispatch.region -> (tensor<3x2x8x4x4x4x4xi32>)
// CHECK: flow.dispatch.region -> (tensor<1x2x4x4x4x16x4xi32>)
// One dispatch makes elements and scales. Its amax is over the accumulators of a lane: 8 intrinsics, 4 rows of each.
// CHECK: %[[Q:.+]]:2 = flow.dispatch.region -> (tensor<1x3x4x4x4x16x8x4xf4E2M1FN>, tensor<1x3x4x4x16x4xf8E8M0FNU>)
// CHECK: %[[TILES:.+]] = iree_codegen.inner_tiled
// CHECK: linalg.generic
// CHECK-SAME: iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]
// CHECK-SAME: ins(%[[TILES]] : tensor<3x1x4x8x4x4x16x4xf32>)
// CHECK: arith.scaling_truncf
// CHECK: flow.return
// CHECK: iree_tensor_ext.bitcast %[[Q]]#0 : tensor<1x3x4x4x4x16x8x4xf4E2M1FN> -> tensor<1x3x1x4x4x4x16x16xi8>
// CHECK-NOT: scaling_truncf
// CHECK: flow.dispatch.region -> (tensor<100x128xf32>)
// CHECK: iree_codegen.inner_tiled
// CHECK: linalg.transpose
// CHECK-NOT: arith.scaling_truncf
// CHECK: util.return
util.func @chain(%a: tensor<100x8x32xf4E2M1FN>, %as: tensor<100x8xf8E8M0FNU>, %b: tensor<384x8x32xf4E2M1FN>,
    %bs: tensor<384x8xf8E8M0FNU>, %c: tensor<128x12x32xf4E2M1FN>, %cs: tensor<128x12xf8E8M0FNU>) -> tensor<100x128xf32> {
  %init = arith.constant dense<0.0> : tensor<100x384xf32>
  %h = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<100x8x32xf4E2M1FN>, tensor<384x8x32xf4E2M1FN>, tensor<100x8xf8E8M0FNU>, tensor<384x8xf8E8M0FNU>)
      outs(%init : tensor<100x384xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %s: f8E8M0FNU, %t: f8E8M0FNU, %acc: f32):
    %u = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to f32
    %v = arith.scaling_extf %j, %t : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<100x384xf32>
  %z = tensor.expand_shape %h [[0], [1, 2]] output_shape [100, 12, 32] : tensor<100x384xf32> into tensor<100x12x32xf32>
  %zero = arith.constant 0.0 : f32
  %me = tensor.empty() : tensor<100x12xf32>
  %mi = linalg.fill ins(%zero : f32) outs(%me : tensor<100x12xf32>) -> tensor<100x12xf32>
  %max = linalg.generic {indexing_maps = [#element, #block], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%z : tensor<100x12x32xf32>) outs(%mi : tensor<100x12xf32>) {
  ^bb0(%i: f32, %o: f32):
    %abs = math.absf %i : f32
    %m = arith.maximumf %abs, %o : f32
    linalg.yield %m : f32
  } -> tensor<100x12xf32>
  %se = tensor.empty() : tensor<100x12xf8E8M0FNU>
  %hs = linalg.generic {indexing_maps = [#blocks, #blocks], iterator_types = ["parallel", "parallel"]}
      ins(%max : tensor<100x12xf32>) outs(%se : tensor<100x12xf8E8M0FNU>) {
  ^bb0(%i: f32, %o: f8E8M0FNU):
    %four = arith.constant 4.0 : f32
    %q = arith.divf %i, %four : f32
    %s = arith.truncf %q : f32 to f8E8M0FNU
    linalg.yield %s : f8E8M0FNU
  } -> tensor<100x12xf8E8M0FNU>
  %qe = tensor.empty() : tensor<100x12x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%z, %hs : tensor<100x12x32xf32>, tensor<100x12xf8E8M0FNU>) outs(%qe : tensor<100x12x32xf4E2M1FN>) {
  ^bb0(%i: f32, %s: f8E8M0FNU, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %s : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<100x12x32xf4E2M1FN>
  %init2 = arith.constant dense<0.0> : tensor<100x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%q, %c, %hs, %cs : tensor<100x12x32xf4E2M1FN>, tensor<128x12x32xf4E2M1FN>, tensor<100x12xf8E8M0FNU>, tensor<128x12xf8E8M0FNU>)
      outs(%init2 : tensor<100x128xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %s: f8E8M0FNU, %t: f8E8M0FNU, %acc: f32):
    %u = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to f32
    %v = arith.scaling_extf %j, %t : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<100x128xf32>
  util.return %r : tensor<100x128xf32>
}

// Up to 16 rows the matmul behind may quantise them itself.
// CHECK-LABEL: util.func public @few_rows(
// CHECK: flow.dispatch.region -> (tensor<16x384xf32>)
// CHECK-NOT: flow.dispatch.region -> (tensor<{{.*}}f4E2M1FN>, tensor<{{.*}}f8E8M0FNU>)
// CHECK: flow.dispatch.region -> (tensor<16x128xf32>)
util.func @few_rows(%a: tensor<16x8x32xf4E2M1FN>, %as: tensor<16x8xf8E8M0FNU>, %b: tensor<384x8x32xf4E2M1FN>,
    %bs: tensor<384x8xf8E8M0FNU>, %c: tensor<128x12x32xf4E2M1FN>, %cs: tensor<128x12xf8E8M0FNU>) -> tensor<16x128xf32> {
  %init = arith.constant dense<0.0> : tensor<16x384xf32>
  %h = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<16x8x32xf4E2M1FN>, tensor<384x8x32xf4E2M1FN>, tensor<16x8xf8E8M0FNU>, tensor<384x8xf8E8M0FNU>)
      outs(%init : tensor<16x384xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %s: f8E8M0FNU, %t: f8E8M0FNU, %acc: f32):
    %u = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to f32
    %v = arith.scaling_extf %j, %t : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<16x384xf32>
  %z = tensor.expand_shape %h [[0], [1, 2]] output_shape [16, 12, 32] : tensor<16x384xf32> into tensor<16x12x32xf32>
  %zero = arith.constant 0.0 : f32
  %me = tensor.empty() : tensor<16x12xf32>
  %mi = linalg.fill ins(%zero : f32) outs(%me : tensor<16x12xf32>) -> tensor<16x12xf32>
  %max = linalg.generic {indexing_maps = [#element, #block], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%z : tensor<16x12x32xf32>) outs(%mi : tensor<16x12xf32>) {
  ^bb0(%i: f32, %o: f32):
    %abs = math.absf %i : f32
    %m = arith.maximumf %abs, %o : f32
    linalg.yield %m : f32
  } -> tensor<16x12xf32>
  %se = tensor.empty() : tensor<16x12xf8E8M0FNU>
  %hs = linalg.generic {indexing_maps = [#blocks, #blocks], iterator_types = ["parallel", "parallel"]}
      ins(%max : tensor<16x12xf32>) outs(%se : tensor<16x12xf8E8M0FNU>) {
  ^bb0(%i: f32, %o: f8E8M0FNU):
    %four = arith.constant 4.0 : f32
    %q = arith.divf %i, %four : f32
    %s = arith.truncf %q : f32 to f8E8M0FNU
    linalg.yield %s : f8E8M0FNU
  } -> tensor<16x12xf8E8M0FNU>
  %qe = tensor.empty() : tensor<16x12x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%z, %hs : tensor<16x12x32xf32>, tensor<16x12xf8E8M0FNU>) outs(%qe : tensor<16x12x32xf4E2M1FN>) {
  ^bb0(%i: f32, %s: f8E8M0FNU, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %s : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<16x12x32xf4E2M1FN>
  %init2 = arith.constant dense<0.0> : tensor<16x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%q, %c, %hs, %cs : tensor<16x12x32xf4E2M1FN>, tensor<128x12x32xf4E2M1FN>, tensor<16x12xf8E8M0FNU>, tensor<128x12xf8E8M0FNU>)
      outs(%init2 : tensor<16x128xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %s: f8E8M0FNU, %t: f8E8M0FNU, %acc: f32):
    %u = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to f32
    %v = arith.scaling_extf %j, %t : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<16x128xf32>
  util.return %r : tensor<16x128xf32>
}

// The result is wanted as it is, too: it is stored, and quantised when it is packed.
// ENCODE-LABEL: util.func public @used_elsewhere(
// CHECK-LABEL: util.func public @used_elsewhere(
// CHECK: %[[H:.+]] = flow.dispatch.region -> (tensor<100x384xf32>)
// CHECK: flow.dispatch.region -> (tensor<{{.*}}f4E2M1FN>, tensor<{{.*}}f8E8M0FNU>)
// CHECK: tensor.extract %[[H]]
// CHECK: %[[R:.+]] = flow.dispatch.region -> (tensor<100x128xf32>)
// CHECK: util.return %[[R]], %[[H]]
util.func @used_elsewhere(%a: tensor<100x8x32xf4E2M1FN>, %as: tensor<100x8xf8E8M0FNU>, %b: tensor<384x8x32xf4E2M1FN>,
    %bs: tensor<384x8xf8E8M0FNU>, %c: tensor<128x12x32xf4E2M1FN>, %cs: tensor<128x12xf8E8M0FNU>) -> (tensor<100x128xf32>, tensor<100x384xf32>) {
  %init = arith.constant dense<0.0> : tensor<100x384xf32>
  %h = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<100x8x32xf4E2M1FN>, tensor<384x8x32xf4E2M1FN>, tensor<100x8xf8E8M0FNU>, tensor<384x8xf8E8M0FNU>)
      outs(%init : tensor<100x384xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %s: f8E8M0FNU, %t: f8E8M0FNU, %acc: f32):
    %u = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to f32
    %v = arith.scaling_extf %j, %t : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<100x384xf32>
  %z = tensor.expand_shape %h [[0], [1, 2]] output_shape [100, 12, 32] : tensor<100x384xf32> into tensor<100x12x32xf32>
  %zero = arith.constant 0.0 : f32
  %me = tensor.empty() : tensor<100x12xf32>
  %mi = linalg.fill ins(%zero : f32) outs(%me : tensor<100x12xf32>) -> tensor<100x12xf32>
  %max = linalg.generic {indexing_maps = [#element, #block], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%z : tensor<100x12x32xf32>) outs(%mi : tensor<100x12xf32>) {
  ^bb0(%i: f32, %o: f32):
    %abs = math.absf %i : f32
    %m = arith.maximumf %abs, %o : f32
    linalg.yield %m : f32
  } -> tensor<100x12xf32>
  %se = tensor.empty() : tensor<100x12xf8E8M0FNU>
  %hs = linalg.generic {indexing_maps = [#blocks, #blocks], iterator_types = ["parallel", "parallel"]}
      ins(%max : tensor<100x12xf32>) outs(%se : tensor<100x12xf8E8M0FNU>) {
  ^bb0(%i: f32, %o: f8E8M0FNU):
    %four = arith.constant 4.0 : f32
    %q = arith.divf %i, %four : f32
    %s = arith.truncf %q : f32 to f8E8M0FNU
    linalg.yield %s : f8E8M0FNU
  } -> tensor<100x12xf8E8M0FNU>
  %qe = tensor.empty() : tensor<100x12x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%z, %hs : tensor<100x12x32xf32>, tensor<100x12xf8E8M0FNU>) outs(%qe : tensor<100x12x32xf4E2M1FN>) {
  ^bb0(%i: f32, %s: f8E8M0FNU, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %s : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<100x12x32xf4E2M1FN>
  %init2 = arith.constant dense<0.0> : tensor<100x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%q, %c, %hs, %cs : tensor<100x12x32xf4E2M1FN>, tensor<128x12x32xf4E2M1FN>, tensor<100x12xf8E8M0FNU>, tensor<128x12xf8E8M0FNU>)
      outs(%init2 : tensor<100x128xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %s: f8E8M0FNU, %t: f8E8M0FNU, %acc: f32):
    %u = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to f32
    %v = arith.scaling_extf %j, %t : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<100x128xf32>
  util.return %r, %h : tensor<100x128xf32>, tensor<100x384xf32>
}
