// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-join-products)' | filecheck %s
// Not those that are divided otherwise.
// RUN: sed -E 's/\[2, (.t), 8, 128\]/[\1, 2, 8, 128]/; s/2x\?x8x128/?x2x8x128/g' %s | mxcomp-opt - --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-join-products)' | filecheck %s --check-prefix=APART
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-join-products{ukernels=none})' | filecheck %s --check-prefix=OFF

#x = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#w = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#xs = affine_map<(m, n, ko, kb) -> (m, ko)>
#ws = affine_map<(m, n, ko, kb) -> (n, ko)>
#y = affine_map<(m, n, ko, kb) -> (m, n)>
#all = affine_map<(d0, d1) -> (d0, d1)>

util.global private @w0 : tensor<256x256xi8>
util.global private @w1 : tensor<64x256xi8>
util.global private @w2 : tensor<96x256xi8>
util.global private @s0 : tensor<256x16xi8>
util.global private @s1 : tensor<64x16xi8>
util.global private @s2 : tensor<96x16xi8>
util.global private @w3 : tensor<4096x2048xi8>
util.global private @w4 : tensor<1024x2048xi8>
util.global private @w5 : tensor<1024x2048xi8>
util.global private @s5 : tensor<1024x128xi8>
util.global private @s3 : tensor<4096x128xi8>
util.global private @s4 : tensor<1024x128xi8>
util.global private mutable @state : tensor<64x256xi8>

// CHECK-LABEL: util.func public @both(
// CHECK: %[[BYTES:.+]] = tensor.concat dim(0) %w0{{.*}}, %w1{{.*}} : (tensor<256x256xi8>, tensor<64x256xi8>) -> tensor<320x256xi8>
// CHECK: %[[W:.+]] = iree_tensor_ext.bitcast %[[BYTES]] : tensor<320x256xi8> -> tensor<320x16x32xf4E2M1FN>
// CHECK: %[[SCALES:.+]] = tensor.concat dim(0) {{.*}} -> tensor<320x16xi8>
// CHECK: linalg.generic {{.*}}mxcomp.scaled_matmul
// CHECK: %[[Y:.+]] = linalg.generic {{.*}} ins({{.*}} : tensor<1x320xf32>) outs({{.*}} : tensor<1x320xbf16>)
// CHECK: %[[Y0:.+]] = tensor.extract_slice %[[Y]][0, 0] [1, 256] [1, 1]
// CHECK: %[[Y1:.+]] = tensor.extract_slice %[[Y]][0, 256] [1, 64] [1, 1]
// CHECK-NOT: linalg.generic
// CHECK: util.return %[[Y0]], %[[Y1]]
// OFF-NOT: tensor.concat
util.func public @both(%x: tensor<1x16x32xf4E2M1FN>, %xs: tensor<1x16xf8E8M0FNU>) -> (tensor<1x256xbf16>, tensor<1x64xbf16>) {
  %zero = arith.constant 0.0 : f32
  %w0 = util.global.load @w0 : tensor<256x256xi8>
  %s0 = util.global.load @s0 : tensor<256x16xi8>
  %b0 = iree_tensor_ext.bitcast %w0 : tensor<256x256xi8> -> tensor<256x16x32xf4E2M1FN>
  %bs0 = iree_tensor_ext.bitcast %s0 : tensor<256x16xi8> -> tensor<256x16xf8E8M0FNU>
  %e0 = tensor.empty() : tensor<1x256xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<1x256xf32>) -> tensor<1x256xf32>
  %r0 = linalg.generic {indexing_maps = [#x, #w, #xs, #ws, #y], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %b0, %xs, %bs0 : tensor<1x16x32xf4E2M1FN>, tensor<256x16x32xf4E2M1FN>, tensor<1x16xf8E8M0FNU>, tensor<256x16xf8E8M0FNU>)
      outs(%f0 : tensor<1x256xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1x256xf32>
  %h0 = tensor.empty() : tensor<1x256xbf16>
  %y0 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%r0 : tensor<1x256xf32>) outs(%h0 : tensor<1x256xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<1x256xbf16>
  %w1 = util.global.load @w1 : tensor<64x256xi8>
  %s1 = util.global.load @s1 : tensor<64x16xi8>
  %b1 = iree_tensor_ext.bitcast %w1 : tensor<64x256xi8> -> tensor<64x16x32xf4E2M1FN>
  %bs1 = iree_tensor_ext.bitcast %s1 : tensor<64x16xi8> -> tensor<64x16xf8E8M0FNU>
  %e1 = tensor.empty() : tensor<1x64xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<1x64xf32>) -> tensor<1x64xf32>
  %r1 = linalg.generic {indexing_maps = [#x, #w, #xs, #ws, #y], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %b1, %xs, %bs1 : tensor<1x16x32xf4E2M1FN>, tensor<64x16x32xf4E2M1FN>, tensor<1x16xf8E8M0FNU>, tensor<64x16xf8E8M0FNU>)
      outs(%f1 : tensor<1x64xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1x64xf32>
  %h1 = tensor.empty() : tensor<1x64xbf16>
  %y1 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%r1 : tensor<1x64xf32>) outs(%h1 : tensor<1x64xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<1x64xbf16>
  util.return %y0, %y1 : tensor<1x256xbf16>, tensor<1x64xbf16>
}

// A matrix that the program may change is no weight to be put beside others.

// CHECK-LABEL: util.func public @changed(
// CHECK-NOT: tensor.concat
util.func public @changed(%x: tensor<1x16x32xf4E2M1FN>, %xs: tensor<1x16xf8E8M0FNU>) -> (tensor<1x256xbf16>, tensor<1x64xbf16>) {
  %zero = arith.constant 0.0 : f32
  %w0 = util.global.load @w0 : tensor<256x256xi8>
  %s0 = util.global.load @s0 : tensor<256x16xi8>
  %b0 = iree_tensor_ext.bitcast %w0 : tensor<256x256xi8> -> tensor<256x16x32xf4E2M1FN>
  %bs0 = iree_tensor_ext.bitcast %s0 : tensor<256x16xi8> -> tensor<256x16xf8E8M0FNU>
  %e0 = tensor.empty() : tensor<1x256xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<1x256xf32>) -> tensor<1x256xf32>
  %r0 = linalg.generic {indexing_maps = [#x, #w, #xs, #ws, #y], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %b0, %xs, %bs0 : tensor<1x16x32xf4E2M1FN>, tensor<256x16x32xf4E2M1FN>, tensor<1x16xf8E8M0FNU>, tensor<256x16xf8E8M0FNU>)
      outs(%f0 : tensor<1x256xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1x256xf32>
  %h0 = tensor.empty() : tensor<1x256xbf16>
  %y0 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%r0 : tensor<1x256xf32>) outs(%h0 : tensor<1x256xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<1x256xbf16>
  %w1 = util.global.load @state : tensor<64x256xi8>
  %s1 = util.global.load @s1 : tensor<64x16xi8>
  %b1 = iree_tensor_ext.bitcast %w1 : tensor<64x256xi8> -> tensor<64x16x32xf4E2M1FN>
  %bs1 = iree_tensor_ext.bitcast %s1 : tensor<64x16xi8> -> tensor<64x16xf8E8M0FNU>
  %e1 = tensor.empty() : tensor<1x64xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<1x64xf32>) -> tensor<1x64xf32>
  %r1 = linalg.generic {indexing_maps = [#x, #w, #xs, #ws, #y], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %b1, %xs, %bs1 : tensor<1x16x32xf4E2M1FN>, tensor<64x16x32xf4E2M1FN>, tensor<1x16xf8E8M0FNU>, tensor<64x16xf8E8M0FNU>)
      outs(%f1 : tensor<1x64xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1x64xf32>
  %h1 = tensor.empty() : tensor<1x64xbf16>
  %y1 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%r1 : tensor<1x64xf32>) outs(%h1 : tensor<1x64xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<1x64xbf16>
  util.return %y0, %y1 : tensor<1x256xbf16>, tensor<1x64xbf16>
}

// Nor are columns that are no whole tiles.

// CHECK-LABEL: util.func public @parts_of_tiles(
// CHECK-NOT: tensor.concat
util.func public @parts_of_tiles(%x: tensor<1x16x32xf4E2M1FN>, %xs: tensor<1x16xf8E8M0FNU>) -> (tensor<1x256xbf16>, tensor<1x96xbf16>) {
  %zero = arith.constant 0.0 : f32
  %w0 = util.global.load @w0 : tensor<256x256xi8>
  %s0 = util.global.load @s0 : tensor<256x16xi8>
  %b0 = iree_tensor_ext.bitcast %w0 : tensor<256x256xi8> -> tensor<256x16x32xf4E2M1FN>
  %bs0 = iree_tensor_ext.bitcast %s0 : tensor<256x16xi8> -> tensor<256x16xf8E8M0FNU>
  %e0 = tensor.empty() : tensor<1x256xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<1x256xf32>) -> tensor<1x256xf32>
  %r0 = linalg.generic {indexing_maps = [#x, #w, #xs, #ws, #y], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %b0, %xs, %bs0 : tensor<1x16x32xf4E2M1FN>, tensor<256x16x32xf4E2M1FN>, tensor<1x16xf8E8M0FNU>, tensor<256x16xf8E8M0FNU>)
      outs(%f0 : tensor<1x256xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1x256xf32>
  %h0 = tensor.empty() : tensor<1x256xbf16>
  %y0 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%r0 : tensor<1x256xf32>) outs(%h0 : tensor<1x256xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<1x256xbf16>
  %w1 = util.global.load @w2 : tensor<96x256xi8>
  %s1 = util.global.load @s2 : tensor<96x16xi8>
  %b1 = iree_tensor_ext.bitcast %w1 : tensor<96x256xi8> -> tensor<96x16x32xf4E2M1FN>
  %bs1 = iree_tensor_ext.bitcast %s1 : tensor<96x16xi8> -> tensor<96x16xf8E8M0FNU>
  %e1 = tensor.empty() : tensor<1x96xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<1x96xf32>) -> tensor<1x96xf32>
  %r1 = linalg.generic {indexing_maps = [#x, #w, #xs, #ws, #y], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %b1, %xs, %bs1 : tensor<1x16x32xf4E2M1FN>, tensor<96x16x32xf4E2M1FN>, tensor<1x16xf8E8M0FNU>, tensor<96x16xf8E8M0FNU>)
      outs(%f1 : tensor<1x96xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1x96xf32>
  %h1 = tensor.empty() : tensor<1x96xbf16>
  %y1 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%r1 : tensor<1x96xf32>) outs(%h1 : tensor<1x96xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<1x96xbf16>
  util.return %y0, %y1 : tensor<1x256xbf16>, tensor<1x96xbf16>
}

// Results of two types are of two products.

// CHECK-LABEL: util.func public @results_differ(
// CHECK-NOT: tensor.concat
util.func public @results_differ(%x: tensor<1x16x32xf4E2M1FN>, %xs: tensor<1x16xf8E8M0FNU>) -> (tensor<1x256xbf16>, tensor<1x64xf16>) {
  %zero = arith.constant 0.0 : f32
  %w0 = util.global.load @w0 : tensor<256x256xi8>
  %s0 = util.global.load @s0 : tensor<256x16xi8>
  %b0 = iree_tensor_ext.bitcast %w0 : tensor<256x256xi8> -> tensor<256x16x32xf4E2M1FN>
  %bs0 = iree_tensor_ext.bitcast %s0 : tensor<256x16xi8> -> tensor<256x16xf8E8M0FNU>
  %e0 = tensor.empty() : tensor<1x256xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<1x256xf32>) -> tensor<1x256xf32>
  %r0 = linalg.generic {indexing_maps = [#x, #w, #xs, #ws, #y], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %b0, %xs, %bs0 : tensor<1x16x32xf4E2M1FN>, tensor<256x16x32xf4E2M1FN>, tensor<1x16xf8E8M0FNU>, tensor<256x16xf8E8M0FNU>)
      outs(%f0 : tensor<1x256xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1x256xf32>
  %h0 = tensor.empty() : tensor<1x256xbf16>
  %y0 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%r0 : tensor<1x256xf32>) outs(%h0 : tensor<1x256xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<1x256xbf16>
  %w1 = util.global.load @w1 : tensor<64x256xi8>
  %s1 = util.global.load @s1 : tensor<64x16xi8>
  %b1 = iree_tensor_ext.bitcast %w1 : tensor<64x256xi8> -> tensor<64x16x32xf4E2M1FN>
  %bs1 = iree_tensor_ext.bitcast %s1 : tensor<64x16xi8> -> tensor<64x16xf8E8M0FNU>
  %e1 = tensor.empty() : tensor<1x64xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<1x64xf32>) -> tensor<1x64xf32>
  %r1 = linalg.generic {indexing_maps = [#x, #w, #xs, #ws, #y], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %b1, %xs, %bs1 : tensor<1x16x32xf4E2M1FN>, tensor<64x16x32xf4E2M1FN>, tensor<1x16xf8E8M0FNU>, tensor<64x16xf8E8M0FNU>)
      outs(%f1 : tensor<1x64xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1x64xf32>
  %h1 = tensor.empty() : tensor<1x64xf16>
  %y1 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%r1 : tensor<1x64xf32>) outs(%h1 : tensor<1x64xf16>) {
  ^bb0(%in: f32, %out: f16):
    %0 = arith.truncf %in : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<1x64xf16>
  util.return %y0, %y1 : tensor<1x256xbf16>, tensor<1x64xf16>
}

// Of several rows, parts of the result may be copied, which takes longer than these products.

// CHECK-LABEL: util.func public @many_rows(
// CHECK-NOT: tensor.concat
util.func public @many_rows(%x: tensor<64x16x32xf4E2M1FN>, %xs: tensor<64x16xf8E8M0FNU>) -> (tensor<64x256xbf16>, tensor<64x64xbf16>) {
  %zero = arith.constant 0.0 : f32
  %w0 = util.global.load @w0 : tensor<256x256xi8>
  %s0 = util.global.load @s0 : tensor<256x16xi8>
  %b0 = iree_tensor_ext.bitcast %w0 : tensor<256x256xi8> -> tensor<256x16x32xf4E2M1FN>
  %bs0 = iree_tensor_ext.bitcast %s0 : tensor<256x16xi8> -> tensor<256x16xf8E8M0FNU>
  %e0 = tensor.empty() : tensor<64x256xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<64x256xf32>) -> tensor<64x256xf32>
  %r0 = linalg.generic {indexing_maps = [#x, #w, #xs, #ws, #y], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %b0, %xs, %bs0 : tensor<64x16x32xf4E2M1FN>, tensor<256x16x32xf4E2M1FN>, tensor<64x16xf8E8M0FNU>, tensor<256x16xf8E8M0FNU>)
      outs(%f0 : tensor<64x256xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x256xf32>
  %h0 = tensor.empty() : tensor<64x256xbf16>
  %y0 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%r0 : tensor<64x256xf32>) outs(%h0 : tensor<64x256xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<64x256xbf16>
  %w1 = util.global.load @w1 : tensor<64x256xi8>
  %s1 = util.global.load @s1 : tensor<64x16xi8>
  %b1 = iree_tensor_ext.bitcast %w1 : tensor<64x256xi8> -> tensor<64x16x32xf4E2M1FN>
  %bs1 = iree_tensor_ext.bitcast %s1 : tensor<64x16xi8> -> tensor<64x16xf8E8M0FNU>
  %e1 = tensor.empty() : tensor<64x64xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<64x64xf32>) -> tensor<64x64xf32>
  %r1 = linalg.generic {indexing_maps = [#x, #w, #xs, #ws, #y], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %b1, %xs, %bs1 : tensor<64x16x32xf4E2M1FN>, tensor<64x16x32xf4E2M1FN>, tensor<64x16xf8E8M0FNU>, tensor<64x16xf8E8M0FNU>)
      outs(%f1 : tensor<64x64xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x64xf32>
  %h1 = tensor.empty() : tensor<64x64xbf16>
  %y1 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%r1 : tensor<64x64xf32>) outs(%h1 : tensor<64x64xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<64x64xbf16>
  util.return %y0, %y1 : tensor<64x256xbf16>, tensor<64x64xbf16>
}

// Larger ones are worth it, of any number of rows on average. Rows that are divided into sequences alike are so in front
// of slices.

// CHECK-LABEL: util.func public @prompt(
// CHECK: tensor.concat dim(0) {{.*}} -> tensor<6144x2048xi8>
// CHECK: tensor.concat dim(0) {{.*}} -> tensor<6144x128xi8>
// CHECK: linalg.generic {{.*}}mxcomp.scaled_matmul
// CHECK: %[[Y:.+]] = linalg.generic {{.*}} ins({{.*}} : tensor<?x6144xf32>) outs({{.*}} : tensor<?x6144xbf16>)
// CHECK: %[[WHOLE:.+]] = tensor.expand_shape %[[Y]] {{\[\[}}0, 1], [2]] output_shape [2, %[[T:.+]], 6144]
// CHECK: %[[Y0:.+]] = tensor.extract_slice %[[WHOLE]][0, 0, 0] [2, %[[T]], 4096] [1, 1, 1]
// CHECK: %[[Z0:.+]] = tensor.expand_shape %[[Y0]] {{\[\[}}0], [1], [2, 3]] output_shape [2, %[[T]], 32, 128]
// CHECK: %[[Y1:.+]] = tensor.extract_slice %[[WHOLE]][0, 0, 4096] [2, %[[T]], 1024] [1, 1, 1]
// CHECK: %[[Z1:.+]] = tensor.expand_shape %[[Y1]]
// CHECK: %[[Y2:.+]] = tensor.extract_slice %[[WHOLE]][0, 0, 5120] [2, %[[T]], 1024] [1, 1, 1]
// CHECK: %[[Z2:.+]] = tensor.expand_shape %[[Y2]]
// CHECK: util.return %[[Z0]], %[[Z1]], %[[Z2]]
// APART-LABEL: util.func public @prompt(
// APART: tensor.extract_slice %[[Y:.+]][0, 0] [%[[M:.+]], 4096] [1, 1]
// APART: tensor.extract_slice %[[Y]][0, 4096] [%[[M]], 1024] [1, 1]
// APART: tensor.extract_slice %[[Y]][0, 5120] [%[[M]], 1024] [1, 1]
util.func public @prompt(%x: tensor<?x128x32xf4E2M1FN>, %xs: tensor<?x128xf8E8M0FNU>) -> (tensor<2x?x32x128xbf16>, tensor<2x?x8x128xbf16>, tensor<2x?x8x128xbf16>) {
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x128x32xf4E2M1FN>
  %w0 = util.global.load @w3 : tensor<4096x2048xi8>
  %s0 = util.global.load @s3 : tensor<4096x128xi8>
  %b0 = iree_tensor_ext.bitcast %w0 : tensor<4096x2048xi8> -> tensor<4096x128x32xf4E2M1FN>
  %bs0 = iree_tensor_ext.bitcast %s0 : tensor<4096x128xi8> -> tensor<4096x128xf8E8M0FNU>
  %e0 = tensor.empty(%m) : tensor<?x4096xf32>
  %f0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?x4096xf32>) -> tensor<?x4096xf32>
  %r0 = linalg.generic {indexing_maps = [#x, #w, #xs, #ws, #y], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %b0, %xs, %bs0 : tensor<?x128x32xf4E2M1FN>, tensor<4096x128x32xf4E2M1FN>, tensor<?x128xf8E8M0FNU>, tensor<4096x128xf8E8M0FNU>)
      outs(%f0 : tensor<?x4096xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?x4096xf32>
  %h0 = tensor.empty(%m) : tensor<?x4096xbf16>
  %y0 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%r0 : tensor<?x4096xf32>) outs(%h0 : tensor<?x4096xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<?x4096xbf16>
  %w1 = util.global.load @w4 : tensor<1024x2048xi8>
  %s1 = util.global.load @s4 : tensor<1024x128xi8>
  %b1 = iree_tensor_ext.bitcast %w1 : tensor<1024x2048xi8> -> tensor<1024x128x32xf4E2M1FN>
  %bs1 = iree_tensor_ext.bitcast %s1 : tensor<1024x128xi8> -> tensor<1024x128xf8E8M0FNU>
  %e1 = tensor.empty(%m) : tensor<?x1024xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?x1024xf32>) -> tensor<?x1024xf32>
  %r1 = linalg.generic {indexing_maps = [#x, #w, #xs, #ws, #y], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %b1, %xs, %bs1 : tensor<?x128x32xf4E2M1FN>, tensor<1024x128x32xf4E2M1FN>, tensor<?x128xf8E8M0FNU>, tensor<1024x128xf8E8M0FNU>)
      outs(%f1 : tensor<?x1024xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?x1024xf32>
  %h1 = tensor.empty(%m) : tensor<?x1024xbf16>
  %y1 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%r1 : tensor<?x1024xf32>) outs(%h1 : tensor<?x1024xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<?x1024xbf16>
  %w2 = util.global.load @w5 : tensor<1024x2048xi8>
  %s2 = util.global.load @s5 : tensor<1024x128xi8>
  %b2 = iree_tensor_ext.bitcast %w2 : tensor<1024x2048xi8> -> tensor<1024x128x32xf4E2M1FN>
  %bs2 = iree_tensor_ext.bitcast %s2 : tensor<1024x128xi8> -> tensor<1024x128xf8E8M0FNU>
  %e2 = tensor.empty(%m) : tensor<?x1024xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x1024xf32>) -> tensor<?x1024xf32>
  %r2 = linalg.generic {indexing_maps = [#x, #w, #xs, #ws, #y], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %b2, %xs, %bs2 : tensor<?x128x32xf4E2M1FN>, tensor<1024x128x32xf4E2M1FN>, tensor<?x128xf8E8M0FNU>, tensor<1024x128xf8E8M0FNU>)
      outs(%f2 : tensor<?x1024xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?x1024xf32>
  %h2 = tensor.empty(%m) : tensor<?x1024xbf16>
  %y2 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%r2 : tensor<?x1024xf32>) outs(%h2 : tensor<?x1024xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<?x1024xbf16>
  %t = arith.divui %m, %c2 : index
  %z0 = tensor.expand_shape %y0 [[0, 1], [2, 3]] output_shape [2, %t, 32, 128] : tensor<?x4096xbf16> into tensor<2x?x32x128xbf16>
  %z1 = tensor.expand_shape %y1 [[0, 1], [2, 3]] output_shape [2, %t, 8, 128] : tensor<?x1024xbf16> into tensor<2x?x8x128xbf16>
  %z2 = tensor.expand_shape %y2 [[0, 1], [2, 3]] output_shape [2, %t, 8, 128] : tensor<?x1024xbf16> into tensor<2x?x8x128xbf16>
  util.return %z0, %z1, %z2 : tensor<2x?x32x128xbf16>, tensor<2x?x8x128xbf16>, tensor<2x?x8x128xbf16>
}
