// Several sequences may be packed into one: where positions do not go up by 1, another begins (transformers'
// find_packed_sequence_indices). Of positions that are counted there is one sequence, whatever their number.
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-take-attention)' \
// RUN:   | sed -E 's/((mxcomp.kernel|text) = "[^"]{200})[^"]*/\1/g' | filecheck %s
// Not so of positions that are given, that begin elsewhere, that go up by 2, or of every second one of them.
// RUN: sed 's/tensor.cast .counted/tensor.cast %given/' %s \
// RUN:   | mxcomp-opt - --pass-pipeline='builtin.module(mxcomp-take-attention)' | sed -E 's/((mxcomp.kernel|text) = "[^"]{200})[^"]*/\1/g' | filecheck %s --check-prefix=STORED
// RUN: sed 's/arith.subi .in, .one : i64/arith.subi %in, %zero : i64/' %s \
// RUN:   | mxcomp-opt - --pass-pipeline='builtin.module(mxcomp-take-attention)' | sed -E 's/((mxcomp.kernel|text) = "[^"]{200})[^"]*/\1/g' | filecheck %s --check-prefix=STORED
// RUN: sed 's/arith.addi .at, .zero/arith.addi %at, %at/' %s \
// RUN:   | mxcomp-opt - --pass-pipeline='builtin.module(mxcomp-take-attention)' | sed -E 's/((mxcomp.kernel|text) = "[^"]{200})[^"]*/\1/g' | filecheck %s --check-prefix=STORED
// RUN: sed 's/arith.minsi .longer/arith.maxsi %longer/' %s \
// RUN:   | mxcomp-opt - --pass-pipeline='builtin.module(mxcomp-take-attention)' | sed -E 's/((mxcomp.kernel|text) = "[^"]{200})[^"]*/\1/g' | filecheck %s --check-prefix=STORED

#q = affine_map<(n, t, v, d, l) -> (n, t, d)>
#k = affine_map<(n, t, v, d, l) -> (n, l, d)>
#v = affine_map<(n, t, v, d, l) -> (n, l, v)>
#s = affine_map<(n, t, v, d, l) -> ()>
#m = affine_map<(n, t, v, d, l) -> (n, t, l)>
#o = affine_map<(n, t, v, d, l) -> (n, t, v)>
#x = affine_map<(i) -> (i)>

// CHECK-LABEL: util.func public @packed(
// CHECK-NOT: tensor.extract %
// CHECK: flow.dispatch.region
// CHECK: ukernel_descriptor<"mx_attention_prefill_m256_d64_causal_
// CHECK-NOT: iree_linalg_ext
// STORED: tensor.extract %
// STORED: ukernel_descriptor<"mx_attention_prefill_m256_d64_
// STORED-NOT: causal
util.func public @packed(%q: tensor<2x?x64xbf16>, %k: tensor<2x?x64xbf16>, %given: tensor<?xi64>) -> tensor<2x?x64xbf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %tokens = tensor.dim %q, %c1 : tensor<2x?x64xbf16>
  %longer = affine.apply affine_map<()[s0] -> (s0 + 1)>()[%tokens]
  %first = arith.minsi %tokens, %c0 : index
  %behind = arith.minsi %longer, %c1 : index
  %whole = tensor.empty(%tokens) : tensor<?xi64>
  %none = tensor.empty() : tensor<1xi64>
  %last = tensor.empty() : tensor<i64>
  %counted = linalg.generic {indexing_maps = [#x], iterator_types = ["parallel"]} outs(%whole : tensor<?xi64>) {
  ^bb0(%out: i64):
    %i = linalg.index 0 : index
    %at = arith.index_cast %i : index to i64
    %0 = arith.addi %at, %zero : i64
    linalg.yield %0 : i64
  } -> tensor<?xi64>
  %positions = tensor.cast %counted : tensor<?xi64> to tensor<?xi64>
  %start = tensor.extract_slice %positions[%first] [1] [1] : tensor<?xi64> to tensor<1xi64>
  %before = linalg.generic {indexing_maps = [#x, #x], iterator_types = ["parallel"]} ins(%start : tensor<1xi64>) outs(%none : tensor<1xi64>) {
  ^bb0(%in: i64, %out: i64):
    %0 = arith.subi %in, %one : i64
    linalg.yield %0 : i64
  } -> tensor<1xi64>
  %joined = tensor.concat dim(0) %before, %positions : (tensor<1xi64>, tensor<?xi64>) -> tensor<?xi64>
  %these = tensor.extract_slice %joined[%behind] [%tokens] [1] : tensor<?xi64> to tensor<?xi64>
  %those = tensor.extract_slice %joined[%first] [%tokens] [1] : tensor<?xi64> to tensor<?xi64>
  %begins = linalg.generic {indexing_maps = [#x, #x, #x], iterator_types = ["parallel"]}
      ins(%these, %those : tensor<?xi64>, tensor<?xi64>) outs(%whole : tensor<?xi64>) {
  ^bb0(%a: i64, %b: i64, %out: i64):
    %0 = arith.subi %a, %b : i64
    %1 = arith.cmpi ne, %0, %one : i64
    %2 = arith.extui %1 : i1 to i64
    linalg.yield %2 : i64
  } -> tensor<?xi64>
  %zeros = linalg.fill ins(%zero : i64) outs(%whole : tensor<?xi64>) -> tensor<?xi64>
  %sum = linalg.fill ins(%zero : i64) outs(%last : tensor<i64>) -> tensor<i64>
  %sequence:2 = iree_linalg_ext.scan dimension(0) inclusive(true) ins(%begins : tensor<?xi64>) outs(%zeros, %sum : tensor<?xi64>, tensor<i64>) {
  ^bb0(%a: i64, %b: i64):
    %0 = arith.addi %a, %b : i64
    iree_linalg_ext.yield %0 : i64
  } -> tensor<?xi64>, tensor<i64>
  %places = tensor.empty(%tokens, %tokens) : tensor<2x?x?xi1>
  %mask = linalg.generic {indexing_maps = [affine_map<(n, t, l) -> (n, t, l)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%places : tensor<2x?x?xi1>) {
  ^bb0(%out: i1):
    %t = linalg.index 1 : index
    %l = linalg.index 2 : index
    %a = tensor.extract %sequence#0[%t] : tensor<?xi64>
    %b = tensor.extract %sequence#0[%l] : tensor<?xi64>
    %same = arith.cmpi eq, %a, %b : i64
    %before_t = arith.cmpi sge, %t, %l : index
    %seen = arith.andi %same, %before_t : i1
    linalg.yield %seen : i1
  } -> tensor<2x?x?xi1>
  %scale = arith.constant 0.125 : f32
  %empty = tensor.empty(%tokens) : tensor<2x?x64xbf16>
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #m, #o]>
      ins(%q, %k, %k, %scale, %mask : tensor<2x?x64xbf16>, tensor<2x?x64xbf16>, tensor<2x?x64xbf16>, f32, tensor<2x?x?xi1>)
      outs(%empty : tensor<2x?x64xbf16>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x?x64xbf16>
  util.return %r : tensor<2x?x64xbf16>
}
