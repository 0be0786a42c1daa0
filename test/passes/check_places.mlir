// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-check-places)' | filecheck %s

util.global private mutable @cache = dense<0.0> : tensor<32x16xf32>
util.global private mutable @length = dense<0> : tensor<1xi64>

// A position is read by the host, before anything else is done; once for two caches.

// CHECK-LABEL: util.func public @position
// CHECK-SAME: (%{{.+}}: tensor<32x16xf32>, %{{.+}}: tensor<32x16xf32>, %{{.+}}: tensor<1x16xf32>, %[[AT:.+]]: tensor<1xi32>)
// CHECK: %[[NUMBER:.+]] = tensor.extract %[[AT]][%{{.+}}] : tensor<1xi32>
// CHECK: %[[WIDE:.+]] = arith.extsi %[[NUMBER]] : i32 to i64
// CHECK: arith.cmpi ult
// CHECK: cf.assert %{{.+}}, "mxcomp: rows must be written to places 0 to 31 of a cache, for model.py:7:0"
// CHECK-NOT: cf.assert
// CHECK: iree_linalg_ext.scatter
// CHECK-NOT: cf.assert
// CHECK: util.call @else
util.func private @else()
util.func public @position(%one: tensor<32x16xf32>, %two: tensor<32x16xf32>, %rows: tensor<1x16xf32>, %at: tensor<1xi32>) -> (tensor<32x16xf32>, tensor<32x16xf32>) {
  %0 = tensor.expand_shape %at [[0, 1]] output_shape [1, 1] : tensor<1xi32> into tensor<1x1xi32>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%rows, %0 : tensor<1x16xf32>, tensor<1x1xi32>) outs(%one : tensor<32x16xf32>) {
  ^bb0(%new: f32, %old: f32):
    iree_linalg_ext.yield %new : f32
  } -> tensor<32x16xf32> loc("model.py":7:0)
  util.call @else() : () -> ()
  %2 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%rows, %0 : tensor<1x16xf32>, tensor<1x1xi32>) outs(%two : tensor<32x16xf32>) {
  ^bb0(%new: f32, %old: f32):
    iree_linalg_ext.yield %new : f32
  } -> tensor<32x16xf32>
  util.return %1, %2 : tensor<32x16xf32>, tensor<32x16xf32>
}

// Of several positions a dispatch says whether all are inside.

// CHECK-LABEL: util.func public @table
// CHECK: %[[OUTSIDE:.+]] = linalg.generic {{.*}}"reduction"{{.*}} ins(%{{.+}} : tensor<3xi64>)
// CHECK: arith.ori
// CHECK: tensor.extract %[[OUTSIDE]][]
// CHECK: cf.assert
util.func public @table(%cache: tensor<32x16xf32>, %rows: tensor<3x16xf32>, %slots: tensor<3xi64>) -> tensor<32x16xf32> {
  %0 = tensor.expand_shape %slots [[0, 1]] output_shape [3, 1] : tensor<3xi64> into tensor<3x1xi64>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%rows, %0 : tensor<3x16xf32>, tensor<3x1xi64>) outs(%cache : tensor<32x16xf32>) {
  ^bb0(%new: f32, %old: f32):
    iree_linalg_ext.yield %new : f32
  } -> tensor<32x16xf32>
  util.return %1 : tensor<32x16xf32>
}

// Of a dynamic number of rows from a position on, the last one is known when the program is called.

// CHECK-LABEL: util.func public @dynamic
// CHECK: %[[COUNT:.+]] = arith.index_cast %{{.+}} : index to i64
// CHECK: %[[ROWS:.+]] = arith.muli %[[COUNT]], %{{.+}} : i64
// CHECK: %[[LAST:.+]] = arith.addi %[[ROWS]], %{{.+}} : i64
// CHECK: %[[AT:.+]] = tensor.extract %{{.+}}[%{{.+}}] : tensor<1xi64>
// CHECK: arith.addi %[[AT]], %[[LAST]] : i64
// CHECK: cf.assert %{{.+}}, "mxcomp: rows must be written to places 0 to 31 of a cache
util.func public @dynamic(%cache: tensor<32x16xf32>, %rows: tensor<?x16xf32>, %at: tensor<1xi64>) -> tensor<32x16xf32> {
  %c0 = arith.constant 0 : index
  %count = tensor.dim %rows, %c0 : tensor<?x16xf32>
  %e = tensor.empty(%count) : tensor<?xi64>
  %places = linalg.generic {indexing_maps = [affine_map<(d0) -> (0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%at : tensor<1xi64>) outs(%e : tensor<?xi64>) {
  ^bb0(%x: i64, %o: i64):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.addi %x, %1 : i64
    linalg.yield %2 : i64
  } -> tensor<?xi64>
  %0 = tensor.expand_shape %places [[0, 1]] output_shape [%count, 1] : tensor<?xi64> into tensor<?x1xi64>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%rows, %0 : tensor<?x16xf32>, tensor<?x1xi64>) outs(%cache : tensor<32x16xf32>) {
  ^bb0(%new: f32, %old: f32):
    iree_linalg_ext.yield %new : f32
  } -> tensor<32x16xf32>
  util.return %1 : tensor<32x16xf32>
}

// What the program keeps of its last call is known at its beginning.

// CHECK-LABEL: util.func public @kept
// CHECK-NEXT: util.global.load @length
// CHECK: cf.assert
// CHECK-NOT: after other work
// CHECK: util.global.load @cache
// CHECK: util.global.store %{{.+}}, @length
util.func public @kept(%rows: tensor<1x16xf32>, %next: tensor<1xi64>) {
  %cache = util.global.load @cache : tensor<32x16xf32>
  %length = util.global.load @length : tensor<1xi64>
  util.global.store %next, @length : tensor<1xi64>
  %0 = tensor.expand_shape %length [[0, 1]] output_shape [1, 1] : tensor<1xi64> into tensor<1x1xi64>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%rows, %0 : tensor<1x16xf32>, tensor<1x1xi64>) outs(%cache : tensor<32x16xf32>) {
  ^bb0(%new: f32, %old: f32):
    iree_linalg_ext.yield %new : f32
  } -> tensor<32x16xf32>
  util.global.store %1, @cache : tensor<32x16xf32>
  util.return
}

// It is not where the program has changed it.

// CHECK-LABEL: util.func public @changed
// CHECK-NEXT: util.global.store %{{.+}}, @length
// CHECK: util.global.load @length
// CHECK: cf.assert %{{.+}}, "{{.+}}, after other work"
util.func public @changed(%rows: tensor<1x16xf32>, %next: tensor<1xi64>) {
  util.global.store %next, @length : tensor<1xi64>
  %cache = util.global.load @cache : tensor<32x16xf32>
  %length = util.global.load @length : tensor<1xi64>
  %0 = tensor.expand_shape %length [[0, 1]] output_shape [1, 1] : tensor<1xi64> into tensor<1x1xi64>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%rows, %0 : tensor<1x16xf32>, tensor<1x1xi64>) outs(%cache : tensor<32x16xf32>) {
  ^bb0(%new: f32, %old: f32):
    iree_linalg_ext.yield %new : f32
  } -> tensor<32x16xf32>
  util.global.store %1, @cache : tensor<32x16xf32>
  util.return
}

// What is added to rows, or is all of a tensor, is no row of a cache.

// CHECK-LABEL: util.func public @added
// CHECK-NOT: cf.assert
util.func public @added(%cache: tensor<32x16xf32>, %rows: tensor<3x16xf32>, %slots: tensor<3xi64>) -> tensor<32x16xf32> {
  %0 = tensor.expand_shape %slots [[0, 1]] output_shape [3, 1] : tensor<3xi64> into tensor<3x1xi64>
  %1 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true) ins(%rows, %0 : tensor<3x16xf32>, tensor<3x1xi64>) outs(%cache : tensor<32x16xf32>) {
  ^bb0(%new: f32, %old: f32):
    %2 = arith.addf %new, %old : f32
    iree_linalg_ext.yield %2 : f32
  } -> tensor<32x16xf32>
  util.return %1 : tensor<32x16xf32>
}

// Positions that are valid by construction, as those of a router's tables.

// CHECK-LABEL: util.func public @counted
// CHECK-NOT: cf.assert
// CHECK: iree_linalg_ext.scatter
// CHECK-NOT: cf.assert
util.func public @counted(%cache: tensor<32x16xf32>, %rows: tensor<3x16xf32>, %slots: tensor<3xi64>) -> tensor<32x16xf32> {
  %0 = tensor.expand_shape %slots [[0, 1]] output_shape [3, 1] : tensor<3xi64> into tensor<3x1xi64>
  %1 = iree_linalg_ext.scatter {mxcomp.inside} dimension_map = [0] unique_indices(true) ins(%rows, %0 : tensor<3x16xf32>, tensor<3x1xi64>) outs(%cache : tensor<32x16xf32>) {
  ^bb0(%new: f32, %old: f32):
    iree_linalg_ext.yield %new : f32
  } -> tensor<32x16xf32>
  util.return %1 : tensor<32x16xf32>
}
