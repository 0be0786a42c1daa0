// Attention that is spelled out, of dynamic numbers of queries and keys: a sink is a column behind scores that a slice
// leaves out again, whose bounds are those of PyTorch.
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-take-attention)' \
// RUN:   | sed -E 's/((mxcomp.kernel|text) = "[^"]{200})[^"]*/\1/g' | filecheck %s
// Not so if it leaves out another number of columns, or begins elsewhere.
// RUN: sed 's/%minus = arith.constant -1/%minus = arith.constant -2/' %s | mxcomp-opt - --pass-pipeline='builtin.module(mxcomp-take-attention)' | filecheck %s --check-prefix=LEFT
// RUN: sed 's/arith.minsi .longer, .c0/arith.maxsi %longer, %c0/' %s | mxcomp-opt - --pass-pipeline='builtin.module(mxcomp-take-attention)' | filecheck %s --check-prefix=LEFT

#x = affine_map<(n, t, l) -> (n, t, l)>
#r = affine_map<(n, t, l) -> (n, t)>
#h = affine_map<(n, t, l) -> (n)>

// CHECK-LABEL: util.func public @sink(
// CHECK-NOT: linalg.batch_matmul
// CHECK: ukernel_descriptor<"mx_attention_prefill_m256_d64_
// CHECK-NOT: linalg.batch_matmul
// LEFT-LABEL: util.func public @sink(
// LEFT: linalg.batch_matmul
// LEFT: linalg.batch_matmul
util.func public @sink(%q: tensor<4x?x64xbf16>, %k: tensor<4x?x64xbf16>, %v: tensor<4x?x64xbf16>, %sinks: tensor<4xf32>) -> tensor<4x?x64xbf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %minus = arith.constant -1 : index
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %t = tensor.dim %q, %c1 : tensor<4x?x64xbf16>
  %l = tensor.dim %k, %c1 : tensor<4x?x64xbf16>
  %places = tensor.empty(%l) : tensor<4x64x?xbf16>
  %kt = linalg.transpose ins(%k : tensor<4x?x64xbf16>) outs(%places : tensor<4x64x?xbf16>) permutation = [0, 2, 1]
  %longer = affine.apply affine_map<()[s0] -> (s0 + 1)>()[%l]
  %begin = arith.minsi %longer, %c0 : index
  %last = arith.addi %longer, %minus : index
  %before = arith.cmpi slt, %last, %c0 : index
  %end = arith.select %before, %minus, %last : index
  %count = arith.subi %end, %begin : index
  %e0 = tensor.empty(%t, %l) : tensor<4x?x?xf32>
  %z0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<4x?x?xf32>) -> tensor<4x?x?xf32>
  %scores = linalg.batch_matmul ins(%q, %kt : tensor<4x?x64xbf16>, tensor<4x64x?xbf16>) outs(%z0 : tensor<4x?x?xf32>) -> tensor<4x?x?xf32>
  %e1 = tensor.empty(%t) : tensor<4x?x1xf32>
  %column = linalg.generic {indexing_maps = [#h, #x], iterator_types = ["parallel", "parallel", "parallel"]} ins(%sinks : tensor<4xf32>) outs(%e1 : tensor<4x?x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<4x?x1xf32>
  %all = tensor.concat dim(2) %scores, %column : (tensor<4x?x?xf32>, tensor<4x?x1xf32>) -> tensor<4x?x?xf32>
  %e2 = tensor.empty(%t) : tensor<4x?xf32>
  %lows = linalg.fill ins(%low : f32) outs(%e2 : tensor<4x?xf32>) -> tensor<4x?xf32>
  %most = linalg.generic {indexing_maps = [#x, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%all : tensor<4x?x?xf32>) outs(%lows : tensor<4x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.maximumf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x?xf32>
  %e3 = tensor.empty(%t, %longer) : tensor<4x?x?xf32>
  %powers = linalg.generic {indexing_maps = [#x, #r, #x], iterator_types = ["parallel", "parallel", "parallel"]} ins(%all, %most : tensor<4x?x?xf32>, tensor<4x?xf32>) outs(%e3 : tensor<4x?x?xf32>) {
  ^bb0(%in: f32, %m: f32, %out: f32):
    %0 = arith.subf %in, %m : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x?x?xf32>
  %z1 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<4x?xf32>) -> tensor<4x?xf32>
  %sums = linalg.generic {indexing_maps = [#x, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%powers : tensor<4x?x?xf32>) outs(%z1 : tensor<4x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x?xf32>
  %e4 = tensor.empty(%t, %longer) : tensor<4x?x?xbf16>
  %weights = linalg.generic {indexing_maps = [#x, #r, #x], iterator_types = ["parallel", "parallel", "parallel"]} ins(%powers, %sums : tensor<4x?x?xf32>, tensor<4x?xf32>) outs(%e4 : tensor<4x?x?xbf16>) {
  ^bb0(%in: f32, %s: f32, %out: bf16):
    %0 = arith.divf %in, %s : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4x?x?xbf16>
  %kept = tensor.extract_slice %weights[0, 0, %begin] [4, %t, %count] [1, 1, 1] : tensor<4x?x?xbf16> to tensor<4x?x?xbf16>
  %e5 = tensor.empty(%t) : tensor<4x?x64xf32>
  %z2 = linalg.fill ins(%zero : f32) outs(%e5 : tensor<4x?x64xf32>) -> tensor<4x?x64xf32>
  %r = linalg.batch_matmul ins(%kept, %v : tensor<4x?x?xbf16>, tensor<4x?x64xbf16>) outs(%z2 : tensor<4x?x64xf32>) -> tensor<4x?x64xf32>
  %e6 = tensor.empty(%t) : tensor<4x?x64xbf16>
  %narrow = linalg.generic {indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel", "parallel"]} ins(%r : tensor<4x?x64xf32>) outs(%e6 : tensor<4x?x64xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %0 = arith.truncf %in : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<4x?x64xbf16>
  util.return %narrow : tensor<4x?x64xbf16>
}
