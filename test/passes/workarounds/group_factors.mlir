// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-group-factors)' | filecheck %s

#x = affine_map<(m, n, k, b) -> (m, k, b)>
#y = affine_map<(m, n, k, b) -> (n, k, b)>
#xs = affine_map<(m, n, k, b) -> (m, k)>
#ys = affine_map<(m, n, k, b) -> (n)>
#out = affine_map<(m, n, k, b) -> (m, n)>

// CHECK-LABEL: util.func public @scales_behind(
// CHECK: ^bb0(%[[X:.+]]: f8E4M3FN, %[[Y:.+]]: f8E4M3FN, %[[XS:.+]]: f32, %[[YS:.+]]: f32, %{{.+}}: f32):
// CHECK: %[[X32:.+]] = arith.extf %[[X]]
// CHECK: %[[Y32:.+]] = arith.extf %[[Y]]
// CHECK-DAG: %[[A:.+]] = arith.mulf %[[X32]], %[[XS]] : f32
// CHECK-DAG: %[[B:.+]] = arith.mulf %[[Y32]], %[[YS]] : f32
// CHECK: %[[P:.+]] = arith.mulf %[[A]], %[[B]] : f32
// CHECK: arith.addf %{{.+}}, %[[P]] : f32
util.func @scales_behind(%x: tensor<8x4x32xf8E4M3FN>, %y: tensor<16x4x32xf8E4M3FN>, %xs: tensor<8x4xf32>, %ys: tensor<16xf32>,
    %init: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %r = linalg.generic {indexing_maps = [#x, #y, #xs, #ys, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %y, %xs, %ys : tensor<8x4x32xf8E4M3FN>, tensor<16x4x32xf8E4M3FN>, tensor<8x4xf32>, tensor<16xf32>)
      outs(%init : tensor<8x16xf32>) {
  ^bb0(%i: f8E4M3FN, %j: f8E4M3FN, %u: f32, %v: f32, %sum: f32):
    %a = arith.extf %i : f8E4M3FN to f32
    %b = arith.extf %j : f8E4M3FN to f32
    %0 = arith.mulf %a, %b : f32
    %1 = arith.mulf %0, %u : f32
    %2 = arith.mulf %1, %v : f32
    %3 = arith.addf %sum, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<8x16xf32>
  util.return %r : tensor<8x16xf32>
}

// Nothing is added up, and two factors.
// CHECK-LABEL: util.func public @others(
// CHECK: %[[P:.+]] = arith.mulf %{{.+}}, %{{.+}} : f32
// CHECK-NEXT: %[[Q:.+]] = arith.mulf %[[P]], %{{.+}} : f32
// CHECK-NEXT: arith.addf %[[Q]]
// CHECK: %[[P:.+]] = arith.mulf %[[I:.+]], %[[I]] : f32
// CHECK-NEXT: arith.addf %{{.+}}, %[[P]]
util.func @others(%x: tensor<8x4xf32>, %init: tensor<8xf32>) -> (tensor<8x4xf32>, tensor<8xf32>) {
  %id = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m, k)>],
                        iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x4xf32>) outs(%x : tensor<8x4xf32>) {
  ^bb0(%i: f32, %o: f32):
    %0 = arith.mulf %i, %i : f32
    %1 = arith.mulf %0, %i : f32
    %2 = arith.addf %1, %o : f32
    linalg.yield %2 : f32
  } -> tensor<8x4xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>],
                         iterator_types = ["parallel", "reduction"]} ins(%x : tensor<8x4xf32>) outs(%init : tensor<8xf32>) {
  ^bb0(%i: f32, %o: f32):
    %0 = arith.mulf %i, %i : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8xf32>
  util.return %id, %sum : tensor<8x4xf32>, tensor<8xf32>
}

// Both factors of the last product have the loop of the sum: IREE compiles them as they are, and no order is changed.
// CHECK-LABEL: util.func public @distributed(
// CHECK: ^bb0(%[[X:.+]]: f32, %[[W:.+]]: f32, %[[Y:.+]]: f32, %{{.+}}: f32):
// CHECK-NEXT: %[[P:.+]] = arith.mulf %[[X]], %[[W]]
// CHECK-NEXT: arith.mulf %[[P]], %[[Y]]
// CHECK: ^bb0(%[[X:.+]]: f32, %[[Y:.+]]: f32, %[[S:.+]]: f32, %{{.+}}: f32):
// CHECK-NEXT: %[[P:.+]] = arith.mulf %[[Y]], %[[S]]
// CHECK-NEXT: arith.mulf %[[X]], %[[P]]
util.func @distributed(%x: tensor<8x4xf32>, %w: tensor<4xf32>, %y: tensor<8x4xf32>, %s: tensor<8xf32>,
    %rows: tensor<8xf32>, %init: tensor<8x8xf32>) -> (tensor<8xf32>, tensor<8x8xf32>) {
  %sum = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (k)>,
                                          affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>],
                         iterator_types = ["parallel", "reduction"]}
      ins(%x, %w, %y : tensor<8x4xf32>, tensor<4xf32>, tensor<8x4xf32>) outs(%rows : tensor<8xf32>) {
  ^bb0(%i: f32, %j: f32, %k: f32, %o: f32):
    %0 = arith.mulf %i, %j : f32
    %1 = arith.mulf %0, %k : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<8xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
                                        affine_map<(m, n, k) -> (m)>, affine_map<(m, n, k) -> (m, n)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y, %s : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8xf32>) outs(%init : tensor<8x8xf32>) {
  ^bb0(%i: f32, %j: f32, %u: f32, %o: f32):
    %0 = arith.mulf %j, %u : f32
    %1 = arith.mulf %i, %0 : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<8x8xf32>
  util.return %sum, %r : tensor<8xf32>, tensor<8x8xf32>
}
