// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-take-attention)' | filecheck %s
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-take-attention{ukernels=none})' | filecheck %s --check-prefix=OFF

#q = affine_map<(n, t, v, d, l) -> (n, t, d)>
#k = affine_map<(n, t, v, d, l) -> (n, l, d)>
#v = affine_map<(n, t, v, d, l) -> (n, l, v)>
#s = affine_map<(n, t, v, d, l) -> ()>
#m = affine_map<(n, t, v, d, l) -> (n, t, l)>
#o = affine_map<(n, t, v, d, l) -> (n, t, v)>

// Keys and values are read as they are stored, [keys, heads, size] here: neither broadcast nor transposed.

// CHECK-LABEL: util.func public @grouped(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<8x1x64xbf16>, %[[K:[a-z0-9]+]]: tensor<1x1024x2x64xbf16>, %[[V:[a-z0-9]+]]: tensor<1x1024x2x64xbf16>
// CHECK-NOT: linalg.transpose
// CHECK-NOT: linalg.generic
// CHECK-DAG: %[[KEYS:.+]] = tensor.collapse_shape %[[K]] {{\[\[}}0, 1], [2], [3]]
// CHECK-DAG: %[[VALUES:.+]] = tensor.collapse_shape %[[V]] {{\[\[}}0, 1], [2], [3]]
// CHECK-DAG: %[[QUERIES:.+]] = util.optimization_barrier
// CHECK: %[[PARTS:.+]]:2 = flow.dispatch.region -> (tensor<64x4x4x16xf32>, tensor<64x4x2xf32>)
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[QUERIES]], %[[KEYS]], %[[VALUES]] : tensor<8x64xbf16>, tensor<1024x2x64xbf16>, tensor<1024x2x64xbf16>)
// CHECK-SAME: iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_attention_decode_r4_d64_s32_
// CHECK-SAME: mxcomp.kernel = "
// CHECK: %[[ROWS:.+]] = flow.dispatch.region -> (tensor<8x64xbf16>)
// CHECK: ins(%[[PARTS]]#0, %[[PARTS]]#1
// CHECK-SAME: "mx_attention_combine_
// CHECK: %[[RESULT:.+]] = tensor.expand_shape %[[ROWS]] {{.*}} into tensor<8x1x64xbf16>
// CHECK-NOT: iree_linalg_ext.attention
// CHECK: util.return %[[RESULT]]
// OFF-LABEL: util.func public @grouped(
// OFF: iree_linalg_ext.attention
util.func public @grouped(%q: tensor<8x1x64xbf16>, %keys: tensor<1x1024x2x64xbf16>, %values: tensor<1x1024x2x64xbf16>)
    -> tensor<8x1x64xbf16> {
  %places = tensor.empty() : tensor<1x2x1024x64xbf16>
  %kt = linalg.transpose ins(%keys : tensor<1x1024x2x64xbf16>) outs(%places : tensor<1x2x1024x64xbf16>) permutation = [0, 2, 1, 3]
  %vt = linalg.transpose ins(%values : tensor<1x1024x2x64xbf16>) outs(%places : tensor<1x2x1024x64xbf16>) permutation = [0, 2, 1, 3]
  %shared = tensor.empty() : tensor<1x2x4x1024x64xbf16>
  %ks = linalg.broadcast ins(%kt : tensor<1x2x1024x64xbf16>) outs(%shared : tensor<1x2x4x1024x64xbf16>) dimensions = [2]
  %vs = linalg.broadcast ins(%vt : tensor<1x2x1024x64xbf16>) outs(%shared : tensor<1x2x4x1024x64xbf16>) dimensions = [2]
  %k = tensor.collapse_shape %ks [[0, 1, 2], [3], [4]] : tensor<1x2x4x1024x64xbf16> into tensor<8x1024x64xbf16>
  %v = tensor.collapse_shape %vs [[0, 1, 2], [3], [4]] : tensor<1x2x4x1024x64xbf16> into tensor<8x1024x64xbf16>
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<8x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %v, %scale : tensor<8x1x64xbf16>, tensor<8x1024x64xbf16>, tensor<8x1024x64xbf16>, f32)
      outs(%empty : tensor<8x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<8x1x64xbf16>
  util.return %r : tensor<8x1x64xbf16>
}

// A dynamic number of keys is checked, and known to be one that a buffer has room for. Truth values are added.

// CHECK-LABEL: util.func public @dynamic(
// CHECK-SAME: %[[MASK:[a-z0-9]+]]: tensor<2x3x?xi1>
// CHECK: %[[ADDED:.+]] = linalg.generic {{.*}} ins(%[[MASK]] : tensor<2x3x?xi1>)
// CHECK-COUNT-2: cf.assert {{.*}} "mxcomp: keys, values and masks must have the same number of keys"
// CHECK: cf.assert {{.*}} "mxcomp: keys of attention must be between 1 and
// CHECK: %[[KEYS:.+]] = util.assume.int
// CHECK-COUNT-3: flow.tensor.tie_shape {{.*}}{%[[KEYS]]}
// CHECK: flow.dispatch.region -> (tensor<128x3x4x16xf32>, tensor<128x3x2xf32>)
// CHECK-NOT: iree_linalg_ext.attention
util.func public @dynamic(%q: tensor<2x3x64xbf16>, %k: tensor<2x?x64xbf16>, %v: tensor<2x?x64xbf16>, %m: tensor<2x3x?xi1>)
    -> tensor<2x3x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<2x3x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #m, #o]>
      ins(%q, %k, %v, %scale, %m : tensor<2x3x64xbf16>, tensor<2x?x64xbf16>, tensor<2x?x64xbf16>, f32, tensor<2x3x?xi1>)
      outs(%empty : tensor<2x3x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x3x64xbf16>
  util.return %r : tensor<2x3x64xbf16>
}

// Many queries: a workgroup has 64 of a head. Of a causal mask nothing is left; results behind the last query go.

// CHECK-LABEL: util.func public @causal(
// CHECK-NOT: linalg.index
// CHECK: %[[TILES:.+]] = flow.dispatch.region -> (tensor<4x4x16x4x16xbf16>)
// CHECK: linalg.generic
// CHECK-SAME: ins(%{{[^,]+}}, %{{[^,]+}}, %{{[^,]+}} : tensor<2x70x64xbf16>, tensor<2x96x64xbf16>, tensor<2x96x64xbf16>)
// CHECK-SAME: iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_attention_prefill_m64_d64_causal_
// CHECK: tensor.collapse_shape %[[TILES]]
// CHECK: tensor.expand_shape {{.*}} into tensor<2x128x64xbf16>
// CHECK: tensor.extract_slice {{.*}}[0, 0, 0] [2, 70, 64] [1, 1, 1]
// CHECK-NOT: iree_linalg_ext.attention
util.func public @causal(%q: tensor<2x70x64xbf16>, %k: tensor<2x96x64xbf16>) -> tensor<2x70x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : bf16
  %hidden = arith.constant 0xFF80 : bf16
  %places = tensor.empty() : tensor<2x70x96xbf16>
  %mask = linalg.generic {indexing_maps = [affine_map<(n, t, l) -> (n, t, l)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%places : tensor<2x70x96xbf16>) {
  ^bb0(%out: bf16):
    %t = linalg.index 1 : index
    %l = linalg.index 2 : index
    %seen = arith.cmpi sge, %t, %l : index
    %0 = arith.select %seen, %zero, %hidden : bf16
    linalg.yield %0 : bf16
  } -> tensor<2x70x96xbf16>
  %empty = tensor.empty() : tensor<2x70x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #m, #o]>
      ins(%q, %k, %k, %scale, %mask : tensor<2x70x64xbf16>, tensor<2x96x64xbf16>, tensor<2x96x64xbf16>, f32, tensor<2x70x96xbf16>)
      outs(%empty : tensor<2x70x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x70x64xbf16>
  util.return %r : tensor<2x70x64xbf16>
}

// A mask by which queries see keys from their own on is none of these: it is stored, and added.

// CHECK-LABEL: util.func public @keys_behind(
// CHECK: linalg.index
// CHECK: "mx_attention_prefill_m64_d64_{{[0-9a-f]+}}"
util.func public @keys_behind(%q: tensor<2x70x64xbf16>, %k: tensor<2x96x64xbf16>) -> tensor<2x70x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : bf16
  %hidden = arith.constant 0xFF80 : bf16
  %places = tensor.empty() : tensor<2x70x96xbf16>
  %mask = linalg.generic {indexing_maps = [affine_map<(n, t, l) -> (n, t, l)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%places : tensor<2x70x96xbf16>) {
  ^bb0(%out: bf16):
    %t = linalg.index 1 : index
    %l = linalg.index 2 : index
    %seen = arith.cmpi sle, %t, %l : index
    %0 = arith.select %seen, %zero, %hidden : bf16
    linalg.yield %0 : bf16
  } -> tensor<2x70x96xbf16>
  %empty = tensor.empty() : tensor<2x70x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #m, #o]>
      ins(%q, %k, %k, %scale, %mask : tensor<2x70x64xbf16>, tensor<2x96x64xbf16>, tensor<2x96x64xbf16>, f32, tensor<2x70x96xbf16>)
      outs(%empty : tensor<2x70x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x70x64xbf16>
  util.return %r : tensor<2x70x64xbf16>
}

// Keys up to a position that the program knows: the position is an operand, in halves, and no mask is computed. That each
// query sees a key is known: what hides one is a finite number.

// CHECK-LABEL: util.func public @position(
// CHECK-SAME: %[[POSITION:[a-z0-9]+]]: tensor<1xi64>
// CHECK-NOT: linalg.index
// CHECK: %[[LARGEST:.+]] = arith.constant dense<1.000000e+00> : tensor<1xf32>
// CHECK: %[[HALVES:.+]] = iree_tensor_ext.bitcast %[[POSITION]] : tensor<1xi64> -> tensor<2xi32>
// CHECK: linalg.generic
// CHECK-SAME: %[[HALVES]] : tensor<2x64xbf16>, tensor<2x96x64xbf16>, tensor<2x96x64xbf16>, tensor<2xi32>)
// CHECK-SAME: "mx_attention_decode_
// CHECK: util.return %{{.+}}, %[[LARGEST]]
util.func public @position(%q: tensor<2x1x64xbf16>, %k: tensor<2x96x64xbf16>, %position: tensor<1xi64>)
    -> (tensor<2x1x64xbf16>, tensor<1xf32>) {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : bf16
  %lowest = arith.constant -3.38953139E+38 : bf16
  %infinity = arith.constant 0xFF800000 : f32
  %places = tensor.empty() : tensor<2x1x96xbf16>
  %mask = linalg.generic {indexing_maps = [affine_map<(n, t, l) -> (t)>, affine_map<(n, t, l) -> (n, t, l)>],
                          iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%position : tensor<1xi64>) outs(%places : tensor<2x1x96xbf16>) {
  ^bb0(%p: i64, %out: bf16):
    %l = linalg.index 2 : index
    %key = arith.index_cast %l : index to i64
    %seen = arith.cmpi sle, %key, %p : i64
    %0 = arith.select %seen, %zero, %lowest : bf16
    linalg.yield %0 : bf16
  } -> tensor<2x1x96xbf16>
  %sees_places = tensor.empty() : tensor<2x1x96xf32>
  %sees = linalg.generic {indexing_maps = [affine_map<(n, t, l) -> (n, t, l)>, affine_map<(n, t, l) -> (n, t, l)>],
                          iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%mask : tensor<2x1x96xbf16>) outs(%sees_places : tensor<2x1x96xf32>) {
  ^bb0(%x: bf16, %out: f32):
    %wide = arith.extf %x : bf16 to f32
    %0 = arith.cmpf ogt, %wide, %infinity : f32
    %1 = arith.uitofp %0 : i1 to f32
    linalg.yield %1 : f32
  } -> tensor<2x1x96xf32>
  %largest_places = tensor.empty() : tensor<1xf32>
  %start = linalg.fill ins(%infinity : f32) outs(%largest_places : tensor<1xf32>) -> tensor<1xf32>
  %largest = linalg.generic {indexing_maps = [affine_map<(n, t, l) -> (n, t, l)>, affine_map<(n, t, l) -> (t)>],
                             iterator_types = ["reduction", "parallel", "reduction"]}
      ins(%sees : tensor<2x1x96xf32>) outs(%start : tensor<1xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.maximumf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<1xf32>
  %empty = tensor.empty() : tensor<2x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #m, #o]>
      ins(%q, %k, %k, %scale, %mask : tensor<2x1x64xbf16>, tensor<2x96x64xbf16>, tensor<2x96x64xbf16>, f32, tensor<2x1x96xbf16>)
      outs(%empty : tensor<2x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x1x64xbf16>
  util.return %r, %largest : tensor<2x1x64xbf16>, tensor<1xf32>
}

// What is left to IREE: a number of queries that the program knows, f32, scores that are changed, a scale that is computed.

// CHECK-LABEL: util.func public @dynamic_queries(
// CHECK: iree_linalg_ext.attention
util.func public @dynamic_queries(%q: tensor<2x?x64xbf16>, %k: tensor<2x64x64xbf16>) -> tensor<2x?x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %c1 = arith.constant 1 : index
  %queries = tensor.dim %q, %c1 : tensor<2x?x64xbf16>
  %empty = tensor.empty(%queries) : tensor<2x?x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %k, %scale : tensor<2x?x64xbf16>, tensor<2x64x64xbf16>, tensor<2x64x64xbf16>, f32)
      outs(%empty : tensor<2x?x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x?x64xbf16>
  util.return %r : tensor<2x?x64xbf16>
}

// CHECK-LABEL: util.func public @single_workgroup(
// CHECK: iree_linalg_ext.attention
util.func public @single_workgroup(%q: tensor<1x64x64xbf16>, %k: tensor<1x64x64xbf16>) -> tensor<1x64x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<1x64x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %k, %scale : tensor<1x64x64xbf16>, tensor<1x64x64xbf16>, tensor<1x64x64xbf16>, f32)
      outs(%empty : tensor<1x64x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<1x64x64xbf16>
  util.return %r : tensor<1x64x64xbf16>
}

// CHECK-LABEL: util.func public @f32(
// CHECK: iree_linalg_ext.attention
util.func public @f32(%q: tensor<2x1x64xf32>, %k: tensor<2x64x64xf32>) -> tensor<2x1x64xf32> {
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<2x1x64xf32>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %k, %scale : tensor<2x1x64xf32>, tensor<2x64x64xf32>, tensor<2x64x64xf32>, f32)
      outs(%empty : tensor<2x1x64xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x1x64xf32>
  util.return %r : tensor<2x1x64xf32>
}

// CHECK-LABEL: util.func public @capped(
// CHECK: iree_linalg_ext.attention
util.func public @capped(%q: tensor<2x1x64xbf16>, %k: tensor<2x64x64xbf16>) -> tensor<2x1x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<2x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %k, %scale : tensor<2x1x64xbf16>, tensor<2x64x64xbf16>, tensor<2x64x64xbf16>, f32)
      outs(%empty : tensor<2x1x64xbf16>) {
  ^bb0(%score: f32):
    %0 = math.tanh %score : f32
    iree_linalg_ext.yield %0 : f32
  } -> tensor<2x1x64xbf16>
  util.return %r : tensor<2x1x64xbf16>
}

// CHECK-LABEL: util.func public @computed_scale(
// CHECK: iree_linalg_ext.attention
util.func public @computed_scale(%q: tensor<2x1x64xbf16>, %k: tensor<2x64x64xbf16>, %scale: f32) -> tensor<2x1x64xbf16> {
  %empty = tensor.empty() : tensor<2x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %k, %scale : tensor<2x1x64xbf16>, tensor<2x64x64xbf16>, tensor<2x64x64xbf16>, f32)
      outs(%empty : tensor<2x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x1x64xbf16>
  util.return %r : tensor<2x1x64xbf16>
}

// Keys that are stored by columns: neighbours of a key are apart.

// CHECK-LABEL: util.func public @by_columns(
// CHECK: linalg.transpose
// CHECK-NOT: iree_linalg_ext.attention
// CHECK: flow.dispatch.region
util.func public @by_columns(%q: tensor<2x1x64xbf16>, %c: tensor<2x64x96xbf16>, %v: tensor<2x96x64xbf16>) -> tensor<2x1x64xbf16> {
  %places = tensor.empty() : tensor<2x96x64xbf16>
  %k = linalg.transpose ins(%c : tensor<2x64x96xbf16>) outs(%places : tensor<2x96x64xbf16>) permutation = [0, 2, 1]
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<2x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %v, %scale : tensor<2x1x64xbf16>, tensor<2x96x64xbf16>, tensor<2x96x64xbf16>, f32)
      outs(%empty : tensor<2x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x1x64xbf16>
  util.return %r : tensor<2x1x64xbf16>
}
