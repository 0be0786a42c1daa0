// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-take-linears)' | filecheck %s
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-take-linears{ukernels=none})' | filecheck %s --check-prefix=OFF

#same = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (n)>
#column = affine_map<(m, n) -> (m)>
#x = affine_map<(m, n, k) -> (m, k)>
#w = affine_map<(m, n, k) -> (n, k)>
#y = affine_map<(m, n, k) -> (m, n)>
#cube = affine_map<(b, m, n) -> (b, m, n)>

// Bias and rounding become part of the kernel; weights are read as they are stored. 320 fragments of 16 columns are two
// for each workgroup: no compute unit gets two workgroups.

// CHECK-LABEL: util.func public @projected(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<16x2880xbf16>, %[[W:[a-z0-9]+]]: tensor<5120x2880xbf16>, %[[B:[a-z0-9]+]]: tensor<5120xbf16>
// CHECK-NOT: linalg.transpose
// CHECK: %[[ROWS:.+]] = util.optimization_barrier %[[X]]
// CHECK: %[[TILES:.+]] = flow.dispatch.region -> (tensor<16x160x32xbf16>)
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[ROWS]], %[[W]], %[[B]] : tensor<16x2880xbf16>, tensor<5120x2880xbf16>, tensor<5120xbf16>)
// CHECK-SAME: iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_linear_bf16_m16_n5120_k2880_by32_bias_bf16_to_bf16"
// CHECK-SAME: mxcomp.kernel = "
// CHECK: %[[R:.+]] = tensor.collapse_shape %[[TILES]] {{\[\[}}0], [1, 2]]
// CHECK-NOT: linalg.matmul
// CHECK: util.return %[[R]]
// OFF-LABEL: util.func public @projected(
// OFF: linalg.matmul
util.func public @projected(%x: tensor<16x2880xbf16>, %w: tensor<5120x2880xbf16>, %b: tensor<5120xbf16>) -> tensor<16x5120xbf16> {
  %e = tensor.empty() : tensor<2880x5120xbf16>
  %t = linalg.transpose ins(%w : tensor<5120x2880xbf16>) outs(%e : tensor<2880x5120xbf16>) permutation = [1, 0]
  %zero = arith.constant 0.0 : f32
  %f = tensor.empty() : tensor<16x5120xf32>
  %z = linalg.fill ins(%zero : f32) outs(%f : tensor<16x5120xf32>) -> tensor<16x5120xf32>
  %p = linalg.matmul ins(%x, %t : tensor<16x2880xbf16>, tensor<2880x5120xbf16>) outs(%z : tensor<16x5120xf32>) -> tensor<16x5120xf32>
  %s = linalg.generic {indexing_maps = [#same, #row, #same], iterator_types = ["parallel", "parallel"]}
      ins(%p, %b : tensor<16x5120xf32>, tensor<5120xbf16>) outs(%f : tensor<16x5120xf32>) {
  ^bb0(%a: f32, %c: bf16, %o: f32):
    %0 = arith.extf %c : bf16 to f32
    %1 = arith.addf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<16x5120xf32>
  %g = tensor.empty() : tensor<16x5120xbf16>
  %r = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<16x5120xf32>) outs(%g : tensor<16x5120xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.truncf %a : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<16x5120xbf16>
  util.return %r : tensor<16x5120xbf16>
}

// Of a single row, as IREE's importer writes it; what is added is no bias, and its kernel's result is f32.

// CHECK-LABEL: util.func public @row(
// CHECK: %[[TILES:.+]] = flow.dispatch.region -> (tensor<1x32x4xf32>)
// CHECK: "mx_linear_f16_m1_n128_k96_by4_to_f32"
// CHECK: %[[FLAT:.+]] = tensor.collapse_shape %[[TILES]] {{\[\[}}0, 1, 2]]
// CHECK: %[[P:.+]] = tensor.expand_shape %[[FLAT]] {{.*}} into tensor<1x128xf32>
// CHECK: linalg.generic {{.*}} ins(%[[P]], %{{.+}} : tensor<1x128xf32>, tensor<1xf32>)
util.func public @row(%x: tensor<1x96xf16>, %w: tensor<128x96xf16>, %b: tensor<1xf32>) -> tensor<1x128xf32> {
  %e = tensor.empty() : tensor<96x128xf16>
  %t = linalg.transpose ins(%w : tensor<128x96xf16>) outs(%e : tensor<96x128xf16>) permutation = [1, 0]
  %xe = tensor.empty() : tensor<1x96xf32>
  %xf = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<1x96xf16>) outs(%xe : tensor<1x96xf32>) {
  ^bb0(%a: f16, %o: f32):
    %0 = arith.extf %a : f16 to f32
    linalg.yield %0 : f32
  } -> tensor<1x96xf32>
  %we = tensor.empty() : tensor<96x128xf32>
  %wf = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%t : tensor<96x128xf16>) outs(%we : tensor<96x128xf32>) {
  ^bb0(%a: f16, %o: f32):
    %0 = arith.extf %a : f16 to f32
    linalg.yield %0 : f32
  } -> tensor<96x128xf32>
  %zero = arith.constant 0.0 : f32
  %f = tensor.empty() : tensor<1x128xf32>
  %z = linalg.fill ins(%zero : f32) outs(%f : tensor<1x128xf32>) -> tensor<1x128xf32>
  %p = linalg.matmul ins(%xf, %wf : tensor<1x96xf32>, tensor<96x128xf32>) outs(%z : tensor<1x128xf32>) -> tensor<1x128xf32>
  %s = linalg.generic {indexing_maps = [#same, #column, #same], iterator_types = ["parallel", "parallel"]}
      ins(%p, %b : tensor<1x128xf32>, tensor<1xf32>) outs(%f : tensor<1x128xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %1 = arith.addf %a, %c : f32
    linalg.yield %1 : f32
  } -> tensor<1x128xf32>
  util.return %s : tensor<1x128xf32>
}

// Products of the same rows are one; what is behind the rounding of the third, a residual of three dimensions, is not the
// others', so that it is a dispatch by itself.

// CHECK-LABEL: util.func public @several(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<1x96xf16>, %[[Q:[a-z0-9]+]]: tensor<128x96xf16>, %[[K:[a-z0-9]+]]: tensor<32x96xf16>, %[[O:[a-z0-9]+]]: tensor<128x96xf16>, %[[R:[a-z0-9]+]]: tensor<1x1x128xf16>
// CHECK: %[[BOTH:.+]] = flow.dispatch.region -> (tensor<1x40x4xf16>)
// CHECK: linalg.generic {{.+}} ins(%{{.+}}, %[[Q]], %[[K]] : {{.+}}"mx_linear_f16_m1_n128_32_k96_by4_to_f16"
// CHECK: %[[FLAT:.+]] = tensor.collapse_shape %[[BOTH]]
// CHECK-DAG: tensor.extract_slice %[[FLAT]][0] [128] [1]
// CHECK-DAG: tensor.extract_slice %[[FLAT]][128] [32] [1]
// CHECK: %[[ROW:.+]] = tensor.collapse_shape %[[R]]
// CHECK: flow.dispatch.region -> (tensor<1x32x4xf16>)
// CHECK: linalg.generic {{.+}} ins(%{{.+}}, %[[O]], %[[ROW]] : {{.+}}"mx_linear_f16_m1_n128_k96_by4_residual_to_f16"
// CHECK-NOT: linalg.matmul
// CHECK: util.return
util.func public @several(%x: tensor<1x96xf16>, %q: tensor<128x96xf16>, %k: tensor<32x96xf16>, %o: tensor<128x96xf16>, %r: tensor<1x1x128xf16>)
    -> (tensor<1x128xf16>, tensor<1x32xf16>, tensor<1x1x128xf16>) {
  %zero = arith.constant 0.0 : f32
  %f = tensor.empty() : tensor<1x128xf32>
  %fk = tensor.empty() : tensor<1x32xf32>
  %h = tensor.empty() : tensor<1x128xf16>
  %hk = tensor.empty() : tensor<1x32xf16>
  %z = linalg.fill ins(%zero : f32) outs(%f : tensor<1x128xf32>) -> tensor<1x128xf32>
  %zk = linalg.fill ins(%zero : f32) outs(%fk : tensor<1x32xf32>) -> tensor<1x32xf32>
  %pq = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %q : tensor<1x96xf16>, tensor<128x96xf16>) outs(%z : tensor<1x128xf32>) -> tensor<1x128xf32>
  %pk = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %k : tensor<1x96xf16>, tensor<32x96xf16>) outs(%zk : tensor<1x32xf32>) -> tensor<1x32xf32>
  %po = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %o : tensor<1x96xf16>, tensor<128x96xf16>) outs(%z : tensor<1x128xf32>) -> tensor<1x128xf32>
  %rq = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]} ins(%pq : tensor<1x128xf32>) outs(%h : tensor<1x128xf16>) {
  ^bb0(%a: f32, %b: f16):
    %0 = arith.truncf %a : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<1x128xf16>
  %rk = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]} ins(%pk : tensor<1x32xf32>) outs(%hk : tensor<1x32xf16>) {
  ^bb0(%a: f32, %b: f16):
    %0 = arith.truncf %a : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<1x32xf16>
  %ro = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]} ins(%po : tensor<1x128xf32>) outs(%h : tensor<1x128xf16>) {
  ^bb0(%a: f32, %b: f16):
    %0 = arith.truncf %a : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<1x128xf16>
  %e3 = tensor.expand_shape %ro [[0, 1], [2]] output_shape [1, 1, 128] : tensor<1x128xf16> into tensor<1x1x128xf16>
  %h3 = tensor.empty() : tensor<1x1x128xf16>
  %s = linalg.generic {indexing_maps = [#cube, #cube, #cube], iterator_types = ["parallel", "parallel", "parallel"]} ins(%r, %e3 : tensor<1x1x128xf16>, tensor<1x1x128xf16>) outs(%h3 : tensor<1x1x128xf16>) {
  ^bb0(%a: f16, %b: f16, %c: f16):
    %0 = arith.addf %a, %b : f16
    linalg.yield %0 : f16
  } -> tensor<1x1x128xf16>
  util.return %rq, %rk, %s : tensor<1x128xf16>, tensor<1x32xf16>, tensor<1x1x128xf16>
}

// The second product is not joined, whose weights are only known behind the first, nor is what is subtracted a residual.

// CHECK-LABEL: util.func public @apart(
// CHECK: "mx_linear_f16_m1_n128_k128_by4_to_f16"
// CHECK: linalg.generic
// CHECK: arith.subf
// CHECK: "mx_linear_f16_m1_n128_k128_by4_to_f32"
util.func public @apart(%x: tensor<1x128xf16>, %q: tensor<128x128xf16>, %r: tensor<1x128xf16>, %k: tensor<128x128xf16>) -> (tensor<1x128xf16>, tensor<1x128xf32>) {
  %zero = arith.constant 0.0 : f32
  %f = tensor.empty() : tensor<1x128xf32>
  %h = tensor.empty() : tensor<1x128xf16>
  %z = linalg.fill ins(%zero : f32) outs(%f : tensor<1x128xf32>) -> tensor<1x128xf32>
  %pq = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %q : tensor<1x128xf16>, tensor<128x128xf16>) outs(%z : tensor<1x128xf32>) -> tensor<1x128xf32>
  %rq = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]} ins(%pq : tensor<1x128xf32>) outs(%h : tensor<1x128xf16>) {
  ^bb0(%a: f32, %b: f16):
    %0 = arith.truncf %a : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<1x128xf16>
  %s = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]} ins(%r, %rq : tensor<1x128xf16>, tensor<1x128xf16>) outs(%h : tensor<1x128xf16>) {
  ^bb0(%a: f16, %b: f16, %c: f16):
    %0 = arith.subf %a, %b : f16
    linalg.yield %0 : f16
  } -> tensor<1x128xf16>
  %later = util.optimization_barrier %k : tensor<128x128xf16>
  %pk = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %later : tensor<1x128xf16>, tensor<128x128xf16>) outs(%z : tensor<1x128xf32>) -> tensor<1x128xf32>
  util.return %s, %pk : tensor<1x128xf16>, tensor<1x128xf32>
}

// These stay: sums that begin with something, weights that are computed, too many rows, columns that are no fragments,
// rows of no whole steps, and more columns than 64 rows are faster for.

// CHECK-LABEL: util.func public @begun(
// CHECK: linalg.matmul
util.func public @begun(%x: tensor<4x64xbf16>, %w: tensor<64x64xbf16>, %z: tensor<4x64xf32>) -> tensor<4x64xf32> {
  %e = tensor.empty() : tensor<64x64xbf16>
  %t = linalg.transpose ins(%w : tensor<64x64xbf16>) outs(%e : tensor<64x64xbf16>) permutation = [1, 0]
  %p = linalg.matmul ins(%x, %t : tensor<4x64xbf16>, tensor<64x64xbf16>) outs(%z : tensor<4x64xf32>) -> tensor<4x64xf32>
  util.return %p : tensor<4x64xf32>
}

// CHECK-LABEL: util.func public @computed(
// CHECK: linalg.matmul
util.func public @computed(%x: tensor<4x64xbf16>, %w: tensor<64x64xf32>) -> tensor<4x64xf32> {
  %c = tensor.empty() : tensor<64x64xbf16>
  %n = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<64x64xf32>) outs(%c : tensor<64x64xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.truncf %a : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<64x64xbf16>
  %e = tensor.empty() : tensor<64x64xbf16>
  %t = linalg.transpose ins(%n : tensor<64x64xbf16>) outs(%e : tensor<64x64xbf16>) permutation = [1, 0]
  %zero = arith.constant 0.0 : f32
  %f = tensor.empty() : tensor<4x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%f : tensor<4x64xf32>) -> tensor<4x64xf32>
  %p = linalg.matmul ins(%x, %t : tensor<4x64xbf16>, tensor<64x64xbf16>) outs(%z : tensor<4x64xf32>) -> tensor<4x64xf32>
  util.return %p : tensor<4x64xf32>
}

// CHECK-LABEL: util.func public @sizes(
// CHECK-COUNT-4: linalg.matmul
util.func public @sizes(
    %x: tensor<65x64xbf16>, %w: tensor<64x64xbf16>, %x1: tensor<4x64xbf16>, %w1: tensor<40x64xbf16>,
    %x2: tensor<4x48xbf16>, %w2: tensor<64x48xbf16>, %x3: tensor<64x64xbf16>, %w3: tensor<32768x64xbf16>)
    -> (tensor<65x64xf32>, tensor<4x40xf32>, tensor<4x64xf32>, tensor<64x32768xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xbf16>
  %t = linalg.transpose ins(%w : tensor<64x64xbf16>) outs(%e : tensor<64x64xbf16>) permutation = [1, 0]
  %f = tensor.empty() : tensor<65x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%f : tensor<65x64xf32>) -> tensor<65x64xf32>
  %p = linalg.matmul ins(%x, %t : tensor<65x64xbf16>, tensor<64x64xbf16>) outs(%z : tensor<65x64xf32>) -> tensor<65x64xf32>
  %e1 = tensor.empty() : tensor<64x40xbf16>
  %t1 = linalg.transpose ins(%w1 : tensor<40x64xbf16>) outs(%e1 : tensor<64x40xbf16>) permutation = [1, 0]
  %f1 = tensor.empty() : tensor<4x40xf32>
  %z1 = linalg.fill ins(%zero : f32) outs(%f1 : tensor<4x40xf32>) -> tensor<4x40xf32>
  %p1 = linalg.matmul ins(%x1, %t1 : tensor<4x64xbf16>, tensor<64x40xbf16>) outs(%z1 : tensor<4x40xf32>) -> tensor<4x40xf32>
  %e2 = tensor.empty() : tensor<48x64xbf16>
  %t2 = linalg.transpose ins(%w2 : tensor<64x48xbf16>) outs(%e2 : tensor<48x64xbf16>) permutation = [1, 0]
  %f2 = tensor.empty() : tensor<4x64xf32>
  %z2 = linalg.fill ins(%zero : f32) outs(%f2 : tensor<4x64xf32>) -> tensor<4x64xf32>
  %p2 = linalg.matmul ins(%x2, %t2 : tensor<4x48xbf16>, tensor<48x64xbf16>) outs(%z2 : tensor<4x64xf32>) -> tensor<4x64xf32>
  %e3 = tensor.empty() : tensor<64x32768xbf16>
  %t3 = linalg.transpose ins(%w3 : tensor<32768x64xbf16>) outs(%e3 : tensor<64x32768xbf16>) permutation = [1, 0]
  %f3 = tensor.empty() : tensor<64x32768xf32>
  %z3 = linalg.fill ins(%zero : f32) outs(%f3 : tensor<64x32768xf32>) -> tensor<64x32768xf32>
  %p3 = linalg.matmul ins(%x3, %t3 : tensor<64x64xbf16>, tensor<64x32768xbf16>) outs(%z3 : tensor<64x32768xf32>) -> tensor<64x32768xf32>
  util.return %p, %p1, %p2, %p3 : tensor<65x64xf32>, tensor<4x40xf32>, tensor<4x64xf32>, tensor<64x32768xf32>
}

// What the first product makes is the residual of the second.

// CHECK-LABEL: util.func public @one_behind_another(
// CHECK: flow.dispatch.region -> (tensor<1x32x4xf16>)
// CHECK: "mx_linear_f16_m1_n128_k96_by4_to_f16"
// CHECK: %[[FIRST:.+]] = tensor.expand_shape
// CHECK: flow.dispatch.region -> (tensor<1x32x4xf16>)
// CHECK: linalg.generic {{.+}} ins(%{{.+}}, %{{.+}}, %[[FIRST]] : {{.+}}"mx_linear_f16_m1_n128_k96_by4_residual_to_f16"
// CHECK-NOT: linalg.matmul
// CHECK: util.return
util.func public @one_behind_another(%x: tensor<1x96xf16>, %q: tensor<128x96xf16>, %y: tensor<1x96xf16>, %o: tensor<128x96xf16>) -> (tensor<1x128xf16>, tensor<1x128xf16>) {
  %zero = arith.constant 0.0 : f32
  %f = tensor.empty() : tensor<1x128xf32>
  %h = tensor.empty() : tensor<1x128xf16>
  %z = linalg.fill ins(%zero : f32) outs(%f : tensor<1x128xf32>) -> tensor<1x128xf32>
  %pq = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %q : tensor<1x96xf16>, tensor<128x96xf16>) outs(%z : tensor<1x128xf32>) -> tensor<1x128xf32>
  %rq = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]} ins(%pq : tensor<1x128xf32>) outs(%h : tensor<1x128xf16>) {
  ^bb0(%a: f32, %b: f16):
    %0 = arith.truncf %a : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<1x128xf16>
  %po = linalg.matmul indexing_maps = [#x, #w, #y] ins(%y, %o : tensor<1x96xf16>, tensor<128x96xf16>) outs(%z : tensor<1x128xf32>) -> tensor<1x128xf32>
  %ro = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]} ins(%po : tensor<1x128xf32>) outs(%h : tensor<1x128xf16>) {
  ^bb0(%a: f32, %b: f16):
    %0 = arith.truncf %a : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<1x128xf16>
  %s = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]} ins(%rq, %ro : tensor<1x128xf16>, tensor<1x128xf16>) outs(%h : tensor<1x128xf16>) {
  ^bb0(%a: f16, %b: f16, %c: f16):
    %0 = arith.addf %a, %b : f16
    linalg.yield %0 : f16
  } -> tensor<1x128xf16>
  util.return %s, %rq : tensor<1x128xf16>, tensor<1x128xf16>
}

// A residual that is added in a norm's dispatch stays there.

// CHECK-LABEL: util.func public @added_in_a_norm(
// CHECK: %[[TILES:.+]] = flow.dispatch.region -> (tensor<1x32x4xf16>)
// CHECK: "mx_linear_f16_m1_n128_k96_by4_to_f16"
// CHECK: %[[R:.+]] = tensor.expand_shape
// CHECK: flow.dispatch.region -> (tensor<1x128xf16>)
// CHECK-NOT: flow.dispatch.region
// CHECK: linalg.generic {{.*}} ins(%[[R]], %{{.+}} : tensor<1x128xf16>, tensor<1x128xf16>)
util.func public @added_in_a_norm(%x: tensor<1x96xf16>, %w: tensor<128x96xf16>, %y: tensor<1x128xf16>) -> tensor<1x128xf16> {
  %zero = arith.constant 0.0 : f32
  %f = tensor.empty() : tensor<1x128xf32>
  %h = tensor.empty() : tensor<1x128xf16>
  %z = linalg.fill ins(%zero : f32) outs(%f : tensor<1x128xf32>) -> tensor<1x128xf32>
  %p = linalg.matmul indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<1x96xf16>, tensor<128x96xf16>) outs(%z : tensor<1x128xf32>) -> tensor<1x128xf32>
  %r = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<1x128xf32>) outs(%h : tensor<1x128xf16>) {
  ^bb0(%a: f32, %b: f16):
    %0 = arith.truncf %a : f32 to f16
    linalg.yield %0 : f16
  } -> tensor<1x128xf16>
  %n = flow.dispatch.region -> (tensor<1x128xf16>) {
    %s = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]} ins(%r, %y : tensor<1x128xf16>, tensor<1x128xf16>) outs(%h : tensor<1x128xf16>) {
    ^bb0(%a: f16, %b: f16, %c: f16):
      %0 = arith.addf %a, %b : f16
      linalg.yield %0 : f16
    } -> tensor<1x128xf16>
    flow.return %s : tensor<1x128xf16>
  }
  util.return %n : tensor<1x128xf16>
}
