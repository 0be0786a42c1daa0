// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{ukernels=benefit},mxcomp-materialise)' | filecheck %s

// Largest magnitudes of blocks: those that keep their dimension belong to the quantiser as others do. Those that are
// computed elsewhere are read, by elements and scales in dispatches of their own, which nothing ties together.

#element = affine_map<(m, ko, kb) -> (m, ko, kb)>
#kept = affine_map<(m, ko, kb) -> (m, ko, 0)>
#block = affine_map<(m, ko, kb) -> (m, ko)>
#blocks = affine_map<(m, ko) -> (m, ko)>
#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// Tiles of scales have no loop inside a block.
// CHECK-DAG: lowering_config<{reduction = [0, 0, 0, 0, 32], thread = [1, 1, 1, 1, 0], workgroup = [1, 4, 4, 16, 0]}>
// CHECK-DAG: lowering_config<{thread = [1, 1, 1, 1, 32], workgroup = [1, 4, 4, 16, 32]}>
// CHECK-DAG: lowering_config<{thread = [1, 1, 1, 1], workgroup = [1, 4, 16, 4]}>

// CHECK-LABEL: util.func public @kept(
// CHECK: flow.dispatch.region -> (tensor<4x4x4x16x32xf4E2M1FN>, tensor<4x4x16x4xf8E8M0FNU>)
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
// CHECK: arith.scaling_truncf
// CHECK: flow.return
util.func public @kept(%x: tensor<64x16x32xf32>, %b: tensor<128x16x32xf4E2M1FN>, %bs: tensor<128x16xf8E8M0FNU>) -> tensor<64x128xf32> {
  %zero = arith.constant 0.0 : f32
  %me = tensor.empty() : tensor<64x16x1xf32>
  %mi = linalg.fill ins(%zero : f32) outs(%me : tensor<64x16x1xf32>) -> tensor<64x16x1xf32>
  %max = linalg.generic {indexing_maps = [#element, #kept], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<64x16x32xf32>) outs(%mi : tensor<64x16x1xf32>) {
  ^bb0(%i: f32, %o: f32):
    %abs = math.absf %i : f32
    %m = arith.maximumf %abs, %o : f32
    linalg.yield %m : f32
  } -> tensor<64x16x1xf32>
  %se = tensor.empty() : tensor<64x16x1xf8E8M0FNU>
  %as = linalg.generic {indexing_maps = [#element, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%max : tensor<64x16x1xf32>) outs(%se : tensor<64x16x1xf8E8M0FNU>) {
  ^bb0(%i: f32, %o: f8E8M0FNU):
    %four = arith.constant 4.0 : f32
    %q = arith.divf %i, %four : f32
    %s = arith.truncf %q : f32 to f8E8M0FNU
    linalg.yield %s : f8E8M0FNU
  } -> tensor<64x16x1xf8E8M0FNU>
  %ae = tensor.empty() : tensor<64x16x32xf4E2M1FN>
  %a = linalg.generic {indexing_maps = [#element, #kept, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %as : tensor<64x16x32xf32>, tensor<64x16x1xf8E8M0FNU>) outs(%ae : tensor<64x16x32xf4E2M1FN>) {
  ^bb0(%i: f32, %s: f8E8M0FNU, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %s : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<64x16x32xf4E2M1FN>
  %flat = tensor.collapse_shape %as [[0], [1, 2]] : tensor<64x16x1xf8E8M0FNU> into tensor<64x16xf8E8M0FNU>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %flat, %bs : tensor<64x16x32xf4E2M1FN>, tensor<128x16x32xf4E2M1FN>, tensor<64x16xf8E8M0FNU>, tensor<128x16xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %si: f8E8M0FNU, %sj: f8E8M0FNU, %o: f32):
    %p = arith.scaling_extf %i, %si : f4E2M1FN, f8E8M0FNU to f32
    %q = arith.scaling_extf %j, %sj : f4E2M1FN, f8E8M0FNU to f32
    %pq = arith.mulf %p, %q : f32
    %sum = arith.addf %o, %pq : f32
    linalg.yield %sum : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// CHECK-LABEL: util.func public @elsewhere(
// CHECK: flow.dispatch.region -> (tensor<4x4x4x16x32xf4E2M1FN>)
// CHECK: arith.scaling_truncf
// CHECK: flow.return
// CHECK: flow.dispatch.region -> (tensor<4x4x16x4xf8E8M0FNU>)
// CHECK-NOT: arith.scaling_truncf
// CHECK: flow.return
util.func public @elsewhere(%x: tensor<64x16x32xf32>, %max: tensor<64x16xf32>, %b: tensor<128x16x32xf4E2M1FN>,
    %bs: tensor<128x16xf8E8M0FNU>) -> tensor<64x128xf32> {
  %se = tensor.empty() : tensor<64x16xf8E8M0FNU>
  %as = linalg.generic {indexing_maps = [#blocks, #blocks], iterator_types = ["parallel", "parallel"]}
      ins(%max : tensor<64x16xf32>) outs(%se : tensor<64x16xf8E8M0FNU>) {
  ^bb0(%i: f32, %o: f8E8M0FNU):
    %four = arith.constant 4.0 : f32
    %q = arith.divf %i, %four : f32
    %s = arith.truncf %q : f32 to f8E8M0FNU
    linalg.yield %s : f8E8M0FNU
  } -> tensor<64x16xf8E8M0FNU>
  %ae = tensor.empty() : tensor<64x16x32xf4E2M1FN>
  %a = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %as : tensor<64x16x32xf32>, tensor<64x16xf8E8M0FNU>) outs(%ae : tensor<64x16x32xf4E2M1FN>) {
  ^bb0(%i: f32, %s: f8E8M0FNU, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %s : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<64x16x32xf4E2M1FN>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x16x32xf4E2M1FN>, tensor<128x16x32xf4E2M1FN>, tensor<64x16xf8E8M0FNU>, tensor<128x16xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %si: f8E8M0FNU, %sj: f8E8M0FNU, %o: f32):
    %p = arith.scaling_extf %i, %si : f4E2M1FN, f8E8M0FNU to f32
    %q = arith.scaling_extf %j, %sj : f4E2M1FN, f8E8M0FNU to f32
    %pq = arith.mulf %p, %q : f32
    %sum = arith.addf %o, %pq : f32
    linalg.yield %sum : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}
