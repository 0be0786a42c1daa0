// Kernels are megabytes, in which filecheck takes long to find nothing: of each only the beginning stays.
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-take-attention)' \
// RUN:   | sed -E 's/(mxcomp.kernel = "[^"]{200})[^"]*/\1/g' | filecheck %s
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-take-attention{ukernels=none})' | filecheck %s --check-prefix=OFF

#q = affine_map<(n, t, v, d, l) -> (n, t, d)>
#k = affine_map<(n, t, v, d, l) -> (n, l, d)>
#v = affine_map<(n, t, v, d, l) -> (n, l, v)>
#s = affine_map<(n, t, v, d, l) -> ()>
#m = affine_map<(n, t, v, d, l) -> (n, t, l)>
#o = affine_map<(n, t, v, d, l) -> (n, t, v)>

// Keys and values are read as they are stored, [keys, heads, size] here: neither broadcast nor transposed.

// CHECK: reason = "its batch, and its queries or keys, are dynamic: expected the batch outermost"
// CHECK-LABEL: util.func public @grouped(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<8x1x64xbf16>, %[[K:[a-z0-9]+]]: tensor<1x1024x2x64xbf16>, %[[V:[a-z0-9]+]]: tensor<1x1024x2x64xbf16>
// CHECK-NOT: linalg.transpose
// CHECK-NOT: linalg.generic
// CHECK-DAG: %[[KEYS:.+]] = tensor.collapse_shape %[[K]] {{\[\[}}0, 1], [2], [3]]
// CHECK-DAG: %[[VALUES:.+]] = tensor.collapse_shape %[[V]] {{\[\[}}0, 1], [2], [3]]
// CHECK-DAG: %[[QUERIES:.+]] = util.optimization_barrier
// CHECK: %[[PARTS:.+]]:2 = flow.dispatch.region -> (tensor<64x1x4x1x4x16xf32>, tensor<64x1x4x2xf32>)
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
// CHECK-COUNT-2: cf.assert {{.*}} "mxcomp: operands of attention must have the same number of keys"
// CHECK: cf.assert {{.*}} "mxcomp: keys of attention must be between 1 and
// CHECK: %[[KEYS:.+]] = util.assume.int
// CHECK-COUNT-3: flow.tensor.tie_shape {{.*}}{%[[KEYS]]}
// CHECK: flow.dispatch.region -> (tensor<128x1x3x1x4x16xf32>, tensor<128x1x3x2xf32>)
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

// Many queries: a workgroup has 64 of a head. Of a causal mask nothing is left. It may quantise and pack its result.

// CHECK-LABEL: util.func public @causal(
// CHECK-NOT: linalg.index
// CHECK: %[[ROWS:.+]] = flow.dispatch.region -> (tensor<2x70x4x2x8xbf16>)
// CHECK: linalg.generic
// CHECK-SAME: ins(%{{[^,]+}}, %{{[^,]+}}, %{{[^,]+}} : tensor<2x70x64xbf16>, tensor<2x96x64xbf16>, tensor<2x96x64xbf16>)
// CHECK-SAME: iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_attention_prefill_m64_d64_causal_
// CHECK-SAME: mxcomp.packs = {fields = 
// CHECK: tensor.collapse_shape %[[ROWS]] {{.*}} into tensor<2x70x64xbf16>
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

// So is a dynamic number of queries, of which a workgroup has a tile of one head, or a dynamic batch: 64 where there
// are few, or 256.

// CHECK-LABEL: util.func public @dynamic_queries(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<2x?x64xbf16>
// CHECK: cf.assert {{.*}} "mxcomp: queries of attention must be between 1 and 8388607"
// CHECK: %[[QUERIES:.+]] = util.assume.int {{.*}}<umin = 1, umax = 8388607>
// CHECK: %[[MANY:.+]] = flow.dispatch.region -> (tensor<2x?x4x2x8xbf16>{%{{.+}}})
// CHECK: linalg.generic
// CHECK-SAME: ukernel_descriptor<"mx_attention_prefill_m256_d64_
// CHECK: %[[FEW:.+]] = flow.dispatch.region
// CHECK: linalg.generic
// CHECK-SAME: ukernel_descriptor<"mx_attention_prefill_m64_d64_
// CHECK: %[[IS_FEW:.+]] = arith.cmpi ule, %{{.+}}, %c65535
// CHECK: %[[ROWS:.+]] = arith.select %[[IS_FEW]], %[[FEW]], %[[MANY]] {mxcomp.versions}
// CHECK: %[[RESULT:.+]] = tensor.collapse_shape %[[ROWS]] {{\[\[}}0], [1], [2, 3, 4]]
// CHECK-NOT: iree_linalg_ext.attention
// CHECK: util.return %[[RESULT]]
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

// Of a mask of two dynamic sizes it is known that a buffer has room for all elements.

// CHECK-LABEL: util.func public @two_dynamic_sizes(
// CHECK: cf.assert {{.*}} "mxcomp: keys times queries of attention must be between 1 and 268435455"
// CHECK: %[[FLAT:.+]] = tensor.collapse_shape {{.*}} : tensor<2x?x?xf32> into tensor<?xf32>
// CHECK: %[[ELEMENTS:.+]] = util.assume.int {{.*}}<umin = 1, umax = 536870911>
// CHECK: flow.tensor.tie_shape %[[FLAT]] : tensor<?xf32>{%[[ELEMENTS]]}
// CHECK: "mx_attention_prefill_m256_d64_
// CHECK: "mx_attention_prefill_m64_d64_
// CHECK-NOT: iree_linalg_ext.attention
util.func public @two_dynamic_sizes(%q: tensor<2x?x64xbf16>, %k: tensor<2x?x64xbf16>, %m: tensor<2x?x?xf32>) -> tensor<2x?x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %c1 = arith.constant 1 : index
  %queries = tensor.dim %q, %c1 : tensor<2x?x64xbf16>
  %empty = tensor.empty(%queries) : tensor<2x?x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #m, #o]>
      ins(%q, %k, %k, %scale, %m : tensor<2x?x64xbf16>, tensor<2x?x64xbf16>, tensor<2x?x64xbf16>, f32, tensor<2x?x?xf32>)
      outs(%empty : tensor<2x?x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x?x64xbf16>
  util.return %r : tensor<2x?x64xbf16>
}

// Keys of a dynamic number have a mask of zeros (`mxcomp.torch.attention`), which the kernel needs not.

// CHECK-LABEL: util.func public @zeros(
// CHECK-NOT: linalg.fill ins({{.*}}) outs({{.*}}tensor<2x40x?xbf16>
// CHECK: ins(%{{[^,]+}}, %{{[^,]+}}, %{{[^,]+}} : tensor<2x40x64xbf16>, tensor<2x?x64xbf16>, tensor<2x?x64xbf16>)
// CHECK-SAME: ukernel_descriptor<"mx_attention_prefill_m64_d64_
// CHECK-NOT: iree_linalg_ext.attention
util.func public @zeros(%q: tensor<2x40x64xbf16>, %k: tensor<2x?x64xbf16>) -> tensor<2x40x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : bf16
  %c1 = arith.constant 1 : index
  %keys = tensor.dim %k, %c1 : tensor<2x?x64xbf16>
  %numbers = tensor.empty(%keys) : tensor<2x40x?xbf16>
  %m = linalg.fill ins(%zero : bf16) outs(%numbers : tensor<2x40x?xbf16>) -> tensor<2x40x?xbf16>
  %empty = tensor.empty() : tensor<2x40x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #m, #o]>
      ins(%q, %k, %k, %scale, %m : tensor<2x40x64xbf16>, tensor<2x?x64xbf16>, tensor<2x?x64xbf16>, f32, tensor<2x40x?xbf16>)
      outs(%empty : tensor<2x40x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x40x64xbf16>
  util.return %r : tensor<2x40x64xbf16>
}

// CHECK-LABEL: util.func public @dynamic_batch(
// CHECK: cf.assert {{.*}} "mxcomp: operands of attention must have the same number of batches"
// CHECK: cf.assert {{.*}} "mxcomp: batches of attention must be between 1 and
// CHECK: flow.dispatch.region -> (tensor<?x40x4x2x8xbf16>{%{{.+}}})
// CHECK-NOT: iree_linalg_ext.attention
util.func public @dynamic_batch(%q: tensor<?x40x64xbf16>, %k: tensor<?x80x64xbf16>) -> tensor<?x40x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %c0 = arith.constant 0 : index
  %batch = tensor.dim %q, %c0 : tensor<?x40x64xbf16>
  %empty = tensor.empty(%batch) : tensor<?x40x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %k, %scale : tensor<?x40x64xbf16>, tensor<?x80x64xbf16>, tensor<?x80x64xbf16>, f32)
      outs(%empty : tensor<?x40x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<?x40x64xbf16>
  util.return %r : tensor<?x40x64xbf16>
}

// A mask by which queries see keys from their own on, and one that hides what is not in a window, are not computed either.

// CHECK-LABEL: util.func public @keys_behind(
// CHECK-NOT: linalg.index
// CHECK: "mx_attention_prefill_m64_d64_causal_
util.func public @keys_behind(%q: tensor<2x70x64xbf16>, %k: tensor<2x96x64xbf16>) -> tensor<2x70x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : bf16
  %hidden = arith.constant 0xFF80 : bf16
  %places = tensor.empty() : tensor<2x70x96xbf16>
  %mask = linalg.generic {indexing_maps = [affine_map<(n, t, l) -> (n, t, l)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%places : tensor<2x70x96xbf16>) {
  ^bb0(%out: bf16):
    %n = linalg.index 0 : index
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

// CHECK-LABEL: util.func public @window(
// CHECK-NOT: linalg.index
// CHECK: "mx_attention_prefill_m64_d64_causal_
util.func public @window(%q: tensor<2x70x64xbf16>, %k: tensor<2x96x64xbf16>) -> tensor<2x70x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : bf16
  %hidden = arith.constant 0xFF80 : bf16
  %places = tensor.empty() : tensor<2x70x96xbf16>
  %mask = linalg.generic {indexing_maps = [affine_map<(n, t, l) -> (n, t, l)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%places : tensor<2x70x96xbf16>) {
  ^bb0(%out: bf16):
    %n = linalg.index 0 : index
    %t = linalg.index 1 : index
    %l = linalg.index 2 : index
    %c8 = arith.constant 8 : index
    %true = arith.constant true
    %first = arith.subi %t, %c8 : index
    %early = arith.cmpi sle, %l, %first : index
    %late = arith.cmpi slt, %t, %l : index
    %either = arith.ori %early, %late : i1
    %seen = arith.xori %either, %true : i1
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

// What is none of these is stored, and added: of every second key, of other queries for each head, of two parts, of one
// key alone, with numbers the other way round, and with a number that hides nothing.

// CHECK-LABEL: util.func public @steep(
// CHECK: linalg.index
// CHECK: "mx_attention_prefill_m64_d64_{{[0-9a-f]+}}"
util.func public @steep(%q: tensor<2x70x64xbf16>, %k: tensor<2x96x64xbf16>) -> tensor<2x70x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : bf16
  %hidden = arith.constant 0xFF80 : bf16
  %places = tensor.empty() : tensor<2x70x96xbf16>
  %mask = linalg.generic {indexing_maps = [affine_map<(n, t, l) -> (n, t, l)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%places : tensor<2x70x96xbf16>) {
  ^bb0(%out: bf16):
    %n = linalg.index 0 : index
    %t = linalg.index 1 : index
    %l = linalg.index 2 : index
    %twice = arith.addi %l, %l : index
    %seen = arith.cmpi sge, %t, %twice : index
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

// CHECK-LABEL: util.func public @of_head(
// CHECK: linalg.index
// CHECK: "mx_attention_prefill_m64_d64_{{[0-9a-f]+}}"
util.func public @of_head(%q: tensor<2x70x64xbf16>, %k: tensor<2x96x64xbf16>) -> tensor<2x70x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : bf16
  %hidden = arith.constant 0xFF80 : bf16
  %places = tensor.empty() : tensor<2x70x96xbf16>
  %mask = linalg.generic {indexing_maps = [affine_map<(n, t, l) -> (n, t, l)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%places : tensor<2x70x96xbf16>) {
  ^bb0(%out: bf16):
    %n = linalg.index 0 : index
    %t = linalg.index 1 : index
    %l = linalg.index 2 : index
    %more = arith.addi %t, %n : index
    %seen = arith.cmpi sge, %more, %l : index
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

// CHECK-LABEL: util.func public @two_parts(
// CHECK: linalg.index
// CHECK: "mx_attention_prefill_m64_d64_{{[0-9a-f]+}}"
util.func public @two_parts(%q: tensor<2x70x64xbf16>, %k: tensor<2x96x64xbf16>) -> tensor<2x70x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : bf16
  %hidden = arith.constant 0xFF80 : bf16
  %places = tensor.empty() : tensor<2x70x96xbf16>
  %mask = linalg.generic {indexing_maps = [affine_map<(n, t, l) -> (n, t, l)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%places : tensor<2x70x96xbf16>) {
  ^bb0(%out: bf16):
    %n = linalg.index 0 : index
    %t = linalg.index 1 : index
    %l = linalg.index 2 : index
    %c8 = arith.constant 8 : index
    %first = arith.subi %t, %c8 : index
    %early = arith.cmpi sle, %l, %first : index
    %late = arith.cmpi slt, %t, %l : index
    %seen = arith.ori %early, %late : i1
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

// CHECK-LABEL: util.func public @but_one(
// CHECK: linalg.index
// CHECK: "mx_attention_prefill_m64_d64_{{[0-9a-f]+}}"
util.func public @but_one(%q: tensor<2x70x64xbf16>, %k: tensor<2x96x64xbf16>) -> tensor<2x70x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : bf16
  %hidden = arith.constant 0xFF80 : bf16
  %places = tensor.empty() : tensor<2x70x96xbf16>
  %mask = linalg.generic {indexing_maps = [affine_map<(n, t, l) -> (n, t, l)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%places : tensor<2x70x96xbf16>) {
  ^bb0(%out: bf16):
    %n = linalg.index 0 : index
    %t = linalg.index 1 : index
    %l = linalg.index 2 : index
    %seen = arith.cmpi ne, %t, %l : index
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

// CHECK-LABEL: util.func public @inside_out(
// CHECK: linalg.index
// CHECK: "mx_attention_prefill_m64_d64_{{[0-9a-f]+}}"
util.func public @inside_out(%q: tensor<2x70x64xbf16>, %k: tensor<2x96x64xbf16>) -> tensor<2x70x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : bf16
  %hidden = arith.constant 0xFF80 : bf16
  %places = tensor.empty() : tensor<2x70x96xbf16>
  %mask = linalg.generic {indexing_maps = [affine_map<(n, t, l) -> (n, t, l)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%places : tensor<2x70x96xbf16>) {
  ^bb0(%out: bf16):
    %n = linalg.index 0 : index
    %t = linalg.index 1 : index
    %l = linalg.index 2 : index
    %early = arith.cmpi sge, %t, %l : index
    %c8 = arith.constant 8 : index
    %first = arith.subi %t, %c8 : index
    %late = arith.cmpi sle, %first, %l : index
    %hides = arith.andi %early, %late : i1
    %0 = arith.select %hides, %hidden, %zero : bf16
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

// CHECK-LABEL: util.func public @weak(
// CHECK: linalg.index
// CHECK: "mx_attention_prefill_m64_d64_{{[0-9a-f]+}}"
util.func public @weak(%q: tensor<2x70x64xbf16>, %k: tensor<2x96x64xbf16>) -> tensor<2x70x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : bf16
  %hidden = arith.constant 0xFF80 : bf16
  %places = tensor.empty() : tensor<2x70x96xbf16>
  %mask = linalg.generic {indexing_maps = [affine_map<(n, t, l) -> (n, t, l)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%places : tensor<2x70x96xbf16>) {
  ^bb0(%out: bf16):
    %n = linalg.index 0 : index
    %t = linalg.index 1 : index
    %l = linalg.index 2 : index
    %little = arith.constant -8.0 : bf16
    %seen = arith.cmpi sge, %t, %l : index
    %0 = arith.select %seen, %zero, %little : bf16
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

// Keys up to a position that the program knows: the position is an operand, and no mask is computed. That each
// query sees a key is known: what hides one is a finite number.

// CHECK-LABEL: util.func public @position(
// CHECK-SAME: %[[POSITION:[a-z0-9]+]]: tensor<1xi64>
// CHECK-NOT: linalg.index
// CHECK: %[[LARGEST:.+]] = arith.constant dense<1.000000e+00> : tensor<1xf32>
// CHECK: linalg.generic
// CHECK-SAME: %[[POSITION]] : tensor<2x64xbf16>, tensor<2x96x64xbf16>, tensor<2x96x64xbf16>, tensor<1xi64>)
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

// A position for each sequence: of those that see no key the result is 0, as the kernel has it.

// CHECK-LABEL: util.func public @lengths(
// CHECK-SAME: %[[LENGTHS:[a-z0-9]+]]: tensor<2xi64>
// CHECK-NOT: linalg.index
// CHECK: linalg.generic
// CHECK-SAME: %[[LENGTHS]] : {{.+}}tensor<2xi64>)
// CHECK-SAME: "mx_attention_decode_
// CHECK: %[[ROWS:.+]] = tensor.expand_shape {{.*}} into tensor<4x1x64xbf16>
// CHECK: %[[RESULT:.+]] = tensor.expand_shape %[[ROWS]] {{.*}} into tensor<2x2x1x64xbf16>
// CHECK-NOT: arith.select
// CHECK: util.return %[[RESULT]]

// One that zeroes other queries than those is none: the mask stays, in which they see all keys.

// CHECK-LABEL: util.func public @other_lengths(
// CHECK: arith.select
// CHECK: util.return
util.func public @lengths(%q: tensor<4x1x64xbf16>, %k: tensor<4x96x64xbf16>, %lengths: tensor<2xi64>)
    -> tensor<2x2x1x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : bf16
  %zero_f32 = arith.constant 0.0 : f32
  %infinity = arith.constant 0xFF800000 : f32
  %true = arith.constant true
  %places = tensor.empty() : tensor<2x96xi1>
  %seen = linalg.generic {indexing_maps = [affine_map<(b, l) -> (b)>, affine_map<(b, l) -> (b, l)>], iterator_types = ["parallel", "parallel"]}
      ins(%lengths : tensor<2xi64>) outs(%places : tensor<2x96xi1>) {
  ^bb0(%length: i64, %out: i1):
    %l = linalg.index 1 : index
    %key = arith.index_cast %l : index to i64
    %0 = arith.cmpi slt, %key, %length : i64
    linalg.yield %0 : i1
  } -> tensor<2x96xi1>
  %number_places = tensor.empty() : tensor<2xf32>
  %start = linalg.fill ins(%infinity : f32) outs(%number_places : tensor<2xf32>) -> tensor<2xf32>
  %some = linalg.generic {indexing_maps = [affine_map<(b, l) -> (b, l)>, affine_map<(b, l) -> (b)>], iterator_types = ["parallel", "reduction"]}
      ins(%seen : tensor<2x96xi1>) outs(%start : tensor<2xf32>) {
  ^bb0(%x: i1, %y: f32):
    %0 = arith.uitofp %x : i1 to f32
    %1 = arith.maximumf %0, %y : f32
    linalg.yield %1 : f32
  } -> tensor<2xf32>
  %mask_places = tensor.empty() : tensor<2x2x1x96xi1>
  %masks = linalg.generic {indexing_maps = [affine_map<(b, h, t, l) -> (b, l)>, affine_map<(b, h, t, l) -> (b)>, affine_map<(b, h, t, l) -> (b, h, t, l)>],
                           iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%seen, %some : tensor<2x96xi1>, tensor<2xf32>) outs(%mask_places : tensor<2x2x1x96xi1>) {
  ^bb0(%x: i1, %y: f32, %out: i1):
    %0 = arith.cmpf ogt, %y, %zero_f32 : f32
    %1 = arith.xori %0, %true : i1
    %2 = arith.ori %x, %1 : i1
    linalg.yield %2 : i1
  } -> tensor<2x2x1x96xi1>
  %mask = tensor.collapse_shape %masks [[0, 1], [2], [3]] : tensor<2x2x1x96xi1> into tensor<4x1x96xi1>
  %empty = tensor.empty() : tensor<4x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #m, #o]>
      ins(%q, %k, %k, %scale, %mask : tensor<4x1x64xbf16>, tensor<4x96x64xbf16>, tensor<4x96x64xbf16>, f32, tensor<4x1x96xi1>)
      outs(%empty : tensor<4x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x1x64xbf16>
  %rows = tensor.expand_shape %r [[0, 1], [2], [3]] output_shape [2, 2, 1, 64] : tensor<4x1x64xbf16> into tensor<2x2x1x64xbf16>
  %row_places = tensor.empty() : tensor<2x2x1x64xbf16>
  %kept = linalg.generic {indexing_maps = [affine_map<(b, h, t, v) -> (b)>, affine_map<(b, h, t, v) -> (b, h, t, v)>, affine_map<(b, h, t, v) -> (b, h, t, v)>],
                          iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%some, %rows : tensor<2xf32>, tensor<2x2x1x64xbf16>) outs(%row_places : tensor<2x2x1x64xbf16>) {
  ^bb0(%x: f32, %row: bf16, %out: bf16):
    %0 = arith.cmpf ogt, %x, %zero_f32 : f32
    %1 = arith.select %0, %row, %zero : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x2x1x64xbf16>
  util.return %kept : tensor<2x2x1x64xbf16>
}

util.func public @other_lengths(%q: tensor<4x1x64xbf16>, %k: tensor<4x96x64xbf16>, %lengths: tensor<2xi64>)
    -> tensor<2x2x1x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : bf16
  %zero_f32 = arith.constant 0.0 : f32
  %infinity = arith.constant 0xFF800000 : f32
  %true = arith.constant true
  %places = tensor.empty() : tensor<2x96xi1>
  %seen = linalg.generic {indexing_maps = [affine_map<(b, l) -> (b)>, affine_map<(b, l) -> (b, l)>], iterator_types = ["parallel", "parallel"]}
      ins(%lengths : tensor<2xi64>) outs(%places : tensor<2x96xi1>) {
  ^bb0(%length: i64, %out: i1):
    %l = linalg.index 1 : index
    %key = arith.index_cast %l : index to i64
    %0 = arith.cmpi slt, %key, %length : i64
    linalg.yield %0 : i1
  } -> tensor<2x96xi1>
  %longer = linalg.generic {indexing_maps = [affine_map<(b, l) -> (b)>, affine_map<(b, l) -> (b, l)>], iterator_types = ["parallel", "parallel"]}
      ins(%lengths : tensor<2xi64>) outs(%places : tensor<2x96xi1>) {
  ^bb0(%length: i64, %out: i1):
    %l = linalg.index 1 : index
    %key = arith.index_cast %l : index to i64
    %0 = arith.cmpi sle, %key, %length : i64
    linalg.yield %0 : i1
  } -> tensor<2x96xi1>
  %number_places = tensor.empty() : tensor<2xf32>
  %start = linalg.fill ins(%infinity : f32) outs(%number_places : tensor<2xf32>) -> tensor<2xf32>
  %some = linalg.generic {indexing_maps = [affine_map<(b, l) -> (b, l)>, affine_map<(b, l) -> (b)>], iterator_types = ["parallel", "reduction"]}
      ins(%longer : tensor<2x96xi1>) outs(%start : tensor<2xf32>) {
  ^bb0(%x: i1, %y: f32):
    %0 = arith.uitofp %x : i1 to f32
    %1 = arith.maximumf %0, %y : f32
    linalg.yield %1 : f32
  } -> tensor<2xf32>
  %mask_places = tensor.empty() : tensor<2x2x1x96xi1>
  %masks = linalg.generic {indexing_maps = [affine_map<(b, h, t, l) -> (b, l)>, affine_map<(b, h, t, l) -> (b)>, affine_map<(b, h, t, l) -> (b, h, t, l)>],
                           iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%seen, %some : tensor<2x96xi1>, tensor<2xf32>) outs(%mask_places : tensor<2x2x1x96xi1>) {
  ^bb0(%x: i1, %y: f32, %out: i1):
    %0 = arith.cmpf ogt, %y, %zero_f32 : f32
    %1 = arith.xori %0, %true : i1
    %2 = arith.ori %x, %1 : i1
    linalg.yield %2 : i1
  } -> tensor<2x2x1x96xi1>
  %mask = tensor.collapse_shape %masks [[0, 1], [2], [3]] : tensor<2x2x1x96xi1> into tensor<4x1x96xi1>
  %empty = tensor.empty() : tensor<4x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #m, #o]>
      ins(%q, %k, %k, %scale, %mask : tensor<4x1x64xbf16>, tensor<4x96x64xbf16>, tensor<4x96x64xbf16>, f32, tensor<4x1x96xi1>)
      outs(%empty : tensor<4x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x1x64xbf16>
  %rows = tensor.expand_shape %r [[0, 1], [2], [3]] output_shape [2, 2, 1, 64] : tensor<4x1x64xbf16> into tensor<2x2x1x64xbf16>
  %row_places = tensor.empty() : tensor<2x2x1x64xbf16>
  %kept = linalg.generic {indexing_maps = [affine_map<(b, h, t, v) -> (b)>, affine_map<(b, h, t, v) -> (b, h, t, v)>, affine_map<(b, h, t, v) -> (b, h, t, v)>],
                          iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%some, %rows : tensor<2xf32>, tensor<2x2x1x64xbf16>) outs(%row_places : tensor<2x2x1x64xbf16>) {
  ^bb0(%x: f32, %row: bf16, %out: bf16):
    %0 = arith.cmpf ogt, %x, %zero_f32 : f32
    %1 = arith.select %0, %row, %zero : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x2x1x64xbf16>
  util.return %kept : tensor<2x2x1x64xbf16>
}

// A dynamic batch and dynamic queries: operands are one dimension, and their sizes those of one that nothing reads.

// CHECK-LABEL: util.func public @dynamic_batch_and_queries(
// CHECK: cf.assert {{.*}} "mxcomp: batches times queries of attention must be between 1 and 16777215"
// CHECK: %[[QUERIES:.+]] = util.assume.int {{.*}}<umin = 1, umax = 16777215>
// CHECK: tensor.collapse_shape {{.*}} : tensor<?x?x64xbf16> into tensor<?xbf16>
// CHECK: tensor.empty(%{{.+}}) : tensor<?xi8>
// CHECK: %[[UNREAD:.+]] = util.optimization_barrier %{{.+}} : tensor<?xi8>
// CHECK: flow.dispatch.region -> (tensor<?x?x4x2x8xbf16>{%{{.+}}, %{{.+}}})
// CHECK: : tensor<?xbf16>, tensor<?xbf16>, tensor<?xbf16>, tensor<?xi8>, tensor<?xi8>)
// CHECK-SAME: "mx_attention_prefill_m256_d64_
// CHECK: "mx_attention_prefill_m64_d64_
// CHECK-NOT: iree_linalg_ext.attention
util.func public @dynamic_batch_and_queries(%q: tensor<?x?x64xbf16>, %x: tensor<?x384xbf16>) -> tensor<?x?x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %batch = tensor.dim %q, %c0 : tensor<?x?x64xbf16>
  %queries = tensor.dim %q, %c1 : tensor<?x?x64xbf16>
  %rows = tensor.dim %x, %c0 : tensor<?x384xbf16>
  %columns = tensor.extract_slice %x[0, 128] [%rows, 64] [1, 1] : tensor<?x384xbf16> to tensor<?x64xbf16>
  %k = tensor.expand_shape %columns [[0, 1], [2]] output_shape [%batch, %queries, 64] : tensor<?x64xbf16> into tensor<?x?x64xbf16>
  %empty = tensor.empty(%batch, %queries) : tensor<?x?x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %k, %scale : tensor<?x?x64xbf16>, tensor<?x?x64xbf16>, tensor<?x?x64xbf16>, f32)
      outs(%empty : tensor<?x?x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<?x?x64xbf16>
  util.return %r : tensor<?x?x64xbf16>
}

// A single workgroup has no loop, and a kernel all the same.

// CHECK-LABEL: util.func public @single_workgroup(
// CHECK: flow.dispatch.region -> (tensor<1x64x4x2x8xbf16>)
// CHECK: "mx_attention_prefill_
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

// What is left to IREE: a batch in which neighbours of a token are other sequences, f32, scores that are changed, a
// scale that is computed.

// CHECK-LABEL: util.func public @batch_within(
// CHECK: iree_linalg_ext.attention
util.func public @batch_within(%x: tensor<?x?x64xbf16>) -> tensor<?x?x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %queries = tensor.dim %x, %c0 : tensor<?x?x64xbf16>
  %batch = tensor.dim %x, %c1 : tensor<?x?x64xbf16>
  %empty = tensor.empty(%batch, %queries) : tensor<?x?x64xbf16>
  %q = linalg.transpose ins(%x : tensor<?x?x64xbf16>) outs(%empty : tensor<?x?x64xbf16>) permutation = [1, 0, 2]
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %q, %q, %scale : tensor<?x?x64xbf16>, tensor<?x?x64xbf16>, tensor<?x?x64xbf16>, f32)
      outs(%empty : tensor<?x?x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<?x?x64xbf16>
  util.return %r : tensor<?x?x64xbf16>
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

// What is left where a query sees no key, which here none does, is not chosen; where that is not known it is.

// CHECK-LABEL: util.func public @always_seen(
// CHECK: %[[RESULT:.+]] = tensor.expand_shape {{.*}} into tensor<8x1x64xbf16>
// CHECK: %[[CHOSEN:.+]] = linalg.generic {{.*}} ins({{.*}}, %[[RESULT]],
// CHECK: arith.select
// CHECK: util.return %[[RESULT]], %[[CHOSEN]]
util.func public @always_seen(%q: tensor<8x1x64xbf16>, %k: tensor<8x1024x64xbf16>, %other: tensor<8x1x1xi1>)
    -> (tensor<8x1x64xbf16>, tensor<8x1x64xbf16>) {
  %scale = arith.constant 0.125 : f32
  %zero = arith.constant 0.0 : f32
  %nothing = arith.constant dense<0.0> : tensor<bf16>
  %least = arith.constant 0xFF800000 : f32
  %seen = arith.constant dense<1.0> : tensor<8x1024xf32>
  %rows = tensor.empty() : tensor<8xf32>
  %start = linalg.fill ins(%least : f32) outs(%rows : tensor<8xf32>) -> tensor<8xf32>
  %most = linalg.generic {indexing_maps = [affine_map<(n, l) -> (n, l)>, affine_map<(n, l) -> (n)>],
                          iterator_types = ["parallel", "reduction"]}
      ins(%seen : tensor<8x1024xf32>) outs(%start : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.maximumf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %most3 = tensor.expand_shape %most [[0, 1, 2]] output_shape [8, 1, 1] : tensor<8xf32> into tensor<8x1x1xf32>
  %truths = tensor.empty() : tensor<8x1x1xi1>
  %is_seen = linalg.generic {indexing_maps = [affine_map<(n, t, d) -> (n, t, d)>, affine_map<(n, t, d) -> (n, t, d)>],
                             iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%most3 : tensor<8x1x1xf32>) outs(%truths : tensor<8x1x1xi1>) {
  ^bb0(%in: f32, %out: i1):
    %0 = arith.cmpf ogt, %in, %zero : f32
    linalg.yield %0 : i1
  } -> tensor<8x1x1xi1>
  %empty = tensor.empty() : tensor<8x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %k, %scale : tensor<8x1x64xbf16>, tensor<8x1024x64xbf16>, tensor<8x1024x64xbf16>, f32)
      outs(%empty : tensor<8x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<8x1x64xbf16>
  %always = linalg.generic {indexing_maps = [affine_map<(n, t, d) -> (n, t, 0)>, affine_map<(n, t, d) -> (n, t, d)>,
                                             affine_map<(n, t, d) -> ()>, affine_map<(n, t, d) -> (n, t, d)>],
                            iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%is_seen, %r, %nothing : tensor<8x1x1xi1>, tensor<8x1x64xbf16>, tensor<bf16>)
      outs(%empty : tensor<8x1x64xbf16>) {
  ^bb0(%c: i1, %a: bf16, %b: bf16, %out: bf16):
    %0 = arith.select %c, %a, %b : bf16
    linalg.yield %0 : bf16
  } -> tensor<8x1x64xbf16>
  %sometimes = linalg.generic {indexing_maps = [affine_map<(n, t, d) -> (n, t, 0)>, affine_map<(n, t, d) -> (n, t, d)>,
                                                affine_map<(n, t, d) -> ()>, affine_map<(n, t, d) -> (n, t, d)>],
                               iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%other, %r, %nothing : tensor<8x1x1xi1>, tensor<8x1x64xbf16>, tensor<bf16>)
      outs(%empty : tensor<8x1x64xbf16>) {
  ^bb0(%c: i1, %a: bf16, %b: bf16, %out: bf16):
    %0 = arith.select %c, %a, %b : bf16
    linalg.yield %0 : bf16
  } -> tensor<8x1x64xbf16>
  util.return %always, %sometimes : tensor<8x1x64xbf16>, tensor<8x1x64xbf16>
}

// Narrow keys and values are converted in the kernel: what they are multiplied by is, too, or is a scale of blocks.

// CHECK-LABEL: util.func public @narrow(
// CHECK-SAME: %[[K:[a-z0-9]+]]: tensor<2x64x64xf8E4M3FN>, %[[V:[a-z0-9]+]]: tensor<2x64x32xi8>, %[[S:[a-z0-9]+]]: tensor<2x64x2xf8E8M0FNU>
// CHECK-DAG: %[[KEYS:.+]] = iree_tensor_ext.bitcast %[[K]] : {{.*}} -> tensor<2x64x64xi8>
// CHECK-DAG: %[[SCALES:.+]] = iree_tensor_ext.bitcast %[[S]] : {{.*}} -> tensor<2x64x2xi8>
// CHECK: flow.dispatch.region
// CHECK: ins(%{{.+}}, %[[KEYS]], %[[V]], %[[SCALES]] : tensor<2x64xbf16>, tensor<2x64x64xi8>, tensor<2x64x32xi8>, tensor<2x64x2xi8>)
// CHECK-SAME: "mx_attention_decode_
util.func public @narrow(%q: tensor<2x1x64xbf16>, %k: tensor<2x64x64xf8E4M3FN>, %v: tensor<2x64x32xi8>, %s: tensor<2x64x2xf8E8M0FNU>) -> tensor<2x1x64xbf16> {
  %half = arith.constant 0.5 : bf16
  %e0 = tensor.empty() : tensor<2x64x64xbf16>
  %keys = linalg.generic {indexing_maps = [affine_map<(n, l, d) -> (n, l, d)>, affine_map<(n, l, d) -> (n, l, d)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%k : tensor<2x64x64xf8E4M3FN>) outs(%e0 : tensor<2x64x64xbf16>) {
  ^bb0(%in: f8E4M3FN, %out: bf16):
    %0 = arith.extf %in : f8E4M3FN to bf16
    %1 = arith.mulf %half, %0 : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x64x64xbf16>
  %codes = iree_tensor_ext.bitcast %v : tensor<2x64x32xi8> -> tensor<2x64x2x32xf4E2M1FN>
  %e1 = tensor.empty() : tensor<2x64x2x32xbf16>
  %blocks = linalg.generic {indexing_maps = [affine_map<(n, l, b, d) -> (n, l, b, d)>, affine_map<(n, l, b, d) -> (n, l, b)>, affine_map<(n, l, b, d) -> (n, l, b, d)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%codes, %s : tensor<2x64x2x32xf4E2M1FN>, tensor<2x64x2xf8E8M0FNU>) outs(%e1 : tensor<2x64x2x32xbf16>) {
  ^bb0(%in: f4E2M1FN, %scale: f8E8M0FNU, %out: bf16):
    %0 = arith.scaling_extf %in, %scale : f4E2M1FN, f8E8M0FNU to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x64x2x32xbf16>
  %values = tensor.collapse_shape %blocks [[0], [1], [2, 3]] : tensor<2x64x2x32xbf16> into tensor<2x64x64xbf16>
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<2x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %keys, %values, %scale : tensor<2x1x64xbf16>, tensor<2x64x64xbf16>, tensor<2x64x64xbf16>, f32)
      outs(%empty : tensor<2x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x1x64xbf16>
  util.return %r : tensor<2x1x64xbf16>
}

// Not what is computed otherwise: keys with a number of each row added, and values of half a block's scale.

// CHECK-LABEL: util.func public @narrow_otherwise(
// CHECK: %[[KEYS:[0-9]+]] = linalg.generic
// CHECK: %[[VALUES:[0-9]+]] = linalg.generic
// CHECK: ins(%{{.+}}, %[[KEYS]], %[[VALUES]] : tensor<2x64xbf16>, tensor<2x64x64xbf16>, tensor<2x64x64xbf16>)
// CHECK-SAME: "mx_attention_decode_
util.func public @narrow_otherwise(%q: tensor<2x1x64xbf16>, %k: tensor<2x64x64xf8E4M3FN>, %b: tensor<64xbf16>, %v: tensor<2x64x64xf8E5M2>, %s: tensor<2x64x4xf8E8M0FNU>) -> tensor<2x1x64xbf16> {
  %e0 = tensor.empty() : tensor<2x64x64xbf16>
  %keys = linalg.generic {indexing_maps = [affine_map<(n, l, d) -> (n, l, d)>, affine_map<(n, l, d) -> (l)>, affine_map<(n, l, d) -> (n, l, d)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%k, %b : tensor<2x64x64xf8E4M3FN>, tensor<64xbf16>) outs(%e0 : tensor<2x64x64xbf16>) {
  ^bb0(%in: f8E4M3FN, %row: bf16, %out: bf16):
    %0 = arith.extf %in : f8E4M3FN to bf16
    %1 = arith.addf %0, %row : bf16
    linalg.yield %1 : bf16
  } -> tensor<2x64x64xbf16>
  %values = linalg.generic {indexing_maps = [affine_map<(n, l, d) -> (n, l, d)>, affine_map<(n, l, d) -> (n, l, d floordiv 16)>, affine_map<(n, l, d) -> (n, l, d)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v, %s : tensor<2x64x64xf8E5M2>, tensor<2x64x4xf8E8M0FNU>) outs(%e0 : tensor<2x64x64xbf16>) {
  ^bb0(%in: f8E5M2, %scale: f8E8M0FNU, %out: bf16):
    %0 = arith.scaling_extf %in, %scale : f8E5M2, f8E8M0FNU to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x64x64xbf16>
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty() : tensor<2x1x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %keys, %values, %scale : tensor<2x1x64xbf16>, tensor<2x64x64xbf16>, tensor<2x64x64xbf16>, f32)
      outs(%empty : tensor<2x1x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x1x64xbf16>
  util.return %r : tensor<2x1x64xbf16>
}

// Heads that are columns of a joined product are read there: of a slice of its columns there would be a copy. A slice of
// rows is none.

// CHECK-LABEL: util.func public @joined(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<96x384xbf16>, %[[Y:[a-z0-9]+]]: tensor<4x70x64xbf16>
// CHECK-DAG: %[[Q:.+]] = tensor.extract_slice %[[Y]]
// CHECK-DAG: %[[WHOLE:.+]] = tensor.expand_shape %[[X]] {{\[\[}}0], [1, 2]] output_shape [96, 6, 64]
// CHECK: ins(%{{[^,]+}}, %[[WHOLE]], %{{[^,]+}} : tensor<2x70x64xbf16>, tensor<96x6x64xbf16>, tensor<96x6x64xbf16>)
// CHECK-NOT: iree_linalg_ext.attention
util.func public @joined(%x: tensor<96x384xbf16>, %y: tensor<4x70x64xbf16>) -> tensor<2x70x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %q = tensor.extract_slice %y[1, 0, 0] [2, 70, 64] [1, 1, 1] : tensor<4x70x64xbf16> to tensor<2x70x64xbf16>
  %heads = tensor.empty() : tensor<2x96x64xbf16>
  %k0 = tensor.extract_slice %x[0, 128] [96, 128] [1, 1] : tensor<96x384xbf16> to tensor<96x128xbf16>
  %v0 = tensor.extract_slice %x[0, 256] [96, 128] [1, 1] : tensor<96x384xbf16> to tensor<96x128xbf16>
  %k1 = tensor.expand_shape %k0 [[0], [1, 2]] output_shape [96, 2, 64] : tensor<96x128xbf16> into tensor<96x2x64xbf16>
  %v1 = tensor.expand_shape %v0 [[0], [1, 2]] output_shape [96, 2, 64] : tensor<96x128xbf16> into tensor<96x2x64xbf16>
  %k = linalg.transpose ins(%k1 : tensor<96x2x64xbf16>) outs(%heads : tensor<2x96x64xbf16>) permutation = [1, 0, 2]
  %v = linalg.transpose ins(%v1 : tensor<96x2x64xbf16>) outs(%heads : tensor<2x96x64xbf16>) permutation = [1, 0, 2]
  %empty = tensor.empty() : tensor<2x70x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %v, %scale : tensor<2x70x64xbf16>, tensor<2x96x64xbf16>, tensor<2x96x64xbf16>, f32)
      outs(%empty : tensor<2x70x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x70x64xbf16>
  util.return %r : tensor<2x70x64xbf16>
}

// So are all of so many rows as the program counts; some of them are copied.

// CHECK-LABEL: util.func public @joined_rows(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x384xbf16>
// CHECK-DAG: %[[WHOLE:.+]] = tensor.expand_shape %[[X]] {{\[\[}}0], [1, 2]] output_shape [%{{.+}}, 6, 64]
// CHECK-DAG: flow.tensor.tie_shape %[[WHOLE]] : tensor<?x6x64xbf16>
// CHECK: ins({{.*}} : tensor<2x70x64xbf16>, tensor<?x6x64xbf16>, tensor<?x2x64xbf16>)
// CHECK-NOT: iree_linalg_ext.attention
util.func public @joined_rows(%x: tensor<?x384xbf16>, %q: tensor<2x70x64xbf16>) -> tensor<2x70x64xbf16> {
  %scale = arith.constant 0.125 : f32
  %c0 = arith.constant 0 : index
  %keys = tensor.dim %x, %c0 : tensor<?x384xbf16>
  %heads = tensor.empty(%keys) : tensor<2x?x64xbf16>
  %k0 = tensor.extract_slice %x[0, 128] [%keys, 128] [1, 1] : tensor<?x384xbf16> to tensor<?x128xbf16>
  %v0 = tensor.extract_slice %x[%c0, 256] [%keys, 128] [1, 1] : tensor<?x384xbf16> to tensor<?x128xbf16>
  %k1 = tensor.expand_shape %k0 [[0], [1, 2]] output_shape [%keys, 2, 64] : tensor<?x128xbf16> into tensor<?x2x64xbf16>
  %v1 = tensor.expand_shape %v0 [[0], [1, 2]] output_shape [%keys, 2, 64] : tensor<?x128xbf16> into tensor<?x2x64xbf16>
  %k = linalg.transpose ins(%k1 : tensor<?x2x64xbf16>) outs(%heads : tensor<2x?x64xbf16>) permutation = [1, 0, 2]
  %v = linalg.transpose ins(%v1 : tensor<?x2x64xbf16>) outs(%heads : tensor<2x?x64xbf16>) permutation = [1, 0, 2]
  %empty = tensor.empty() : tensor<2x70x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #o]>
      ins(%q, %k, %v, %scale : tensor<2x70x64xbf16>, tensor<2x?x64xbf16>, tensor<2x?x64xbf16>, f32)
      outs(%empty : tensor<2x70x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x70x64xbf16>
  util.return %r : tensor<2x70x64xbf16>
}
