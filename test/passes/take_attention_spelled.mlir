// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-take-attention)' | filecheck %s

// Attention that is spelled out: two products and a softmax between them.

#row = affine_map<(n, t, l) -> (n, t)>
#pair = affine_map<(n, t) -> (n, t)>
#all = affine_map<(n, t, l) -> (n, t, l)>
#mask = affine_map<(n, t, l) -> (t, l)>
#each = affine_map<(n, t, v) -> (n, t, v)>
#head = affine_map<(n, t, l) -> (n)>
!q = tensor<4x1x64xbf16>
!k = tensor<4x96x64xbf16>
!kt = tensor<4x64x96xbf16>
!s = tensor<4x1x96xf32>

// What is left has a reason, and what is no attention has not.
// CHECK-COUNT-8: reason = "spelled in a form that is not recognised"
// CHECK-NOT: reason
// CHECK-LABEL: util.func public @plain(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<4x1x64xbf16>, %[[K:[a-z0-9]+]]: tensor<4x96x64xbf16>, %[[V:[a-z0-9]+]]: tensor<4x96x64xbf16>
// CHECK-NOT: linalg.transpose
// CHECK-NOT: math.exp
// CHECK: linalg.generic
// CHECK-SAME: %[[K]], %[[V]] : tensor<4x64xbf16>, tensor<4x96x64xbf16>, tensor<4x96x64xbf16>)
// CHECK-SAME: "mx_attention_decode_
// CHECK-NOT: "mx_attention_combine_
// CHECK: %[[RESULT:.+]] = tensor.expand_shape {{.*}} into tensor<4x1x64xbf16>
// CHECK-NOT: linalg.batch_matmul
// CHECK: util.return %[[RESULT]]
util.func public @plain(%q: !q, %k: !k, %v: !k) -> !q {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %cap = arith.constant 30.0 : f32
  %kt_places = tensor.empty() : !kt
  %kt = linalg.transpose ins(%k : !k) outs(%kt_places : !kt) permutation = [0, 2, 1]
  %s_places = tensor.empty() : !s
  %s_start = linalg.fill ins(%zero : f32) outs(%s_places : !s) -> !s
  %products = linalg.batch_matmul ins(%q, %kt : !q, !kt) outs(%s_start : !s) -> !s
  %scores = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%products : !s) outs(%s_places : !s) {
  ^bb0(%x: f32, %out: f32):
    %2 = arith.mulf %x, %scale : f32
    linalg.yield %2 : f32
  } -> !s
  %row_places = tensor.empty() : tensor<4x1xf32>
  %wide_places = tensor.empty() : tensor<4x1x96xf32>
  %largest_start = linalg.fill ins(%lowest : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %largest = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%scores : tensor<4x1x96xf32>) outs(%largest_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.maximumf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %powers = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scores, %largest : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%wide_places : tensor<4x1x96xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.subf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x1x96xf32>
  %total_start = linalg.fill ins(%zero : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %total = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%powers : tensor<4x1x96xf32>) outs(%total_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.addf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %narrow_places = tensor.empty() : tensor<4x1x96xbf16>
  %weights = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%powers, %total : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%narrow_places : tensor<4x1x96xbf16>) {
  ^bb0(%x: f32, %y: f32, %out: bf16):
    %0 = arith.divf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4x1x96xbf16>
  %r_places = tensor.empty() : tensor<4x1x64xf32>
  %r_start = linalg.fill ins(%zero : f32) outs(%r_places : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %r = linalg.batch_matmul ins(%weights, %v : tensor<4x1x96xbf16>, !k) outs(%r_start : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %rounded_places = tensor.empty() : !q
  %rounded = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<4x1x64xf32>) outs(%rounded_places : !q) {
  ^bb0(%x: f32, %out: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> !q
  util.return %rounded : !q
}

// A cap.

// CHECK-LABEL: util.func public @hidden(
// CHECK-SAME: %[[SEEN:[a-z0-9]+]]: tensor<1x96xi1>)
// CHECK: %[[ADDED:.+]] = linalg.generic {{.*}} ins(%[[SEEN]] : tensor<1x96xi1>)
// CHECK: %[[LOW:.+]] = arith.constant -2.300000e+38 : f32
// CHECK: arith.select %{{.*}}, %{{.*}}, %[[LOW]] : f32
// CHECK: "mx_attention_decode_
// CHECK-NOT: linalg.batch_matmul
// CHECK: util.return
util.func public @hidden(%q: !q, %k: !k, %v: !k, %seen: tensor<1x96xi1>) -> !q {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %cap = arith.constant 30.0 : f32
  %kt_places = tensor.empty() : !kt
  %kt = linalg.transpose ins(%k : !k) outs(%kt_places : !kt) permutation = [0, 2, 1]
  %s_places = tensor.empty() : !s
  %s_start = linalg.fill ins(%zero : f32) outs(%s_places : !s) -> !s
  %products = linalg.batch_matmul ins(%q, %kt : !q, !kt) outs(%s_start : !s) -> !s
  %scores = linalg.generic {indexing_maps = [#all, #mask, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%products, %seen : !s, tensor<1x96xi1>) outs(%s_places : !s) {
  ^bb0(%x: f32, %is_seen: i1, %out: f32):
    %2 = arith.mulf %x, %scale : f32
    %low = arith.constant -1.0e9 : f32
    %3 = arith.select %is_seen, %2, %low : f32
    linalg.yield %3 : f32
  } -> !s
  %row_places = tensor.empty() : tensor<4x1xf32>
  %wide_places = tensor.empty() : tensor<4x1x96xf32>
  %largest_start = linalg.fill ins(%lowest : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %largest = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%scores : tensor<4x1x96xf32>) outs(%largest_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.maximumf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %powers = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scores, %largest : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%wide_places : tensor<4x1x96xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.subf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x1x96xf32>
  %total_start = linalg.fill ins(%zero : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %total = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%powers : tensor<4x1x96xf32>) outs(%total_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.addf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %narrow_places = tensor.empty() : tensor<4x1x96xbf16>
  %weights = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%powers, %total : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%narrow_places : tensor<4x1x96xbf16>) {
  ^bb0(%x: f32, %y: f32, %out: bf16):
    %0 = arith.divf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4x1x96xbf16>
  %r_places = tensor.empty() : tensor<4x1x64xf32>
  %r_start = linalg.fill ins(%zero : f32) outs(%r_places : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %r = linalg.batch_matmul ins(%weights, %v : tensor<4x1x96xbf16>, !k) outs(%r_start : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %rounded_places = tensor.empty() : !q
  %rounded = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<4x1x64xf32>) outs(%rounded_places : !q) {
  ^bb0(%x: f32, %out: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> !q
  util.return %rounded : !q
}

// A cap.

// CHECK-LABEL: util.func public @not_hidden(
// CHECK-NOT: "mx_attention
// CHECK-COUNT-2: linalg.batch_matmul
// CHECK: util.return
util.func public @not_hidden(%q: !q, %k: !k, %v: !k, %seen: tensor<1x96xi1>) -> !q {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %cap = arith.constant 30.0 : f32
  %kt_places = tensor.empty() : !kt
  %kt = linalg.transpose ins(%k : !k) outs(%kt_places : !kt) permutation = [0, 2, 1]
  %s_places = tensor.empty() : !s
  %s_start = linalg.fill ins(%zero : f32) outs(%s_places : !s) -> !s
  %products = linalg.batch_matmul ins(%q, %kt : !q, !kt) outs(%s_start : !s) -> !s
  %scores = linalg.generic {indexing_maps = [#all, #mask, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%products, %seen : !s, tensor<1x96xi1>) outs(%s_places : !s) {
  ^bb0(%x: f32, %is_seen: i1, %out: f32):
    %2 = arith.mulf %x, %scale : f32
    %low = arith.constant -5.0 : f32
    %3 = arith.select %is_seen, %2, %low : f32
    linalg.yield %3 : f32
  } -> !s
  %row_places = tensor.empty() : tensor<4x1xf32>
  %wide_places = tensor.empty() : tensor<4x1x96xf32>
  %largest_start = linalg.fill ins(%lowest : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %largest = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%scores : tensor<4x1x96xf32>) outs(%largest_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.maximumf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %powers = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scores, %largest : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%wide_places : tensor<4x1x96xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.subf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x1x96xf32>
  %total_start = linalg.fill ins(%zero : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %total = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%powers : tensor<4x1x96xf32>) outs(%total_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.addf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %narrow_places = tensor.empty() : tensor<4x1x96xbf16>
  %weights = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%powers, %total : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%narrow_places : tensor<4x1x96xbf16>) {
  ^bb0(%x: f32, %y: f32, %out: bf16):
    %0 = arith.divf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4x1x96xbf16>
  %r_places = tensor.empty() : tensor<4x1x64xf32>
  %r_start = linalg.fill ins(%zero : f32) outs(%r_places : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %r = linalg.batch_matmul ins(%weights, %v : tensor<4x1x96xbf16>, !k) outs(%r_start : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %rounded_places = tensor.empty() : !q
  %rounded = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<4x1x64xf32>) outs(%rounded_places : !q) {
  ^bb0(%x: f32, %out: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> !q
  util.return %rounded : !q
}

// A cap.

// CHECK-LABEL: util.func public @capped(
// CHECK-NOT: math.tanh
// CHECK: "mx_attention_decode_
// CHECK-NOT: linalg.batch_matmul
// CHECK: util.return
util.func public @capped(%q: !q, %k: !k, %v: !k) -> !q {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %cap = arith.constant 30.0 : f32
  %kt_places = tensor.empty() : !kt
  %kt = linalg.transpose ins(%k : !k) outs(%kt_places : !kt) permutation = [0, 2, 1]
  %s_places = tensor.empty() : !s
  %s_start = linalg.fill ins(%zero : f32) outs(%s_places : !s) -> !s
  %products = linalg.batch_matmul ins(%q, %kt : !q, !kt) outs(%s_start : !s) -> !s
  %scores = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%products : !s) outs(%s_places : !s) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.divf %x, %cap : f32
    %1 = math.tanh %0 : f32
    %2 = arith.mulf %1, %cap : f32
    linalg.yield %2 : f32
  } -> !s
  %row_places = tensor.empty() : tensor<4x1xf32>
  %wide_places = tensor.empty() : tensor<4x1x96xf32>
  %largest_start = linalg.fill ins(%lowest : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %largest = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%scores : tensor<4x1x96xf32>) outs(%largest_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.maximumf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %powers = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scores, %largest : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%wide_places : tensor<4x1x96xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.subf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x1x96xf32>
  %total_start = linalg.fill ins(%zero : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %total = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%powers : tensor<4x1x96xf32>) outs(%total_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.addf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %narrow_places = tensor.empty() : tensor<4x1x96xbf16>
  %weights = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%powers, %total : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%narrow_places : tensor<4x1x96xbf16>) {
  ^bb0(%x: f32, %y: f32, %out: bf16):
    %0 = arith.divf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4x1x96xbf16>
  %r_places = tensor.empty() : tensor<4x1x64xf32>
  %r_start = linalg.fill ins(%zero : f32) outs(%r_places : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %r = linalg.batch_matmul ins(%weights, %v : tensor<4x1x96xbf16>, !k) outs(%r_start : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %rounded_places = tensor.empty() : !q
  %rounded = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<4x1x64xf32>) outs(%rounded_places : !q) {
  ^bb0(%x: f32, %out: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> !q
  util.return %rounded : !q
}

// A sink of each head is an operand.

// CHECK-LABEL: util.func public @sink(
// CHECK-SAME: %[[SINKS:[a-z0-9]+]]: tensor<4xf32>
// CHECK-NOT: tensor.concat
// CHECK: linalg.generic
// CHECK-SAME: %[[SINKS]] : tensor<4x64xbf16>, tensor<4x96x64xbf16>, tensor<4x96x64xbf16>, tensor<4xf32>)
// CHECK-SAME: "mx_attention_decode_
// CHECK-NOT: linalg.batch_matmul
// CHECK: util.return
util.func public @sink(%q: !q, %k: !k, %v: !k, %sinks: tensor<4xf32>) -> !q {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %cap = arith.constant 30.0 : f32
  %kt_places = tensor.empty() : !kt
  %kt = linalg.transpose ins(%k : !k) outs(%kt_places : !kt) permutation = [0, 2, 1]
  %s_places = tensor.empty() : !s
  %s_start = linalg.fill ins(%zero : f32) outs(%s_places : !s) -> !s
  %products = linalg.batch_matmul ins(%q, %kt : !q, !kt) outs(%s_start : !s) -> !s
  %scores = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%products : !s) outs(%s_places : !s) {
  ^bb0(%x: f32, %out: f32):
    %2 = arith.mulf %x, %scale : f32
    linalg.yield %2 : f32
  } -> !s
  %column_places = tensor.empty() : tensor<4x1x1xf32>
  %column = linalg.generic {indexing_maps = [#head, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%sinks : tensor<4xf32>) outs(%column_places : tensor<4x1x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    linalg.yield %x : f32
  } -> tensor<4x1x1xf32>
  %beside = tensor.concat dim(2) %scores, %column : (!s, tensor<4x1x1xf32>) -> tensor<4x1x97xf32>
  %row_places = tensor.empty() : tensor<4x1xf32>
  %wide_places = tensor.empty() : tensor<4x1x97xf32>
  %largest_start = linalg.fill ins(%lowest : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %largest = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%beside : tensor<4x1x97xf32>) outs(%largest_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.maximumf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %powers = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%beside, %largest : tensor<4x1x97xf32>, tensor<4x1xf32>) outs(%wide_places : tensor<4x1x97xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.subf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x1x97xf32>
  %total_start = linalg.fill ins(%zero : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %total = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%powers : tensor<4x1x97xf32>) outs(%total_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.addf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %narrow_places = tensor.empty() : tensor<4x1x97xbf16>
  %wide = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%powers, %total : tensor<4x1x97xf32>, tensor<4x1xf32>) outs(%narrow_places : tensor<4x1x97xbf16>) {
  ^bb0(%x: f32, %y: f32, %out: bf16):
    %0 = arith.divf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4x1x97xbf16>
  %weights = tensor.extract_slice %wide[0, 0, 0] [4, 1, 96] [1, 1, 1] : tensor<4x1x97xbf16> to tensor<4x1x96xbf16>
  %r_places = tensor.empty() : tensor<4x1x64xf32>
  %r_start = linalg.fill ins(%zero : f32) outs(%r_places : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %r = linalg.batch_matmul ins(%weights, %v : tensor<4x1x96xbf16>, !k) outs(%r_start : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %rounded_places = tensor.empty() : !q
  %rounded = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<4x1x64xf32>) outs(%rounded_places : !q) {
  ^bb0(%x: f32, %out: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> !q
  util.return %rounded : !q
}

// What is no softmax: of other numbers, a total that starts at 1, scores themselves, a product, a cap inside of the scale's sum,
// and weights that are used once more.

// CHECK-LABEL: util.func public @total_and_one(
// CHECK-COUNT-2: linalg.batch_matmul
// CHECK: util.return
util.func public @total_and_one(%q: !q, %k: !k, %v: !k) -> !q {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %cap = arith.constant 30.0 : f32
  %kt_places = tensor.empty() : !kt
  %kt = linalg.transpose ins(%k : !k) outs(%kt_places : !kt) permutation = [0, 2, 1]
  %s_places = tensor.empty() : !s
  %s_start = linalg.fill ins(%zero : f32) outs(%s_places : !s) -> !s
  %products = linalg.batch_matmul ins(%q, %kt : !q, !kt) outs(%s_start : !s) -> !s
  %scores = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%products : !s) outs(%s_places : !s) {
  ^bb0(%x: f32, %out: f32):
    %2 = arith.mulf %x, %scale : f32
    linalg.yield %2 : f32
  } -> !s
  %row_places = tensor.empty() : tensor<4x1xf32>
  %wide_places = tensor.empty() : tensor<4x1x96xf32>
  %largest_start = linalg.fill ins(%lowest : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %largest = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%scores : tensor<4x1x96xf32>) outs(%largest_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.maximumf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %powers = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scores, %largest : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%wide_places : tensor<4x1x96xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.subf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x1x96xf32>
  %total_start = linalg.fill ins(%one : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %total = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%powers : tensor<4x1x96xf32>) outs(%total_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.addf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %narrow_places = tensor.empty() : tensor<4x1x96xbf16>
  %weights = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%powers, %total : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%narrow_places : tensor<4x1x96xbf16>) {
  ^bb0(%x: f32, %y: f32, %out: bf16):
    %0 = arith.divf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4x1x96xbf16>
  %r_places = tensor.empty() : tensor<4x1x64xf32>
  %r_start = linalg.fill ins(%zero : f32) outs(%r_places : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %r = linalg.batch_matmul ins(%weights, %v : tensor<4x1x96xbf16>, !k) outs(%r_start : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %rounded_places = tensor.empty() : !q
  %rounded = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<4x1x64xf32>) outs(%rounded_places : !q) {
  ^bb0(%x: f32, %out: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> !q
  util.return %rounded : !q
}

// CHECK-LABEL: util.func public @not_powers(
// CHECK-COUNT-2: linalg.batch_matmul
// CHECK: util.return
util.func public @not_powers(%q: !q, %k: !k, %v: !k) -> !q {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %cap = arith.constant 30.0 : f32
  %kt_places = tensor.empty() : !kt
  %kt = linalg.transpose ins(%k : !k) outs(%kt_places : !kt) permutation = [0, 2, 1]
  %s_places = tensor.empty() : !s
  %s_start = linalg.fill ins(%zero : f32) outs(%s_places : !s) -> !s
  %products = linalg.batch_matmul ins(%q, %kt : !q, !kt) outs(%s_start : !s) -> !s
  %scores = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%products : !s) outs(%s_places : !s) {
  ^bb0(%x: f32, %out: f32):
    %2 = arith.mulf %x, %scale : f32
    linalg.yield %2 : f32
  } -> !s
  %row_places = tensor.empty() : tensor<4x1xf32>
  %wide_places = tensor.empty() : tensor<4x1x96xf32>
  %largest_start = linalg.fill ins(%lowest : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %largest = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%scores : tensor<4x1x96xf32>) outs(%largest_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.maximumf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %powers = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scores, %largest : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%wide_places : tensor<4x1x96xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.subf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x1x96xf32>
  %total_start = linalg.fill ins(%zero : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %total = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%powers : tensor<4x1x96xf32>) outs(%total_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.addf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %narrow_places = tensor.empty() : tensor<4x1x96xbf16>
  %weights = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scores, %total : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%narrow_places : tensor<4x1x96xbf16>) {
  ^bb0(%x: f32, %y: f32, %out: bf16):
    %0 = arith.divf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4x1x96xbf16>
  %r_places = tensor.empty() : tensor<4x1x64xf32>
  %r_start = linalg.fill ins(%zero : f32) outs(%r_places : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %r = linalg.batch_matmul ins(%weights, %v : tensor<4x1x96xbf16>, !k) outs(%r_start : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %rounded_places = tensor.empty() : !q
  %rounded = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<4x1x64xf32>) outs(%rounded_places : !q) {
  ^bb0(%x: f32, %out: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> !q
  util.return %rounded : !q
}

// CHECK-LABEL: util.func public @times_total(
// CHECK-COUNT-2: linalg.batch_matmul
// CHECK: util.return
util.func public @times_total(%q: !q, %k: !k, %v: !k) -> !q {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %cap = arith.constant 30.0 : f32
  %kt_places = tensor.empty() : !kt
  %kt = linalg.transpose ins(%k : !k) outs(%kt_places : !kt) permutation = [0, 2, 1]
  %s_places = tensor.empty() : !s
  %s_start = linalg.fill ins(%zero : f32) outs(%s_places : !s) -> !s
  %products = linalg.batch_matmul ins(%q, %kt : !q, !kt) outs(%s_start : !s) -> !s
  %scores = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%products : !s) outs(%s_places : !s) {
  ^bb0(%x: f32, %out: f32):
    %2 = arith.mulf %x, %scale : f32
    linalg.yield %2 : f32
  } -> !s
  %row_places = tensor.empty() : tensor<4x1xf32>
  %wide_places = tensor.empty() : tensor<4x1x96xf32>
  %largest_start = linalg.fill ins(%lowest : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %largest = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%scores : tensor<4x1x96xf32>) outs(%largest_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.maximumf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %powers = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scores, %largest : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%wide_places : tensor<4x1x96xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.subf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x1x96xf32>
  %total_start = linalg.fill ins(%zero : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %total = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%powers : tensor<4x1x96xf32>) outs(%total_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.addf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %narrow_places = tensor.empty() : tensor<4x1x96xbf16>
  %weights = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%powers, %total : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%narrow_places : tensor<4x1x96xbf16>) {
  ^bb0(%x: f32, %y: f32, %out: bf16):
    %0 = arith.mulf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4x1x96xbf16>
  %r_places = tensor.empty() : tensor<4x1x64xf32>
  %r_start = linalg.fill ins(%zero : f32) outs(%r_places : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %r = linalg.batch_matmul ins(%weights, %v : tensor<4x1x96xbf16>, !k) outs(%r_start : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %rounded_places = tensor.empty() : !q
  %rounded = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<4x1x64xf32>) outs(%rounded_places : !q) {
  ^bb0(%x: f32, %out: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> !q
  util.return %rounded : !q
}

// CHECK-LABEL: util.func public @largest_as_total(
// CHECK-COUNT-2: linalg.batch_matmul
// CHECK: util.return
util.func public @largest_as_total(%q: !q, %k: !k, %v: !k) -> !q {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %cap = arith.constant 30.0 : f32
  %kt_places = tensor.empty() : !kt
  %kt = linalg.transpose ins(%k : !k) outs(%kt_places : !kt) permutation = [0, 2, 1]
  %s_places = tensor.empty() : !s
  %s_start = linalg.fill ins(%zero : f32) outs(%s_places : !s) -> !s
  %products = linalg.batch_matmul ins(%q, %kt : !q, !kt) outs(%s_start : !s) -> !s
  %scores = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%products : !s) outs(%s_places : !s) {
  ^bb0(%x: f32, %out: f32):
    %2 = arith.mulf %x, %scale : f32
    linalg.yield %2 : f32
  } -> !s
  %row_places = tensor.empty() : tensor<4x1xf32>
  %wide_places = tensor.empty() : tensor<4x1x96xf32>
  %largest_start = linalg.fill ins(%lowest : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %largest = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%scores : tensor<4x1x96xf32>) outs(%largest_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.maximumf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %powers = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scores, %largest : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%wide_places : tensor<4x1x96xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.subf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x1x96xf32>
  %total_start = linalg.fill ins(%zero : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %total = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%powers : tensor<4x1x96xf32>) outs(%total_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.addf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %narrow_places = tensor.empty() : tensor<4x1x96xbf16>
  %weights = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%powers, %largest : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%narrow_places : tensor<4x1x96xbf16>) {
  ^bb0(%x: f32, %y: f32, %out: bf16):
    %0 = arith.divf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4x1x96xbf16>
  %r_places = tensor.empty() : tensor<4x1x64xf32>
  %r_start = linalg.fill ins(%zero : f32) outs(%r_places : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %r = linalg.batch_matmul ins(%weights, %v : tensor<4x1x96xbf16>, !k) outs(%r_start : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %rounded_places = tensor.empty() : !q
  %rounded = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<4x1x64xf32>) outs(%rounded_places : !q) {
  ^bb0(%x: f32, %out: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> !q
  util.return %rounded : !q
}

// CHECK-LABEL: util.func public @shifted(
// CHECK-COUNT-2: linalg.batch_matmul
// CHECK: util.return
util.func public @shifted(%q: !q, %k: !k, %v: !k) -> !q {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %cap = arith.constant 30.0 : f32
  %kt_places = tensor.empty() : !kt
  %kt = linalg.transpose ins(%k : !k) outs(%kt_places : !kt) permutation = [0, 2, 1]
  %s_places = tensor.empty() : !s
  %s_start = linalg.fill ins(%zero : f32) outs(%s_places : !s) -> !s
  %products = linalg.batch_matmul ins(%q, %kt : !q, !kt) outs(%s_start : !s) -> !s
  %scores = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%products : !s) outs(%s_places : !s) {
  ^bb0(%x: f32, %out: f32):
    %0 = math.tanh %x : f32
    %1 = arith.addf %0, %one : f32
    %2 = arith.mulf %1, %cap : f32
    linalg.yield %2 : f32
  } -> !s
  %row_places = tensor.empty() : tensor<4x1xf32>
  %wide_places = tensor.empty() : tensor<4x1x96xf32>
  %largest_start = linalg.fill ins(%lowest : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %largest = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%scores : tensor<4x1x96xf32>) outs(%largest_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.maximumf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %powers = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scores, %largest : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%wide_places : tensor<4x1x96xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.subf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x1x96xf32>
  %total_start = linalg.fill ins(%zero : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %total = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%powers : tensor<4x1x96xf32>) outs(%total_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.addf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %narrow_places = tensor.empty() : tensor<4x1x96xbf16>
  %weights = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%powers, %total : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%narrow_places : tensor<4x1x96xbf16>) {
  ^bb0(%x: f32, %y: f32, %out: bf16):
    %0 = arith.divf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4x1x96xbf16>
  %r_places = tensor.empty() : tensor<4x1x64xf32>
  %r_start = linalg.fill ins(%zero : f32) outs(%r_places : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %r = linalg.batch_matmul ins(%weights, %v : tensor<4x1x96xbf16>, !k) outs(%r_start : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %rounded_places = tensor.empty() : !q
  %rounded = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<4x1x64xf32>) outs(%rounded_places : !q) {
  ^bb0(%x: f32, %out: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> !q
  util.return %rounded : !q
}

// CHECK-LABEL: util.func public @sines(
// CHECK-COUNT-2: linalg.batch_matmul
// CHECK: util.return
util.func public @sines(%q: !q, %k: !k, %v: !k) -> !q {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %cap = arith.constant 30.0 : f32
  %kt_places = tensor.empty() : !kt
  %kt = linalg.transpose ins(%k : !k) outs(%kt_places : !kt) permutation = [0, 2, 1]
  %s_places = tensor.empty() : !s
  %s_start = linalg.fill ins(%zero : f32) outs(%s_places : !s) -> !s
  %products = linalg.batch_matmul ins(%q, %kt : !q, !kt) outs(%s_start : !s) -> !s
  %scores = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%products : !s) outs(%s_places : !s) {
  ^bb0(%x: f32, %out: f32):
    %2 = math.sin %x : f32
    linalg.yield %2 : f32
  } -> !s
  %row_places = tensor.empty() : tensor<4x1xf32>
  %wide_places = tensor.empty() : tensor<4x1x96xf32>
  %largest_start = linalg.fill ins(%lowest : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %largest = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%scores : tensor<4x1x96xf32>) outs(%largest_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.maximumf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %powers = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scores, %largest : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%wide_places : tensor<4x1x96xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.subf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x1x96xf32>
  %total_start = linalg.fill ins(%zero : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %total = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%powers : tensor<4x1x96xf32>) outs(%total_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.addf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %narrow_places = tensor.empty() : tensor<4x1x96xbf16>
  %weights = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%powers, %total : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%narrow_places : tensor<4x1x96xbf16>) {
  ^bb0(%x: f32, %y: f32, %out: bf16):
    %0 = arith.divf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4x1x96xbf16>
  %r_places = tensor.empty() : tensor<4x1x64xf32>
  %r_start = linalg.fill ins(%zero : f32) outs(%r_places : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %r = linalg.batch_matmul ins(%weights, %v : tensor<4x1x96xbf16>, !k) outs(%r_start : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %rounded_places = tensor.empty() : !q
  %rounded = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<4x1x64xf32>) outs(%rounded_places : !q) {
  ^bb0(%x: f32, %out: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> !q
  util.return %rounded : !q
}

// CHECK-LABEL: util.func public @weights_kept(
// CHECK-COUNT-2: linalg.batch_matmul
// CHECK: util.return
util.func public @weights_kept(%q: !q, %k: !k, %v: !k) -> (!q, tensor<4x1x96xbf16>) {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.125 : f32
  %cap = arith.constant 30.0 : f32
  %kt_places = tensor.empty() : !kt
  %kt = linalg.transpose ins(%k : !k) outs(%kt_places : !kt) permutation = [0, 2, 1]
  %s_places = tensor.empty() : !s
  %s_start = linalg.fill ins(%zero : f32) outs(%s_places : !s) -> !s
  %products = linalg.batch_matmul ins(%q, %kt : !q, !kt) outs(%s_start : !s) -> !s
  %scores = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%products : !s) outs(%s_places : !s) {
  ^bb0(%x: f32, %out: f32):
    %2 = arith.mulf %x, %scale : f32
    linalg.yield %2 : f32
  } -> !s
  %row_places = tensor.empty() : tensor<4x1xf32>
  %wide_places = tensor.empty() : tensor<4x1x96xf32>
  %largest_start = linalg.fill ins(%lowest : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %largest = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%scores : tensor<4x1x96xf32>) outs(%largest_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.maximumf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %powers = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scores, %largest : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%wide_places : tensor<4x1x96xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %0 = arith.subf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x1x96xf32>
  %total_start = linalg.fill ins(%zero : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %total = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%powers : tensor<4x1x96xf32>) outs(%total_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.addf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %narrow_places = tensor.empty() : tensor<4x1x96xbf16>
  %weights = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%powers, %total : tensor<4x1x96xf32>, tensor<4x1xf32>) outs(%narrow_places : tensor<4x1x96xbf16>) {
  ^bb0(%x: f32, %y: f32, %out: bf16):
    %0 = arith.divf %x, %y : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<4x1x96xbf16>
  %r_places = tensor.empty() : tensor<4x1x64xf32>
  %r_start = linalg.fill ins(%zero : f32) outs(%r_places : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %r = linalg.batch_matmul ins(%weights, %v : tensor<4x1x96xbf16>, !k) outs(%r_start : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %rounded_places = tensor.empty() : !q
  %rounded = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<4x1x64xf32>) outs(%rounded_places : !q) {
  ^bb0(%x: f32, %out: bf16):
    %0 = arith.truncf %x : f32 to bf16
    linalg.yield %0 : bf16
  } -> !q
  util.return %rounded, %weights : !q, tensor<4x1x96xbf16>
}

// A product, its activation by powers, and another product: no softmax. Ids may come from one.
// CHECK-LABEL: util.func public @activated(
// CHECK-COUNT-2: linalg.batch_matmul
// CHECK: util.return
util.func public @activated(%q: !q, %kt: !kt, %v: !k, %biases: tensor<8xf32>) -> tensor<4x1x64xf32> {
  %zero = arith.constant 0.0 : f32
  %s_places = tensor.empty() : !s
  %s_start = linalg.fill ins(%zero : f32) outs(%s_places : !s) -> !s
  %products = linalg.batch_matmul ins(%q, %kt : !q, !kt) outs(%s_start : !s) -> !s
  %row_places = tensor.empty() : tensor<4x1xf32>
  %total_start = linalg.fill ins(%zero : f32) outs(%row_places : tensor<4x1xf32>) -> tensor<4x1xf32>
  %total = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%products : !s) outs(%total_start : tensor<4x1xf32>) {
  ^bb0(%x: f32, %out: f32):
    %0 = arith.addf %x, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %id_places = tensor.empty() : tensor<4x1xi64>
  %ids = linalg.generic {indexing_maps = [#pair, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%total : tensor<4x1xf32>) outs(%id_places : tensor<4x1xi64>) {
  ^bb0(%x: f32, %out: i64):
    %0 = arith.fptosi %x : f32 to i64
    linalg.yield %0 : i64
  } -> tensor<4x1xi64>
  %bias = linalg.generic {indexing_maps = [#pair, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<4x1xi64>) outs(%row_places : tensor<4x1xf32>) {
  ^bb0(%id: i64, %out: f32):
    %0 = arith.index_cast %id : i64 to index
    %1 = tensor.extract %biases[%0] : tensor<8xf32>
    linalg.yield %1 : f32
  } -> tensor<4x1xf32>
  %narrow_places = tensor.empty() : tensor<4x1x96xbf16>
  %weights = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%products, %bias : !s, tensor<4x1xf32>) outs(%narrow_places : tensor<4x1x96xbf16>) {
  ^bb0(%x: f32, %y: f32, %out: bf16):
    %0 = math.exp %x : f32
    %1 = arith.addf %0, %y : f32
    %2 = arith.divf %x, %1 : f32
    %3 = arith.truncf %2 : f32 to bf16
    linalg.yield %3 : bf16
  } -> tensor<4x1x96xbf16>
  %r_places = tensor.empty() : tensor<4x1x64xf32>
  %r_start = linalg.fill ins(%zero : f32) outs(%r_places : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  %r = linalg.batch_matmul ins(%weights, %v : tensor<4x1x96xbf16>, !k) outs(%r_start : tensor<4x1x64xf32>) -> tensor<4x1x64xf32>
  util.return %r : tensor<4x1x64xf32>
}
