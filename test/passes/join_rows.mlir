// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-join-rows)' | filecheck %s

#all = affine_map<(d0, d1) -> (d0, d1)>
#table = affine_map<(d0, d1) -> (0, d1)>
#new = affine_map<(d0, d1, d2, d3, d4, d5) -> (d3)>
#other = affine_map<(d0, d1, d2, d3, d4, d5) -> (d4)>
#places = affine_map<(d0, d1, d2, d3, d4, d5) -> (d5)>
#cache = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2)>

// Rotations of queries and keys, and values, are made of what they are parts of, where rows are written.

// CHECK-LABEL: util.func public @written(
// CHECK-SAME: %[[QKV:[a-z0-9]+]]: tensor<1x512xbf16>, %[[ANGLES:[a-z0-9]+]]: tensor<1x32xf32>, %[[AT:[a-z0-9]+]]: tensor<2xi32>,
// CHECK-NOT: tensor.concat
// CHECK-DAG: tensor.collapse_shape %[[QKV]]
// CHECK-DAG: tensor.collapse_shape %[[ANGLES]]
// CHECK-NOT: tensor.concat
// CHECK: %[[MADE:.+]]:3 = flow.dispatch.region -> (tensor<2x16x64xbf16>, tensor<2x16x64xbf16>, tensor<2x128xbf16>)
// CHECK: linalg.generic
// CHECK-SAME: %[[AT]] : tensor<512xbf16>, tensor<32xf32>, tensor<2xi32>)
// CHECK-SAME: ukernel_descriptor<"mx_write_rotated_rows_d64_128", tensor>
// CHECK-SAME: mxcomp.kernel = "{{.*}}math.cos
// CHECK: %[[FLAT:.+]] = tensor.collapse_shape %[[MADE]]#2
// CHECK: %[[Q:.+]] = tensor.expand_shape %[[FLAT]] {{.*}} into tensor<4x64xbf16>
// CHECK: util.return %[[Q]], %[[MADE]]#0, %[[MADE]]#1
util.func public @written(%qkv: tensor<1x512xbf16>, %angles: tensor<1x32xf32>, %at: tensor<2xi32>, %keys: tensor<2x16x64xbf16>, %values: tensor<2x16x64xbf16>) -> (tensor<4x64xbf16>, tensor<2x16x64xbf16>, tensor<2x16x64xbf16>) {
  %flat = tensor.collapse_shape %qkv [[0, 1]] : tensor<1x512xbf16> into tensor<512xbf16>
  %twice = tensor.concat dim(1) %angles, %angles : (tensor<1x32xf32>, tensor<1x32xf32>) -> tensor<1x64xf32>
  %row = tensor.empty() : tensor<1x64xbf16>
  %cos = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%twice : tensor<1x64xf32>) outs(%row : tensor<1x64xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = math.cos %in : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<1x64xbf16>
  %qs = tensor.extract_slice %flat[0] [256] [1] : tensor<512xbf16> to tensor<256xbf16>
  %ks = tensor.extract_slice %flat[256] [128] [1] : tensor<512xbf16> to tensor<128xbf16>
  %v = tensor.extract_slice %flat[384] [128] [1] : tensor<512xbf16> to tensor<128xbf16>
  %q = tensor.expand_shape %qs [[0, 1]] output_shape [4, 64] : tensor<256xbf16> into tensor<4x64xbf16>
  %k = tensor.expand_shape %ks [[0, 1]] output_shape [2, 64] : tensor<128xbf16> into tensor<2x64xbf16>
  %q0 = tensor.extract_slice %q[0, 0] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %q1 = tensor.extract_slice %q[0, 32] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %qt = tensor.concat dim(1) %q1, %q0 : (tensor<4x32xbf16>, tensor<4x32xbf16>) -> tensor<4x64xbf16>
  %qe = tensor.empty() : tensor<4x64xbf16>
  %qr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%q, %cos, %qt : tensor<4x64xbf16>, tensor<1x64xbf16>, tensor<4x64xbf16>) outs(%qe : tensor<4x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<4x64xbf16>
  %k0 = tensor.extract_slice %k[0, 0] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %k1 = tensor.extract_slice %k[0, 32] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %kt = tensor.concat dim(1) %k1, %k0 : (tensor<2x32xbf16>, tensor<2x32xbf16>) -> tensor<2x64xbf16>
  %ke = tensor.empty() : tensor<2x64xbf16>
  %kr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%k, %cos, %kt : tensor<2x64xbf16>, tensor<1x64xbf16>, tensor<2x64xbf16>) outs(%ke : tensor<2x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x64xbf16>
  %new = tensor.collapse_shape %kr [[0, 1]] : tensor<2x64xbf16> into tensor<128xbf16>
  %both:2 = flow.dispatch.region -> (tensor<2x16x64xbf16>, tensor<2x16x64xbf16>) {
    %made:2 = linalg.generic {indexing_maps = [#new, #other, #places, #cache, #cache], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
        ins(%new, %v, %at : tensor<128xbf16>, tensor<128xbf16>, tensor<2xi32>) outs(%keys, %values : tensor<2x16x64xbf16>, tensor<2x16x64xbf16>)
        attrs = {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_write_rows_r1_d64", tensor>, mxcomp.kernel = "", mxcomp.rows = {groups = 2, length = 16, rows = 1, size = 64, element = "bf16", bits = 16, table = 1, table_bits = 64, sharing = 2, by_row = false, step = 0, number = 0, caches = 2}} {
    ^bb0(%a: bf16, %b: bf16, %c: i32, %d: bf16, %e: bf16):
      linalg.yield %a, %b : bf16, bf16
    } -> (tensor<2x16x64xbf16>, tensor<2x16x64xbf16>)
    flow.return %made#0, %made#1 : tensor<2x16x64xbf16>, tensor<2x16x64xbf16>
  }
  util.return %qr, %both#0, %both#1 : tensor<4x64xbf16>, tensor<2x16x64xbf16>, tensor<2x16x64xbf16>
}

// They stay apart where a rotated key is read by something else as well, or a query before that.

// CHECK-LABEL: util.func public @read(
// CHECK-COUNT-3: tensor.concat
// CHECK: ukernel_descriptor<"mx_write_rows_r1_d64", tensor>
// CHECK: util.return
util.func public @read(%qkv: tensor<1x512xbf16>, %angles: tensor<1x32xf32>, %at: tensor<2xi32>, %keys: tensor<2x16x64xbf16>, %values: tensor<2x16x64xbf16>) -> (tensor<4x64xbf16>, tensor<2x16x64xbf16>, tensor<2x16x64xbf16>, tensor<2x64xbf16>) {
  %flat = tensor.collapse_shape %qkv [[0, 1]] : tensor<1x512xbf16> into tensor<512xbf16>
  %twice = tensor.concat dim(1) %angles, %angles : (tensor<1x32xf32>, tensor<1x32xf32>) -> tensor<1x64xf32>
  %row = tensor.empty() : tensor<1x64xbf16>
  %cos = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%twice : tensor<1x64xf32>) outs(%row : tensor<1x64xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = math.cos %in : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<1x64xbf16>
  %qs = tensor.extract_slice %flat[0] [256] [1] : tensor<512xbf16> to tensor<256xbf16>
  %ks = tensor.extract_slice %flat[256] [128] [1] : tensor<512xbf16> to tensor<128xbf16>
  %v = tensor.extract_slice %flat[384] [128] [1] : tensor<512xbf16> to tensor<128xbf16>
  %q = tensor.expand_shape %qs [[0, 1]] output_shape [4, 64] : tensor<256xbf16> into tensor<4x64xbf16>
  %k = tensor.expand_shape %ks [[0, 1]] output_shape [2, 64] : tensor<128xbf16> into tensor<2x64xbf16>
  %q0 = tensor.extract_slice %q[0, 0] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %q1 = tensor.extract_slice %q[0, 32] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %qt = tensor.concat dim(1) %q1, %q0 : (tensor<4x32xbf16>, tensor<4x32xbf16>) -> tensor<4x64xbf16>
  %qe = tensor.empty() : tensor<4x64xbf16>
  %qr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%q, %cos, %qt : tensor<4x64xbf16>, tensor<1x64xbf16>, tensor<4x64xbf16>) outs(%qe : tensor<4x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<4x64xbf16>
  %k0 = tensor.extract_slice %k[0, 0] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %k1 = tensor.extract_slice %k[0, 32] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %kt = tensor.concat dim(1) %k1, %k0 : (tensor<2x32xbf16>, tensor<2x32xbf16>) -> tensor<2x64xbf16>
  %ke = tensor.empty() : tensor<2x64xbf16>
  %kr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%k, %cos, %kt : tensor<2x64xbf16>, tensor<1x64xbf16>, tensor<2x64xbf16>) outs(%ke : tensor<2x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x64xbf16>
  %new = tensor.collapse_shape %kr [[0, 1]] : tensor<2x64xbf16> into tensor<128xbf16>
  %both:2 = flow.dispatch.region -> (tensor<2x16x64xbf16>, tensor<2x16x64xbf16>) {
    %made:2 = linalg.generic {indexing_maps = [#new, #other, #places, #cache, #cache], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
        ins(%new, %v, %at : tensor<128xbf16>, tensor<128xbf16>, tensor<2xi32>) outs(%keys, %values : tensor<2x16x64xbf16>, tensor<2x16x64xbf16>)
        attrs = {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_write_rows_r1_d64", tensor>, mxcomp.kernel = "", mxcomp.rows = {groups = 2, length = 16, rows = 1, size = 64, element = "bf16", bits = 16, table = 1, table_bits = 64, sharing = 2, by_row = false, step = 0, number = 0, caches = 2}} {
    ^bb0(%a: bf16, %b: bf16, %c: i32, %d: bf16, %e: bf16):
      linalg.yield %a, %b : bf16, bf16
    } -> (tensor<2x16x64xbf16>, tensor<2x16x64xbf16>)
    flow.return %made#0, %made#1 : tensor<2x16x64xbf16>, tensor<2x16x64xbf16>
  }
  util.return %qr, %both#0, %both#1, %kr : tensor<4x64xbf16>, tensor<2x16x64xbf16>, tensor<2x16x64xbf16>, tensor<2x64xbf16>
}

// CHECK-LABEL: util.func public @before(
// CHECK-COUNT-3: tensor.concat
// CHECK: ukernel_descriptor<"mx_write_rows_r1_d64", tensor>
// CHECK: util.return
util.func public @before(%qkv: tensor<1x512xbf16>, %angles: tensor<1x32xf32>, %at: tensor<2xi32>, %keys: tensor<2x16x64xbf16>, %values: tensor<2x16x64xbf16>) -> (tensor<4x64xbf16>, tensor<2x16x64xbf16>, tensor<2x16x64xbf16>, tensor<4x64xf32>) {
  %flat = tensor.collapse_shape %qkv [[0, 1]] : tensor<1x512xbf16> into tensor<512xbf16>
  %twice = tensor.concat dim(1) %angles, %angles : (tensor<1x32xf32>, tensor<1x32xf32>) -> tensor<1x64xf32>
  %row = tensor.empty() : tensor<1x64xbf16>
  %cos = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%twice : tensor<1x64xf32>) outs(%row : tensor<1x64xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = math.cos %in : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<1x64xbf16>
  %qs = tensor.extract_slice %flat[0] [256] [1] : tensor<512xbf16> to tensor<256xbf16>
  %ks = tensor.extract_slice %flat[256] [128] [1] : tensor<512xbf16> to tensor<128xbf16>
  %v = tensor.extract_slice %flat[384] [128] [1] : tensor<512xbf16> to tensor<128xbf16>
  %q = tensor.expand_shape %qs [[0, 1]] output_shape [4, 64] : tensor<256xbf16> into tensor<4x64xbf16>
  %k = tensor.expand_shape %ks [[0, 1]] output_shape [2, 64] : tensor<128xbf16> into tensor<2x64xbf16>
  %q0 = tensor.extract_slice %q[0, 0] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %q1 = tensor.extract_slice %q[0, 32] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %qt = tensor.concat dim(1) %q1, %q0 : (tensor<4x32xbf16>, tensor<4x32xbf16>) -> tensor<4x64xbf16>
  %qe = tensor.empty() : tensor<4x64xbf16>
  %qr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%q, %cos, %qt : tensor<4x64xbf16>, tensor<1x64xbf16>, tensor<4x64xbf16>) outs(%qe : tensor<4x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<4x64xbf16>
  %k0 = tensor.extract_slice %k[0, 0] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %k1 = tensor.extract_slice %k[0, 32] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %kt = tensor.concat dim(1) %k1, %k0 : (tensor<2x32xbf16>, tensor<2x32xbf16>) -> tensor<2x64xbf16>
  %ke = tensor.empty() : tensor<2x64xbf16>
  %kr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%k, %cos, %kt : tensor<2x64xbf16>, tensor<1x64xbf16>, tensor<2x64xbf16>) outs(%ke : tensor<2x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x64xbf16>
  %we = tensor.empty() : tensor<4x64xf32>
  %wide = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%qr : tensor<4x64xbf16>) outs(%we : tensor<4x64xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %0 = arith.extf %in : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<4x64xf32>
  %new = tensor.collapse_shape %kr [[0, 1]] : tensor<2x64xbf16> into tensor<128xbf16>
  %both:2 = flow.dispatch.region -> (tensor<2x16x64xbf16>, tensor<2x16x64xbf16>) {
    %made:2 = linalg.generic {indexing_maps = [#new, #other, #places, #cache, #cache], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
        ins(%new, %v, %at : tensor<128xbf16>, tensor<128xbf16>, tensor<2xi32>) outs(%keys, %values : tensor<2x16x64xbf16>, tensor<2x16x64xbf16>)
        attrs = {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_write_rows_r1_d64", tensor>, mxcomp.kernel = "", mxcomp.rows = {groups = 2, length = 16, rows = 1, size = 64, element = "bf16", bits = 16, table = 1, table_bits = 64, sharing = 2, by_row = false, step = 0, number = 0, caches = 2}} {
    ^bb0(%a: bf16, %b: bf16, %c: i32, %d: bf16, %e: bf16):
      linalg.yield %a, %b : bf16, bf16
    } -> (tensor<2x16x64xbf16>, tensor<2x16x64xbf16>)
    flow.return %made#0, %made#1 : tensor<2x16x64xbf16>, tensor<2x16x64xbf16>
  }
  util.return %qr, %both#0, %both#1, %wide : tensor<4x64xbf16>, tensor<2x16x64xbf16>, tensor<2x16x64xbf16>, tensor<4x64xf32>
}

// Nor of several tokens.

// CHECK-LABEL: util.func public @several(
// CHECK-COUNT-3: tensor.concat
// CHECK: ukernel_descriptor<"mx_write_rows_r2_d64", tensor>
// CHECK: util.return
util.func public @several(%qkv: tensor<1x512xbf16>, %angles: tensor<1x32xf32>, %at: tensor<2xi32>, %keys: tensor<2x16x64xbf16>, %values: tensor<2x16x64xbf16>) -> (tensor<4x64xbf16>, tensor<2x16x64xbf16>, tensor<2x16x64xbf16>) {
  %flat = tensor.collapse_shape %qkv [[0, 1]] : tensor<1x512xbf16> into tensor<512xbf16>
  %twice = tensor.concat dim(1) %angles, %angles : (tensor<1x32xf32>, tensor<1x32xf32>) -> tensor<1x64xf32>
  %row = tensor.empty() : tensor<1x64xbf16>
  %cos = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%twice : tensor<1x64xf32>) outs(%row : tensor<1x64xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = math.cos %in : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<1x64xbf16>
  %qs = tensor.extract_slice %flat[0] [256] [1] : tensor<512xbf16> to tensor<256xbf16>
  %ks = tensor.extract_slice %flat[256] [128] [1] : tensor<512xbf16> to tensor<128xbf16>
  %v = tensor.extract_slice %flat[384] [128] [1] : tensor<512xbf16> to tensor<128xbf16>
  %q = tensor.expand_shape %qs [[0, 1]] output_shape [4, 64] : tensor<256xbf16> into tensor<4x64xbf16>
  %k = tensor.expand_shape %ks [[0, 1]] output_shape [2, 64] : tensor<128xbf16> into tensor<2x64xbf16>
  %q0 = tensor.extract_slice %q[0, 0] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %q1 = tensor.extract_slice %q[0, 32] [4, 32] [1, 1] : tensor<4x64xbf16> to tensor<4x32xbf16>
  %qt = tensor.concat dim(1) %q1, %q0 : (tensor<4x32xbf16>, tensor<4x32xbf16>) -> tensor<4x64xbf16>
  %qe = tensor.empty() : tensor<4x64xbf16>
  %qr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%q, %cos, %qt : tensor<4x64xbf16>, tensor<1x64xbf16>, tensor<4x64xbf16>) outs(%qe : tensor<4x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<4x64xbf16>
  %k0 = tensor.extract_slice %k[0, 0] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %k1 = tensor.extract_slice %k[0, 32] [2, 32] [1, 1] : tensor<2x64xbf16> to tensor<2x32xbf16>
  %kt = tensor.concat dim(1) %k1, %k0 : (tensor<2x32xbf16>, tensor<2x32xbf16>) -> tensor<2x64xbf16>
  %ke = tensor.empty() : tensor<2x64xbf16>
  %kr = linalg.generic {indexing_maps = [#all, #table, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%k, %cos, %kt : tensor<2x64xbf16>, tensor<1x64xbf16>, tensor<2x64xbf16>) outs(%ke : tensor<2x64xbf16>) {
  ^bb0(%x: bf16, %c: bf16, %t: bf16, %out: bf16):
    %0 = arith.mulf %x, %c : bf16
    %1 = arith.addf %0, %t : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x64xbf16>
  %new = tensor.collapse_shape %kr [[0, 1]] : tensor<2x64xbf16> into tensor<128xbf16>
  %both:2 = flow.dispatch.region -> (tensor<2x16x64xbf16>, tensor<2x16x64xbf16>) {
    %made:2 = linalg.generic {indexing_maps = [#new, #other, #places, #cache, #cache], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
        ins(%new, %v, %at : tensor<128xbf16>, tensor<128xbf16>, tensor<2xi32>) outs(%keys, %values : tensor<2x16x64xbf16>, tensor<2x16x64xbf16>)
        attrs = {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_write_rows_r2_d64", tensor>, mxcomp.kernel = "", mxcomp.rows = {groups = 2, length = 16, rows = 2, size = 64, element = "bf16", bits = 16, table = 1, table_bits = 64, sharing = 2, by_row = false, step = 0, number = 0, caches = 2}} {
    ^bb0(%a: bf16, %b: bf16, %c: i32, %d: bf16, %e: bf16):
      linalg.yield %a, %b : bf16, bf16
    } -> (tensor<2x16x64xbf16>, tensor<2x16x64xbf16>)
    flow.return %made#0, %made#1 : tensor<2x16x64xbf16>, tensor<2x16x64xbf16>
  }
  util.return %qr, %both#0, %both#1 : tensor<4x64xbf16>, tensor<2x16x64xbf16>, tensor<2x16x64xbf16>
}
