// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{ukernels=benefit},mxcomp-materialise)' | filecheck %s

// A quantiser in front of a scaled matmul is computed in packed order, elements and scales in one dispatch.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
#element = affine_map<(m, ko, kb) -> (m, ko, kb)>
#block = affine_map<(m, ko, kb) -> (m, ko)>
#blocks = affine_map<(m, ko) -> (m, ko)>
#id = affine_map<(m, k) -> (m, k)>
#column = affine_map<(m, k) -> (k)>

// A lane takes a block of 32, a workgroup 256 of them; there are no loops over a single tile.
// CHECK: #translation = {{.*}}workgroup_size = [256, 1, 1]
// CHECK: #compilation = #iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{reduction = [0, 0, 0, 0, 32], thread = [1, 1, 1, 1, 0], workgroup = [1, 4, 4, 16, 0]}>

// Two matmuls share what is packed once. The factor in front belongs to the quantiser; both are read where they lie.
// CHECK-LABEL: util.func public @shared(
// CHECK-SAME: %[[X:.+]]: tensor<64x512xbf16>, %[[F:.+]]: tensor<512xbf16>,
// CHECK: %[[Q:.+]]:2 = flow.dispatch.region -> (tensor<4x4x4x16x32xf4E2M1FN>, tensor<4x4x16x4xf8E8M0FNU>)
// CHECK-DAG: tensor.extract %[[X]][%{{.+}}, %{{.+}}] : tensor<64x512xbf16>
// CHECK-DAG: tensor.extract %[[F]][%{{.+}}] : tensor<512xbf16>
// CHECK: %[[MUL:.+]] = linalg.generic {{.*}}ins(%{{.+}}, %{{.+}} : tensor<4x4x4x16x32xbf16>, tensor<4x4x4x16x32xbf16>)
// CHECK: arith.mulf
// CHECK: %[[AMAX:.+]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
// CHECK-SAME: ins(%[[MUL]] : tensor<4x4x4x16x32xbf16>)
// CHECK-SAME: compilation_info = #compilation
// CHECK: arith.scaling_truncf
// CHECK: flow.return
// CHECK: %[[QB:.+]] = iree_tensor_ext.bitcast %[[Q]]#0 : tensor<4x4x4x16x32xf4E2M1FN> -> tensor<1x1x1x4x4x4x16x16xi8>
// CHECK-COUNT-2: arith.extui
// CHECK: iree_tensor_ext.bitcast %[[QB]]
// CHECK: iree_codegen.inner_tiled
// CHECK-NOT: arith.scaling_truncf
// CHECK: iree_tensor_ext.bitcast %[[QB]]
// CHECK: iree_codegen.inner_tiled
util.func @shared(%x: tensor<64x512xbf16>, %f: tensor<512xbf16>, %b: tensor<128x16x32xf4E2M1FN>, %bs: tensor<128x16xf8E8M0FNU>,
    %c: tensor<128x16x32xf4E2M1FN>, %cs: tensor<128x16xf8E8M0FNU>) -> (tensor<64x128xf32>, tensor<64x128xf32>) {
  %zero = arith.constant 0.0 : bf16
  %ye = tensor.empty() : tensor<64x512xbf16>
  %y = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %f : tensor<64x512xbf16>, tensor<512xbf16>) outs(%ye : tensor<64x512xbf16>) {
  ^bb0(%i: bf16, %j: bf16, %o: bf16):
    %p = arith.mulf %i, %j : bf16
    linalg.yield %p : bf16
  } -> tensor<64x512xbf16>
  %z = tensor.expand_shape %y [[0], [1, 2]] output_shape [64, 16, 32] : tensor<64x512xbf16> into tensor<64x16x32xbf16>
  %me = tensor.empty() : tensor<64x16xbf16>
  %mi = linalg.fill ins(%zero : bf16) outs(%me : tensor<64x16xbf16>) -> tensor<64x16xbf16>
  %max = linalg.generic {indexing_maps = [#element, #block], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%z : tensor<64x16x32xbf16>) outs(%mi : tensor<64x16xbf16>) {
  ^bb0(%i: bf16, %o: bf16):
    %abs = math.absf %i : bf16
    %m = arith.maximumf %abs, %o : bf16
    linalg.yield %m : bf16
  } -> tensor<64x16xbf16>
  %se = tensor.empty() : tensor<64x16xf8E8M0FNU>
  %as = linalg.generic {indexing_maps = [#blocks, #blocks], iterator_types = ["parallel", "parallel"]}
      ins(%max : tensor<64x16xbf16>) outs(%se : tensor<64x16xf8E8M0FNU>) {
  ^bb0(%i: bf16, %o: f8E8M0FNU):
    %four = arith.constant 4.0 : bf16
    %q = arith.divf %i, %four : bf16
    %s = arith.truncf %q : bf16 to f8E8M0FNU
    linalg.yield %s : f8E8M0FNU
  } -> tensor<64x16xf8E8M0FNU>
  %ae = tensor.empty() : tensor<64x16x32xf4E2M1FN>
  %a = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%z, %as : tensor<64x16x32xbf16>, tensor<64x16xf8E8M0FNU>) outs(%ae : tensor<64x16x32xf4E2M1FN>) {
  ^bb0(%i: bf16, %s: f8E8M0FNU, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %s : bf16, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<64x16x32xf4E2M1FN>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x16x32xf4E2M1FN>, tensor<128x16x32xf4E2M1FN>, tensor<64x16xf8E8M0FNU>, tensor<128x16xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %s: f8E8M0FNU, %t: f8E8M0FNU, %acc: f32):
    %u = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to f32
    %v = arith.scaling_extf %j, %t : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<64x128xf32>
  %w = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %c, %as, %cs : tensor<64x16x32xf4E2M1FN>, tensor<128x16x32xf4E2M1FN>, tensor<64x16xf8E8M0FNU>, tensor<128x16xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %s: f8E8M0FNU, %t: f8E8M0FNU, %acc: f32):
    %u = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to f32
    %v = arith.scaling_extf %j, %t : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<64x128xf32>
  util.return %r, %w : tensor<64x128xf32>, tensor<64x128xf32>
}

// Scales that are stored somewhere leave the elements to be quantised by IREE, and both are packed.
// CHECK-LABEL: util.func public @stored_scales(
// CHECK: %[[A:.+]] = linalg.generic {{.*}}outs(%{{.+}} : tensor<64x16x32xf4E2M1FN>)
// CHECK: iree_tensor_ext.bitcast %[[A]] : tensor<64x16x32xf4E2M1FN> -> tensor<64x16x4xi32>
// CHECK: flow.dispatch.region -> (tensor<1x1x4x4x4x16x4xi32>)
util.func @stored_scales(%z: tensor<64x16x32xf32>, %as: tensor<64x16xf8E8M0FNU>, %b: tensor<128x16x32xf4E2M1FN>,
    %bs: tensor<128x16xf8E8M0FNU>) -> tensor<64x128xf32> {
  %ae = tensor.empty() : tensor<64x16x32xf4E2M1FN>
  %a = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%z, %as : tensor<64x16x32xf32>, tensor<64x16xf8E8M0FNU>) outs(%ae : tensor<64x16x32xf4E2M1FN>) {
  ^bb0(%i: f32, %s: f8E8M0FNU, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %s : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<64x16x32xf4E2M1FN>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x16x32xf4E2M1FN>, tensor<128x16x32xf4E2M1FN>, tensor<64x16xf8E8M0FNU>, tensor<128x16xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %s: f8E8M0FNU, %t: f8E8M0FNU, %acc: f32):
    %u = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to f32
    %v = arith.scaling_extf %j, %t : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// Heads of a row are read as one: their elements are neighbours, which lanes load together.

// CHECK-LABEL: util.func public @heads(
// CHECK-SAME: %[[HEADS:[a-z0-9]+]]: tensor<64x8x1x128xbf16>
// CHECK: flow.dispatch.region
// CHECK: %[[ROWS:.+]] = tensor.collapse_shape %[[HEADS]] {{\[\[}}0], [1, 2, 3]] : tensor<64x8x1x128xbf16> into tensor<64x1024xbf16>
// CHECK: tensor.extract %[[ROWS]][%{{[a-z0-9]+}}, %{{[a-z0-9]+}}] : tensor<64x1024xbf16>
// CHECK-NOT: tensor.extract %[[HEADS]]
// CHECK: flow.return
util.func @heads(%heads: tensor<64x8x1x128xbf16>, %c: tensor<256x32x32xf4E2M1FN>, %cs: tensor<256x32xf8E8M0FNU>) -> tensor<64x256xf32> {
  %x = tensor.collapse_shape %heads [[0], [1, 2, 3]] : tensor<64x8x1x128xbf16> into tensor<64x1024xbf16>
  %z = tensor.expand_shape %x [[0], [1, 2]] output_shape [64, 32, 32] : tensor<64x1024xbf16> into tensor<64x32x32xbf16>
  %zero = arith.constant 0.0 : f32
  %me = tensor.empty() : tensor<64x32xf32>
  %mi = linalg.fill ins(%zero : f32) outs(%me : tensor<64x32xf32>) -> tensor<64x32xf32>
  %max = linalg.generic {indexing_maps = [#element, #block], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%z : tensor<64x32x32xbf16>) outs(%mi : tensor<64x32xf32>) {
  ^bb0(%i: bf16, %o: f32):
    %f = arith.extf %i : bf16 to f32
    %abs = math.absf %f : f32
    %m = arith.maximumf %abs, %o : f32
    linalg.yield %m : f32
  } -> tensor<64x32xf32>
  %se = tensor.empty() : tensor<64x32xf8E8M0FNU>
  %hs = linalg.generic {indexing_maps = [#blocks, #blocks], iterator_types = ["parallel", "parallel"]}
      ins(%max : tensor<64x32xf32>) outs(%se : tensor<64x32xf8E8M0FNU>) {
  ^bb0(%i: f32, %o: f8E8M0FNU):
    %four = arith.constant 4.0 : f32
    %q = arith.divf %i, %four : f32
    %s = arith.truncf %q : f32 to f8E8M0FNU
    linalg.yield %s : f8E8M0FNU
  } -> tensor<64x32xf8E8M0FNU>
  %qe = tensor.empty() : tensor<64x32x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#element, #block, #element], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%z, %hs : tensor<64x32x32xbf16>, tensor<64x32xf8E8M0FNU>) outs(%qe : tensor<64x32x32xf4E2M1FN>) {
  ^bb0(%i: bf16, %s: f8E8M0FNU, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %s : bf16, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<64x32x32xf4E2M1FN>
  %init2 = arith.constant dense<0.0> : tensor<64x256xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%q, %c, %hs, %cs : tensor<64x32x32xf4E2M1FN>, tensor<256x32x32xf4E2M1FN>, tensor<64x32xf8E8M0FNU>, tensor<256x32xf8E8M0FNU>)
      outs(%init2 : tensor<64x256xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %s: f8E8M0FNU, %t: f8E8M0FNU, %acc: f32):
    %u = arith.scaling_extf %i, %s : f4E2M1FN, f8E8M0FNU to f32
    %v = arith.scaling_extf %j, %t : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %u, %v : f32
    %n = arith.addf %acc, %p : f32
    linalg.yield %n : f32
  } -> tensor<64x256xf32>
  util.return %r : tensor<64x256xf32>
}
