// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-write-rows,mxcomp-take-attention,mxcomp-join-rows)' | filecheck %s

#l = affine_map<(l) -> (l)>
#one = affine_map<(l) -> (0)>
#all = affine_map<(h, d) -> (h, d)>
#table = affine_map<(h, d) -> (0, d)>
#cache = affine_map<(h, l, d) -> (h, l, d)>
#of_l = affine_map<(h, l, d) -> (l)>
#row = affine_map<(h, l, d) -> (h, d)>
#to_heads = affine_map<(h, g, l, d) -> (h, l, d)>
#heads = affine_map<(h, g, l, d) -> (h, g, l, d)>
#q = affine_map<(b, m, n, k1, k2) -> (b, m, k1)>
#k = affine_map<(b, m, n, k1, k2) -> (b, k2, k1)>
#v = affine_map<(b, m, n, k1, k2) -> (b, k2, n)>
#s = affine_map<(b, m, n, k1, k2) -> ()>
#o = affine_map<(b, m, n, k1, k2) -> (b, m, n)>

// One dispatch rotates, rounds the new rows to 8 bits, writes them, and attends; caches are also results as floats.

// CHECK-LABEL: util.func public @joined(
// CHECK-NOT: tensor.concat
// CHECK-NOT: arith.truncf
// CHECK: flow.dispatch.region -> (tensor<2x4096xi8>, tensor<2x4096xi8>, tensor<2x128xbf16>)
// CHECK: "mx_attention_decode_r2_d64_s2_{{[0-9a-f]+}}_rotated"
// CHECK-NOT: flow.dispatch.region
// CHECK: util.return
util.func public @joined(%q: tensor<4x64xbf16>, %k: tensor<2x64xbf16>, %v: tensor<2x64xbf16>, %cos: tensor<1x64xbf16>, %at: tensor<1xi64>, %keys: tensor<2x64x64xi8>, %values: tensor<2x64x64xi8>) -> (tensor<4x1x64xbf16>, tensor<2x64x64xf8E4M3FN>, tensor<2x64x64xf8E4M3FN>) {
  %e8 = tensor.empty() : tensor<2x64xf8E4M3FN>
  %ec = tensor.empty() : tensor<2x64x64xi8>
  %eh = tensor.empty() : tensor<2x2x64x64xbf16>
  %ep = tensor.empty() : tensor<64xi1>
  %here = linalg.generic {indexing_maps = [#one, #l], iterator_types = ["parallel"]} ins(%at : tensor<1xi64>) outs(%ep : tensor<64xi1>) {
  ^bb0(%x: i64, %o: i1):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.cmpi eq, %1, %x : i64
    linalg.yield %2 : i1
  } -> tensor<64xi1>
  %k0 = tensor.extract_slice %k[0, 0] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %k1 = tensor.extract_slice %k[0, 32] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %kt = tensor.concat dim(1) %k1, %k0 : (tensor<2x32xbf16>, tensor<2x32xbf16>) -> tensor<2x64xbf16>
  %ke = tensor.empty() : tensor<2x64xbf16>
  %kr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]} ins(%k, %cos, %kt : tensor<2x64xbf16>, tensor<1x64xbf16>, tensor<2x64xbf16>) outs(%ke : tensor<2x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %o: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x64xbf16>
  %k8 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%kr : tensor<2x64xbf16>) outs(%e8 : tensor<2x64xf8E4M3FN>) {
  ^bb0(%x: bf16, %o: f8E4M3FN):
    %0 = arith.truncf %x : bf16 to f8E4M3FN
    linalg.yield %0 : f8E4M3FN
  } -> tensor<2x64xf8E4M3FN>
  %kb = iree_tensor_ext.bitcast %k8 : tensor<2x64xf8E4M3FN> -> tensor<2x64xi8>
  %v8 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%v : tensor<2x64xbf16>) outs(%e8 : tensor<2x64xf8E4M3FN>) {
  ^bb0(%x: bf16, %o: f8E4M3FN):
    %0 = arith.truncf %x : bf16 to f8E4M3FN
    linalg.yield %0 : f8E4M3FN
  } -> tensor<2x64xf8E4M3FN>
  %vb = iree_tensor_ext.bitcast %v8 : tensor<2x64xf8E4M3FN> -> tensor<2x64xi8>
  %q0 = tensor.extract_slice %q[0, 0] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %q1 = tensor.extract_slice %q[0, 32] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %qt = tensor.concat dim(1) %q1, %q0 : (tensor<4x32xbf16>, tensor<4x32xbf16>) -> tensor<4x64xbf16>
  %qe = tensor.empty() : tensor<4x64xbf16>
  %qr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]} ins(%q, %cos, %qt : tensor<4x64xbf16>, tensor<1x64xbf16>, tensor<4x64xbf16>) outs(%qe : tensor<4x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %o: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<4x64xbf16>
  %kc = linalg.generic {indexing_maps = [#of_l, #row, #cache, #cache], iterator_types = ["parallel", "parallel", "parallel"]} ins(%here, %kb, %keys : tensor<64xi1>, tensor<2x64xi8>, tensor<2x64x64xi8>) outs(%ec : tensor<2x64x64xi8>) {
  ^bb0(%is: i1, %new: i8, %old: i8, %o: i8):
    %0 = arith.select %is, %new, %old : i8
    linalg.yield %0 : i8
  } -> tensor<2x64x64xi8>
  %vc = linalg.generic {indexing_maps = [#of_l, #row, #cache, #cache], iterator_types = ["parallel", "parallel", "parallel"]} ins(%here, %vb, %values : tensor<64xi1>, tensor<2x64xi8>, tensor<2x64x64xi8>) outs(%ec : tensor<2x64x64xi8>) {
  ^bb0(%is: i1, %new: i8, %old: i8, %o: i8):
    %0 = arith.select %is, %new, %old : i8
    linalg.yield %0 : i8
  } -> tensor<2x64x64xi8>
  %kf = iree_tensor_ext.bitcast %kc : tensor<2x64x64xi8> -> tensor<2x64x64xf8E4M3FN>
  %kh = linalg.generic {indexing_maps = [#to_heads, #heads], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%kf : tensor<2x64x64xf8E4M3FN>) outs(%eh : tensor<2x2x64x64xbf16>) {
  ^bb0(%x: f8E4M3FN, %o: bf16):
    %0 = arith.extf %x : f8E4M3FN to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x2x64x64xbf16>
  %khh = tensor.collapse_shape %kh [[0, 1], [2], [3]] : tensor<2x2x64x64xbf16> into tensor<4x64x64xbf16>
  %vf = iree_tensor_ext.bitcast %vc : tensor<2x64x64xi8> -> tensor<2x64x64xf8E4M3FN>
  %vh = linalg.generic {indexing_maps = [#to_heads, #heads], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%vf : tensor<2x64x64xf8E4M3FN>) outs(%eh : tensor<2x2x64x64xbf16>) {
  ^bb0(%x: f8E4M3FN, %o: bf16):
    %0 = arith.extf %x : f8E4M3FN to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x2x64x64xbf16>
  %vhh = tensor.collapse_shape %vh [[0, 1], [2], [3]] : tensor<2x2x64x64xbf16> into tensor<4x64x64xbf16>
  %scale = arith.constant 0.125 : f32
  %eo = tensor.empty() : tensor<4x1x64xbf16>
  %qs = tensor.expand_shape %qr [[0, 1], [2]] output_shape [4, 1, 64] : tensor<4x64xbf16> into tensor<4x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]> ins(%qs, %khh, %vhh, %scale : tensor<4x1x64xbf16>, tensor<4x64x64xbf16>, tensor<4x64x64xbf16>, f32) outs(%eo : tensor<4x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x1x64xbf16>
  util.return %r, %kf, %vf : tensor<4x1x64xbf16>, tensor<2x64x64xf8E4M3FN>, tensor<2x64x64xf8E4M3FN>
}

// Where something else reads the new row of keys, all is apart.

// CHECK-LABEL: util.func public @read(
// CHECK-COUNT-2: tensor.concat
// CHECK: "mx_write_rows_r1_d64_
// CHECK: "mx_attention_decode_r2_d64_s2_{{[0-9a-f]+}}"
// CHECK: util.return
util.func public @read(%q: tensor<4x64xbf16>, %k: tensor<2x64xbf16>, %v: tensor<2x64xbf16>, %cos: tensor<1x64xbf16>, %at: tensor<1xi64>, %keys: tensor<2x64x64xi8>, %values: tensor<2x64x64xi8>) -> (tensor<4x1x64xbf16>, tensor<2x64x64xi8>, tensor<2x64x64xi8>, tensor<2x64xf8E4M3FN>) {
  %e8 = tensor.empty() : tensor<2x64xf8E4M3FN>
  %ec = tensor.empty() : tensor<2x64x64xi8>
  %eh = tensor.empty() : tensor<2x2x64x64xbf16>
  %ep = tensor.empty() : tensor<64xi1>
  %here = linalg.generic {indexing_maps = [#one, #l], iterator_types = ["parallel"]} ins(%at : tensor<1xi64>) outs(%ep : tensor<64xi1>) {
  ^bb0(%x: i64, %o: i1):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.cmpi eq, %1, %x : i64
    linalg.yield %2 : i1
  } -> tensor<64xi1>
  %k0 = tensor.extract_slice %k[0, 0] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %k1 = tensor.extract_slice %k[0, 32] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %kt = tensor.concat dim(1) %k1, %k0 : (tensor<2x32xbf16>, tensor<2x32xbf16>) -> tensor<2x64xbf16>
  %ke = tensor.empty() : tensor<2x64xbf16>
  %kr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]} ins(%k, %cos, %kt : tensor<2x64xbf16>, tensor<1x64xbf16>, tensor<2x64xbf16>) outs(%ke : tensor<2x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %o: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x64xbf16>
  %k8 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%kr : tensor<2x64xbf16>) outs(%e8 : tensor<2x64xf8E4M3FN>) {
  ^bb0(%x: bf16, %o: f8E4M3FN):
    %0 = arith.truncf %x : bf16 to f8E4M3FN
    linalg.yield %0 : f8E4M3FN
  } -> tensor<2x64xf8E4M3FN>
  %kb = iree_tensor_ext.bitcast %k8 : tensor<2x64xf8E4M3FN> -> tensor<2x64xi8>
  %v8 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%v : tensor<2x64xbf16>) outs(%e8 : tensor<2x64xf8E4M3FN>) {
  ^bb0(%x: bf16, %o: f8E4M3FN):
    %0 = arith.truncf %x : bf16 to f8E4M3FN
    linalg.yield %0 : f8E4M3FN
  } -> tensor<2x64xf8E4M3FN>
  %vb = iree_tensor_ext.bitcast %v8 : tensor<2x64xf8E4M3FN> -> tensor<2x64xi8>
  %q0 = tensor.extract_slice %q[0, 0] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %q1 = tensor.extract_slice %q[0, 32] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %qt = tensor.concat dim(1) %q1, %q0 : (tensor<4x32xbf16>, tensor<4x32xbf16>) -> tensor<4x64xbf16>
  %qe = tensor.empty() : tensor<4x64xbf16>
  %qr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]} ins(%q, %cos, %qt : tensor<4x64xbf16>, tensor<1x64xbf16>, tensor<4x64xbf16>) outs(%qe : tensor<4x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %o: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<4x64xbf16>
  %kc = linalg.generic {indexing_maps = [#of_l, #row, #cache, #cache], iterator_types = ["parallel", "parallel", "parallel"]} ins(%here, %kb, %keys : tensor<64xi1>, tensor<2x64xi8>, tensor<2x64x64xi8>) outs(%ec : tensor<2x64x64xi8>) {
  ^bb0(%is: i1, %new: i8, %old: i8, %o: i8):
    %0 = arith.select %is, %new, %old : i8
    linalg.yield %0 : i8
  } -> tensor<2x64x64xi8>
  %vc = linalg.generic {indexing_maps = [#of_l, #row, #cache, #cache], iterator_types = ["parallel", "parallel", "parallel"]} ins(%here, %vb, %values : tensor<64xi1>, tensor<2x64xi8>, tensor<2x64x64xi8>) outs(%ec : tensor<2x64x64xi8>) {
  ^bb0(%is: i1, %new: i8, %old: i8, %o: i8):
    %0 = arith.select %is, %new, %old : i8
    linalg.yield %0 : i8
  } -> tensor<2x64x64xi8>
  %kf = iree_tensor_ext.bitcast %kc : tensor<2x64x64xi8> -> tensor<2x64x64xf8E4M3FN>
  %kh = linalg.generic {indexing_maps = [#to_heads, #heads], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%kf : tensor<2x64x64xf8E4M3FN>) outs(%eh : tensor<2x2x64x64xbf16>) {
  ^bb0(%x: f8E4M3FN, %o: bf16):
    %0 = arith.extf %x : f8E4M3FN to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x2x64x64xbf16>
  %khh = tensor.collapse_shape %kh [[0, 1], [2], [3]] : tensor<2x2x64x64xbf16> into tensor<4x64x64xbf16>
  %vf = iree_tensor_ext.bitcast %vc : tensor<2x64x64xi8> -> tensor<2x64x64xf8E4M3FN>
  %vh = linalg.generic {indexing_maps = [#to_heads, #heads], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%vf : tensor<2x64x64xf8E4M3FN>) outs(%eh : tensor<2x2x64x64xbf16>) {
  ^bb0(%x: f8E4M3FN, %o: bf16):
    %0 = arith.extf %x : f8E4M3FN to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x2x64x64xbf16>
  %vhh = tensor.collapse_shape %vh [[0, 1], [2], [3]] : tensor<2x2x64x64xbf16> into tensor<4x64x64xbf16>
  %scale = arith.constant 0.125 : f32
  %eo = tensor.empty() : tensor<4x1x64xbf16>
  %qs = tensor.expand_shape %qr [[0, 1], [2]] output_shape [4, 1, 64] : tensor<4x64xbf16> into tensor<4x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]> ins(%qs, %khh, %vhh, %scale : tensor<4x1x64xbf16>, tensor<4x64x64xbf16>, tensor<4x64x64xbf16>, f32) outs(%eo : tensor<4x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x1x64xbf16>
  util.return %r, %kc, %vc, %k8 : tensor<4x1x64xbf16>, tensor<2x64x64xi8>, tensor<2x64x64xi8>, tensor<2x64xf8E4M3FN>
}

// Where something reads the new cache before attention, rows are written in front of both.

// CHECK-LABEL: util.func public @early(
// CHECK-NOT: tensor.concat
// CHECK: "mx_write_rotated_rows_d64_128"
// CHECK: arith.sitofp %{{.+}} : i8 to f32
// CHECK: "mx_attention_decode_r2_d64_s2_{{[0-9a-f]+}}"
// CHECK: util.return
util.func public @early(%q: tensor<4x64xbf16>, %k: tensor<2x64xbf16>, %v: tensor<2x64xbf16>, %cos: tensor<1x64xbf16>, %at: tensor<1xi64>, %keys: tensor<2x64x64xi8>, %values: tensor<2x64x64xi8>) -> (tensor<4x1x64xbf16>, tensor<2x64x64xi8>, tensor<2x64x64xi8>, tensor<2x64x64xf32>) {
  %e8 = tensor.empty() : tensor<2x64xf8E4M3FN>
  %ec = tensor.empty() : tensor<2x64x64xi8>
  %eh = tensor.empty() : tensor<2x2x64x64xbf16>
  %ep = tensor.empty() : tensor<64xi1>
  %here = linalg.generic {indexing_maps = [#one, #l], iterator_types = ["parallel"]} ins(%at : tensor<1xi64>) outs(%ep : tensor<64xi1>) {
  ^bb0(%x: i64, %o: i1):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.cmpi eq, %1, %x : i64
    linalg.yield %2 : i1
  } -> tensor<64xi1>
  %q0 = tensor.extract_slice %q[0, 0] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %q1 = tensor.extract_slice %q[0, 32] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %qt = tensor.concat dim(1) %q1, %q0 : (tensor<4x32xbf16>, tensor<4x32xbf16>) -> tensor<4x64xbf16>
  %qe = tensor.empty() : tensor<4x64xbf16>
  %qr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]} ins(%q, %cos, %qt : tensor<4x64xbf16>, tensor<1x64xbf16>, tensor<4x64xbf16>) outs(%qe : tensor<4x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %o: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<4x64xbf16>
  %k0 = tensor.extract_slice %k[0, 0] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %k1 = tensor.extract_slice %k[0, 32] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %kt = tensor.concat dim(1) %k1, %k0 : (tensor<2x32xbf16>, tensor<2x32xbf16>) -> tensor<2x64xbf16>
  %ke = tensor.empty() : tensor<2x64xbf16>
  %kr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]} ins(%k, %cos, %kt : tensor<2x64xbf16>, tensor<1x64xbf16>, tensor<2x64xbf16>) outs(%ke : tensor<2x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %o: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x64xbf16>
  %k8 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%kr : tensor<2x64xbf16>) outs(%e8 : tensor<2x64xf8E4M3FN>) {
  ^bb0(%x: bf16, %o: f8E4M3FN):
    %0 = arith.truncf %x : bf16 to f8E4M3FN
    linalg.yield %0 : f8E4M3FN
  } -> tensor<2x64xf8E4M3FN>
  %kb = iree_tensor_ext.bitcast %k8 : tensor<2x64xf8E4M3FN> -> tensor<2x64xi8>
  %v8 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%v : tensor<2x64xbf16>) outs(%e8 : tensor<2x64xf8E4M3FN>) {
  ^bb0(%x: bf16, %o: f8E4M3FN):
    %0 = arith.truncf %x : bf16 to f8E4M3FN
    linalg.yield %0 : f8E4M3FN
  } -> tensor<2x64xf8E4M3FN>
  %vb = iree_tensor_ext.bitcast %v8 : tensor<2x64xf8E4M3FN> -> tensor<2x64xi8>
  %kc = linalg.generic {indexing_maps = [#of_l, #row, #cache, #cache], iterator_types = ["parallel", "parallel", "parallel"]} ins(%here, %kb, %keys : tensor<64xi1>, tensor<2x64xi8>, tensor<2x64x64xi8>) outs(%ec : tensor<2x64x64xi8>) {
  ^bb0(%is: i1, %new: i8, %old: i8, %o: i8):
    %0 = arith.select %is, %new, %old : i8
    linalg.yield %0 : i8
  } -> tensor<2x64x64xi8>
  %vc = linalg.generic {indexing_maps = [#of_l, #row, #cache, #cache], iterator_types = ["parallel", "parallel", "parallel"]} ins(%here, %vb, %values : tensor<64xi1>, tensor<2x64xi8>, tensor<2x64x64xi8>) outs(%ec : tensor<2x64x64xi8>) {
  ^bb0(%is: i1, %new: i8, %old: i8, %o: i8):
    %0 = arith.select %is, %new, %old : i8
    linalg.yield %0 : i8
  } -> tensor<2x64x64xi8>
  %es = tensor.empty() : tensor<2x64x64xf32>
  %sum = linalg.generic {indexing_maps = [#cache, #cache], iterator_types = ["parallel", "parallel", "parallel"]} ins(%kc : tensor<2x64x64xi8>) outs(%es : tensor<2x64x64xf32>) {
  ^bb0(%x: i8, %o: f32):
    %0 = arith.sitofp %x : i8 to f32
    linalg.yield %0 : f32
  } -> tensor<2x64x64xf32>
  %kf = iree_tensor_ext.bitcast %kc : tensor<2x64x64xi8> -> tensor<2x64x64xf8E4M3FN>
  %kh = linalg.generic {indexing_maps = [#to_heads, #heads], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%kf : tensor<2x64x64xf8E4M3FN>) outs(%eh : tensor<2x2x64x64xbf16>) {
  ^bb0(%x: f8E4M3FN, %o: bf16):
    %0 = arith.extf %x : f8E4M3FN to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x2x64x64xbf16>
  %khh = tensor.collapse_shape %kh [[0, 1], [2], [3]] : tensor<2x2x64x64xbf16> into tensor<4x64x64xbf16>
  %vf = iree_tensor_ext.bitcast %vc : tensor<2x64x64xi8> -> tensor<2x64x64xf8E4M3FN>
  %vh = linalg.generic {indexing_maps = [#to_heads, #heads], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%vf : tensor<2x64x64xf8E4M3FN>) outs(%eh : tensor<2x2x64x64xbf16>) {
  ^bb0(%x: f8E4M3FN, %o: bf16):
    %0 = arith.extf %x : f8E4M3FN to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x2x64x64xbf16>
  %vhh = tensor.collapse_shape %vh [[0, 1], [2], [3]] : tensor<2x2x64x64xbf16> into tensor<4x64x64xbf16>
  %scale = arith.constant 0.125 : f32
  %eo = tensor.empty() : tensor<4x1x64xbf16>
  %qs = tensor.expand_shape %qr [[0, 1], [2]] output_shape [4, 1, 64] : tensor<4x64xbf16> into tensor<4x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]> ins(%qs, %khh, %vhh, %scale : tensor<4x1x64xbf16>, tensor<4x64x64xbf16>, tensor<4x64x64xbf16>, f32) outs(%eo : tensor<4x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x1x64xbf16>
  util.return %r, %kc, %vc, %sum : tensor<4x1x64xbf16>, tensor<2x64x64xi8>, tensor<2x64x64xi8>, tensor<2x64x64xf32>
}

// Nor can that dispatch rotate queries that are computed later: all is apart.

// CHECK-LABEL: util.func public @late(
// CHECK: tensor.concat
// CHECK: "mx_write_rows_r1_d64_
// CHECK: tensor.concat
// CHECK: "mx_attention_decode_r2_d64_s2_{{[0-9a-f]+}}"
// CHECK: util.return
util.func public @late(%q: tensor<4x64xbf16>, %k: tensor<2x64xbf16>, %v: tensor<2x64xbf16>, %cos: tensor<1x64xbf16>, %at: tensor<1xi64>, %keys: tensor<2x64x64xi8>, %values: tensor<2x64x64xi8>) -> (tensor<4x1x64xbf16>, tensor<2x64x64xi8>, tensor<2x64x64xi8>, tensor<2x64x64xf32>) {
  %e8 = tensor.empty() : tensor<2x64xf8E4M3FN>
  %ec = tensor.empty() : tensor<2x64x64xi8>
  %eh = tensor.empty() : tensor<2x2x64x64xbf16>
  %ep = tensor.empty() : tensor<64xi1>
  %here = linalg.generic {indexing_maps = [#one, #l], iterator_types = ["parallel"]} ins(%at : tensor<1xi64>) outs(%ep : tensor<64xi1>) {
  ^bb0(%x: i64, %o: i1):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.cmpi eq, %1, %x : i64
    linalg.yield %2 : i1
  } -> tensor<64xi1>
  %k0 = tensor.extract_slice %k[0, 0] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %k1 = tensor.extract_slice %k[0, 32] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %kt = tensor.concat dim(1) %k1, %k0 : (tensor<2x32xbf16>, tensor<2x32xbf16>) -> tensor<2x64xbf16>
  %ke = tensor.empty() : tensor<2x64xbf16>
  %kr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]} ins(%k, %cos, %kt : tensor<2x64xbf16>, tensor<1x64xbf16>, tensor<2x64xbf16>) outs(%ke : tensor<2x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %o: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x64xbf16>
  %k8 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%kr : tensor<2x64xbf16>) outs(%e8 : tensor<2x64xf8E4M3FN>) {
  ^bb0(%x: bf16, %o: f8E4M3FN):
    %0 = arith.truncf %x : bf16 to f8E4M3FN
    linalg.yield %0 : f8E4M3FN
  } -> tensor<2x64xf8E4M3FN>
  %kb = iree_tensor_ext.bitcast %k8 : tensor<2x64xf8E4M3FN> -> tensor<2x64xi8>
  %v8 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%v : tensor<2x64xbf16>) outs(%e8 : tensor<2x64xf8E4M3FN>) {
  ^bb0(%x: bf16, %o: f8E4M3FN):
    %0 = arith.truncf %x : bf16 to f8E4M3FN
    linalg.yield %0 : f8E4M3FN
  } -> tensor<2x64xf8E4M3FN>
  %vb = iree_tensor_ext.bitcast %v8 : tensor<2x64xf8E4M3FN> -> tensor<2x64xi8>
  %kc = linalg.generic {indexing_maps = [#of_l, #row, #cache, #cache], iterator_types = ["parallel", "parallel", "parallel"]} ins(%here, %kb, %keys : tensor<64xi1>, tensor<2x64xi8>, tensor<2x64x64xi8>) outs(%ec : tensor<2x64x64xi8>) {
  ^bb0(%is: i1, %new: i8, %old: i8, %o: i8):
    %0 = arith.select %is, %new, %old : i8
    linalg.yield %0 : i8
  } -> tensor<2x64x64xi8>
  %vc = linalg.generic {indexing_maps = [#of_l, #row, #cache, #cache], iterator_types = ["parallel", "parallel", "parallel"]} ins(%here, %vb, %values : tensor<64xi1>, tensor<2x64xi8>, tensor<2x64x64xi8>) outs(%ec : tensor<2x64x64xi8>) {
  ^bb0(%is: i1, %new: i8, %old: i8, %o: i8):
    %0 = arith.select %is, %new, %old : i8
    linalg.yield %0 : i8
  } -> tensor<2x64x64xi8>
  %es = tensor.empty() : tensor<2x64x64xf32>
  %sum = linalg.generic {indexing_maps = [#cache, #cache], iterator_types = ["parallel", "parallel", "parallel"]} ins(%kc : tensor<2x64x64xi8>) outs(%es : tensor<2x64x64xf32>) {
  ^bb0(%x: i8, %o: f32):
    %0 = arith.sitofp %x : i8 to f32
    linalg.yield %0 : f32
  } -> tensor<2x64x64xf32>
  %q0 = tensor.extract_slice %q[0, 0] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %q1 = tensor.extract_slice %q[0, 32] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %qt = tensor.concat dim(1) %q1, %q0 : (tensor<4x32xbf16>, tensor<4x32xbf16>) -> tensor<4x64xbf16>
  %qe = tensor.empty() : tensor<4x64xbf16>
  %qr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]} ins(%q, %cos, %qt : tensor<4x64xbf16>, tensor<1x64xbf16>, tensor<4x64xbf16>) outs(%qe : tensor<4x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %o: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<4x64xbf16>
  %kf = iree_tensor_ext.bitcast %kc : tensor<2x64x64xi8> -> tensor<2x64x64xf8E4M3FN>
  %kh = linalg.generic {indexing_maps = [#to_heads, #heads], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%kf : tensor<2x64x64xf8E4M3FN>) outs(%eh : tensor<2x2x64x64xbf16>) {
  ^bb0(%x: f8E4M3FN, %o: bf16):
    %0 = arith.extf %x : f8E4M3FN to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x2x64x64xbf16>
  %khh = tensor.collapse_shape %kh [[0, 1], [2], [3]] : tensor<2x2x64x64xbf16> into tensor<4x64x64xbf16>
  %vf = iree_tensor_ext.bitcast %vc : tensor<2x64x64xi8> -> tensor<2x64x64xf8E4M3FN>
  %vh = linalg.generic {indexing_maps = [#to_heads, #heads], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%vf : tensor<2x64x64xf8E4M3FN>) outs(%eh : tensor<2x2x64x64xbf16>) {
  ^bb0(%x: f8E4M3FN, %o: bf16):
    %0 = arith.extf %x : f8E4M3FN to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x2x64x64xbf16>
  %vhh = tensor.collapse_shape %vh [[0, 1], [2], [3]] : tensor<2x2x64x64xbf16> into tensor<4x64x64xbf16>
  %scale = arith.constant 0.125 : f32
  %eo = tensor.empty() : tensor<4x1x64xbf16>
  %qs = tensor.expand_shape %qr [[0, 1], [2]] output_shape [4, 1, 64] : tensor<4x64xbf16> into tensor<4x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]> ins(%qs, %khh, %vhh, %scale : tensor<4x1x64xbf16>, tensor<4x64x64xbf16>, tensor<4x64x64xbf16>, f32) outs(%eo : tensor<4x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x1x64xbf16>
  util.return %r, %kc, %vc, %sum : tensor<4x1x64xbf16>, tensor<2x64x64xi8>, tensor<2x64x64xi8>, tensor<2x64x64xf32>
}
