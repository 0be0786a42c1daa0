// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-write-rows)' | filecheck %s

// A choice by place, as PyTorch's where makes it: two places from a position on take new rows.

#l = affine_map<(l) -> (l)>
#none = affine_map<(l) -> ()>
#all = affine_map<(h, l, d) -> (h, l, d)>
#of_l = affine_map<(h, l, d) -> (l)>

util.global private mutable @kept = dense<0.0> : tensor<4x16x8xf32>

// CHECK-LABEL: func.func @chosen
// CHECK-SAME: %[[CACHE:.+]]: tensor<4x16x8xf32>, %[[ROWS:.+]]: tensor<4x2x8xf32>, %[[AT:.+]]: tensor<i64>
// CHECK-NOT: linalg.generic
// CHECK: tensor.expand_shape %[[AT]] [] output_shape [1] : tensor<i64> into tensor<1xi64>
// CHECK: flow.dispatch.region -> (tensor<4x16x8xf32>)
// CHECK: "mx_write_rows_r2_d8_
// CHECK-NOT: tensor<16xi1>
// CHECK: return
func.func @chosen(%cache: tensor<4x16x8xf32>, %rows: tensor<4x2x8xf32>, %at: tensor<i64>) -> tensor<4x16x8xf32> {
  %e = tensor.empty() : tensor<16xi64>
  %b = tensor.empty() : tensor<16xi1>
  %distance = linalg.generic {indexing_maps = [#none, #l], iterator_types = ["parallel"]} ins(%at : tensor<i64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.subi %1, %x : i64
    linalg.yield %2 : i64
  } -> tensor<16xi64>
  %is_new = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%b : tensor<16xi1>) {
  ^bb0(%x: i64, %o: i1):
    %c0 = arith.constant 0 : i64
    %c2 = arith.constant 2 : i64
    %0 = arith.cmpi sge, %x, %c0 : i64
    %1 = arith.cmpi slt, %x, %c2 : i64
    %2 = arith.andi %0, %1 : i1
    linalg.yield %2 : i1
  } -> tensor<16xi1>
  %row = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %c0 = arith.constant 0 : i64
    %c1 = arith.constant 1 : i64
    %0 = arith.maxsi %x, %c0 : i64
    %1 = arith.minsi %0, %c1 : i64
    linalg.yield %1 : i64
  } -> tensor<16xi64>
  %f = tensor.empty() : tensor<4x16x8xf32>
  %new = linalg.generic {indexing_maps = [#of_l, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%row : tensor<16xi64>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%x: i64, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %x : i64 to index
    %2 = linalg.index 2 : index
    %3 = tensor.extract %rows[%0, %1, %2] : tensor<4x2x8xf32>
    linalg.yield %3 : f32
  } -> tensor<4x16x8xf32>
  %u = linalg.generic {indexing_maps = [#of_l, #all, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%is_new, %new, %cache : tensor<16xi1>, tensor<4x16x8xf32>, tensor<4x16x8xf32>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%c: i1, %x: f32, %y: f32, %o: f32):
    %0 = arith.select %c, %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<4x16x8xf32>
  return %u : tensor<4x16x8xf32>
}

// An argument that no result takes the place of stays as it is for the caller.
// CHECK-LABEL: func.func @not_returned
// CHECK-NOT: flow.dispatch.region
// CHECK: arith.select
func.func @not_returned(%cache: tensor<4x16x8xf32>, %rows: tensor<4x2x8xf32>, %at: tensor<i64>) -> f32 {
  %e = tensor.empty() : tensor<16xi64>
  %b = tensor.empty() : tensor<16xi1>
  %distance = linalg.generic {indexing_maps = [#none, #l], iterator_types = ["parallel"]} ins(%at : tensor<i64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.subi %1, %x : i64
    linalg.yield %2 : i64
  } -> tensor<16xi64>
  %is_new = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%b : tensor<16xi1>) {
  ^bb0(%x: i64, %o: i1):
    %c0 = arith.constant 0 : i64
    %c2 = arith.constant 2 : i64
    %0 = arith.cmpi sge, %x, %c0 : i64
    %1 = arith.cmpi slt, %x, %c2 : i64
    %2 = arith.andi %0, %1 : i1
    linalg.yield %2 : i1
  } -> tensor<16xi1>
  %row = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %c0 = arith.constant 0 : i64
    %c1 = arith.constant 1 : i64
    %0 = arith.maxsi %x, %c0 : i64
    %1 = arith.minsi %0, %c1 : i64
    linalg.yield %1 : i64
  } -> tensor<16xi64>
  %f = tensor.empty() : tensor<4x16x8xf32>
  %new = linalg.generic {indexing_maps = [#of_l, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%row : tensor<16xi64>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%x: i64, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %x : i64 to index
    %2 = linalg.index 2 : index
    %3 = tensor.extract %rows[%0, %1, %2] : tensor<4x2x8xf32>
    linalg.yield %3 : f32
  } -> tensor<4x16x8xf32>
  %u = linalg.generic {indexing_maps = [#of_l, #all, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%is_new, %new, %cache : tensor<16xi1>, tensor<4x16x8xf32>, tensor<4x16x8xf32>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%c: i1, %x: f32, %y: f32, %o: f32):
    %0 = arith.select %c, %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<4x16x8xf32>
  %i = arith.constant 3 : index
  %r = tensor.extract %u[%i, %i, %i] : tensor<4x16x8xf32>
  return %r : f32
}

// What is read as it was before is not written over.
// CHECK-LABEL: func.func @read_later
// CHECK-NOT: flow.dispatch.region
// CHECK: arith.select
func.func @read_later(%cache: tensor<4x16x8xf32>, %rows: tensor<4x2x8xf32>, %at: tensor<i64>) -> (tensor<4x16x8xf32>, f32) {
  %e = tensor.empty() : tensor<16xi64>
  %b = tensor.empty() : tensor<16xi1>
  %distance = linalg.generic {indexing_maps = [#none, #l], iterator_types = ["parallel"]} ins(%at : tensor<i64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.subi %1, %x : i64
    linalg.yield %2 : i64
  } -> tensor<16xi64>
  %is_new = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%b : tensor<16xi1>) {
  ^bb0(%x: i64, %o: i1):
    %c0 = arith.constant 0 : i64
    %c2 = arith.constant 2 : i64
    %0 = arith.cmpi sge, %x, %c0 : i64
    %1 = arith.cmpi slt, %x, %c2 : i64
    %2 = arith.andi %0, %1 : i1
    linalg.yield %2 : i1
  } -> tensor<16xi1>
  %row = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %c0 = arith.constant 0 : i64
    %c1 = arith.constant 1 : i64
    %0 = arith.maxsi %x, %c0 : i64
    %1 = arith.minsi %0, %c1 : i64
    linalg.yield %1 : i64
  } -> tensor<16xi64>
  %f = tensor.empty() : tensor<4x16x8xf32>
  %new = linalg.generic {indexing_maps = [#of_l, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%row : tensor<16xi64>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%x: i64, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %x : i64 to index
    %2 = linalg.index 2 : index
    %3 = tensor.extract %rows[%0, %1, %2] : tensor<4x2x8xf32>
    linalg.yield %3 : f32
  } -> tensor<4x16x8xf32>
  %u = linalg.generic {indexing_maps = [#of_l, #all, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%is_new, %new, %cache : tensor<16xi1>, tensor<4x16x8xf32>, tensor<4x16x8xf32>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%c: i1, %x: f32, %y: f32, %o: f32):
    %0 = arith.select %c, %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<4x16x8xf32>
  %i = arith.constant 3 : index
  %r = tensor.extract %cache[%i, %i, %i] : tensor<4x16x8xf32>
  return %u, %r : tensor<4x16x8xf32>, f32
}

// Each place takes the row of its neighbour: no rows in their order.
// CHECK-LABEL: func.func @other_rows
// CHECK-NOT: flow.dispatch.region
// CHECK: arith.select
func.func @other_rows(%cache: tensor<4x16x8xf32>, %rows: tensor<4x2x8xf32>, %at: tensor<i64>) -> tensor<4x16x8xf32> {
  %e = tensor.empty() : tensor<16xi64>
  %b = tensor.empty() : tensor<16xi1>
  %distance = linalg.generic {indexing_maps = [#none, #l], iterator_types = ["parallel"]} ins(%at : tensor<i64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.subi %1, %x : i64
    linalg.yield %2 : i64
  } -> tensor<16xi64>
  %is_new = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%b : tensor<16xi1>) {
  ^bb0(%x: i64, %o: i1):
    %c0 = arith.constant 0 : i64
    %c2 = arith.constant 2 : i64
    %0 = arith.cmpi sge, %x, %c0 : i64
    %1 = arith.cmpi slt, %x, %c2 : i64
    %2 = arith.andi %0, %1 : i1
    linalg.yield %2 : i1
  } -> tensor<16xi1>
  %row = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %c0 = arith.constant 1 : i64
    %c1 = arith.constant 1 : i64
    %0 = arith.maxsi %x, %c0 : i64
    %1 = arith.minsi %0, %c1 : i64
    linalg.yield %1 : i64
  } -> tensor<16xi64>
  %f = tensor.empty() : tensor<4x16x8xf32>
  %new = linalg.generic {indexing_maps = [#of_l, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%row : tensor<16xi64>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%x: i64, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %x : i64 to index
    %2 = linalg.index 2 : index
    %3 = tensor.extract %rows[%0, %1, %2] : tensor<4x2x8xf32>
    linalg.yield %3 : f32
  } -> tensor<4x16x8xf32>
  %u = linalg.generic {indexing_maps = [#of_l, #all, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%is_new, %new, %cache : tensor<16xi1>, tensor<4x16x8xf32>, tensor<4x16x8xf32>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%c: i1, %x: f32, %y: f32, %o: f32):
    %0 = arith.select %c, %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<4x16x8xf32>
  return %u : tensor<4x16x8xf32>
}

// A global that keeps its old value.
// CHECK-LABEL: func.func @not_stored
// CHECK-NOT: flow.dispatch.region
// CHECK: arith.select
func.func @not_stored(%rows: tensor<4x2x8xf32>, %at: tensor<i64>) -> tensor<4x16x8xf32> {
  %cache = util.global.load @kept : tensor<4x16x8xf32>
  %e = tensor.empty() : tensor<16xi64>
  %b = tensor.empty() : tensor<16xi1>
  %distance = linalg.generic {indexing_maps = [#none, #l], iterator_types = ["parallel"]} ins(%at : tensor<i64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.subi %1, %x : i64
    linalg.yield %2 : i64
  } -> tensor<16xi64>
  %is_new = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%b : tensor<16xi1>) {
  ^bb0(%x: i64, %o: i1):
    %c0 = arith.constant 0 : i64
    %c2 = arith.constant 2 : i64
    %0 = arith.cmpi sge, %x, %c0 : i64
    %1 = arith.cmpi slt, %x, %c2 : i64
    %2 = arith.andi %0, %1 : i1
    linalg.yield %2 : i1
  } -> tensor<16xi1>
  %row = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %c0 = arith.constant 0 : i64
    %c1 = arith.constant 1 : i64
    %0 = arith.maxsi %x, %c0 : i64
    %1 = arith.minsi %0, %c1 : i64
    linalg.yield %1 : i64
  } -> tensor<16xi64>
  %f = tensor.empty() : tensor<4x16x8xf32>
  %new = linalg.generic {indexing_maps = [#of_l, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%row : tensor<16xi64>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%x: i64, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %x : i64 to index
    %2 = linalg.index 2 : index
    %3 = tensor.extract %rows[%0, %1, %2] : tensor<4x2x8xf32>
    linalg.yield %3 : f32
  } -> tensor<4x16x8xf32>
  %u = linalg.generic {indexing_maps = [#of_l, #all, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%is_new, %new, %cache : tensor<16xi1>, tensor<4x16x8xf32>, tensor<4x16x8xf32>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%c: i1, %x: f32, %y: f32, %o: f32):
    %0 = arith.select %c, %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<4x16x8xf32>
  return %u : tensor<4x16x8xf32>
}

// CHECK-LABEL: func.func @stored
// CHECK: flow.dispatch.region
// CHECK: util.global.store
func.func @stored(%rows: tensor<4x2x8xf32>, %at: tensor<i64>) {
  %cache = util.global.load @kept : tensor<4x16x8xf32>
  %e = tensor.empty() : tensor<16xi64>
  %b = tensor.empty() : tensor<16xi1>
  %distance = linalg.generic {indexing_maps = [#none, #l], iterator_types = ["parallel"]} ins(%at : tensor<i64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.subi %1, %x : i64
    linalg.yield %2 : i64
  } -> tensor<16xi64>
  %is_new = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%b : tensor<16xi1>) {
  ^bb0(%x: i64, %o: i1):
    %c0 = arith.constant 0 : i64
    %c2 = arith.constant 2 : i64
    %0 = arith.cmpi sge, %x, %c0 : i64
    %1 = arith.cmpi slt, %x, %c2 : i64
    %2 = arith.andi %0, %1 : i1
    linalg.yield %2 : i1
  } -> tensor<16xi1>
  %row = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %c0 = arith.constant 0 : i64
    %c1 = arith.constant 1 : i64
    %0 = arith.maxsi %x, %c0 : i64
    %1 = arith.minsi %0, %c1 : i64
    linalg.yield %1 : i64
  } -> tensor<16xi64>
  %f = tensor.empty() : tensor<4x16x8xf32>
  %new = linalg.generic {indexing_maps = [#of_l, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%row : tensor<16xi64>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%x: i64, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %x : i64 to index
    %2 = linalg.index 2 : index
    %3 = tensor.extract %rows[%0, %1, %2] : tensor<4x2x8xf32>
    linalg.yield %3 : f32
  } -> tensor<4x16x8xf32>
  %u = linalg.generic {indexing_maps = [#of_l, #all, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%is_new, %new, %cache : tensor<16xi1>, tensor<4x16x8xf32>, tensor<4x16x8xf32>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%c: i1, %x: f32, %y: f32, %o: f32):
    %0 = arith.select %c, %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<4x16x8xf32>
  util.global.store %u, @kept : tensor<4x16x8xf32>
  return
}

// A dynamic number of new rows: each workgroup has one of each head.
// CHECK-LABEL: func.func @dynamic
// CHECK-SAME: %{{[^:]+}}: tensor<4x16x8xf32>, %[[ROWS:[^:]+]]: tensor<4x?x8xf32>
// CHECK: cf.assert %{{.+}}, "mxcomp: sizes of what is rotated, or written to caches, must be at most 16777215"
// CHECK: %[[TIED:.+]] = flow.tensor.tie_shape %[[ROWS]]
// CHECK: flow.dispatch.region -> (tensor<4x16x8xf32>)
// CHECK: "mx_write_rows_r0_d8_
// CHECK-NOT: tensor<16xi1>
// CHECK: return
func.func @dynamic(%cache: tensor<4x16x8xf32>, %rows: tensor<4x?x8xf32>, %other: tensor<?xf32>, %at: tensor<i64>) -> tensor<4x16x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1 : i64
  %dim = tensor.dim %rows, %c1 : tensor<4x?x8xf32>
  %dim_other = tensor.dim %other, %c0 : tensor<?xf32>
  %size = arith.index_cast %dim : index to i64
  %size_other = arith.index_cast %dim_other : index to i64
  %last = arith.subi %size, %one : i64
  %e = tensor.empty() : tensor<16xi64>
  %b = tensor.empty() : tensor<16xi1>
  %distance = linalg.generic {indexing_maps = [#none, #l], iterator_types = ["parallel"]} ins(%at : tensor<i64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.subi %1, %x : i64
    linalg.yield %2 : i64
  } -> tensor<16xi64>
  %is_new = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%b : tensor<16xi1>) {
  ^bb0(%x: i64, %o: i1):
    %zero = arith.constant 0 : i64
    %0 = arith.cmpi sge, %x, %zero : i64
    %1 = arith.cmpi slt, %x, %size : i64
    %2 = arith.andi %0, %1 : i1
    linalg.yield %2 : i1
  } -> tensor<16xi1>
  %row = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %zero = arith.constant 0 : i64
    %0 = arith.maxsi %x, %zero : i64
    %1 = arith.minsi %0, %last : i64
    linalg.yield %1 : i64
  } -> tensor<16xi64>
  %f = tensor.empty() : tensor<4x16x8xf32>
  %new = linalg.generic {indexing_maps = [#of_l, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%row : tensor<16xi64>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%x: i64, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %x : i64 to index
    %2 = linalg.index 2 : index
    %3 = tensor.extract %rows[%0, %1, %2] : tensor<4x?x8xf32>
    linalg.yield %3 : f32
  } -> tensor<4x16x8xf32>
  %u = linalg.generic {indexing_maps = [#of_l, #all, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%is_new, %new, %cache : tensor<16xi1>, tensor<4x16x8xf32>, tensor<4x16x8xf32>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%c: i1, %x: f32, %y: f32, %o: f32):
    %0 = arith.select %c, %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<4x16x8xf32>
  return %u : tensor<4x16x8xf32>
}

// Rows that are as many as something else has, or of which some are chosen twice, stay as they are.
// CHECK-LABEL: func.func @of_other_size
// CHECK-NOT: flow.dispatch.region
// CHECK: arith.select
func.func @of_other_size(%cache: tensor<4x16x8xf32>, %rows: tensor<4x?x8xf32>, %other: tensor<?xf32>, %at: tensor<i64>) -> tensor<4x16x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1 : i64
  %dim = tensor.dim %rows, %c1 : tensor<4x?x8xf32>
  %dim_other = tensor.dim %other, %c0 : tensor<?xf32>
  %size = arith.index_cast %dim : index to i64
  %size_other = arith.index_cast %dim_other : index to i64
  %last = arith.subi %size_other, %one : i64
  %e = tensor.empty() : tensor<16xi64>
  %b = tensor.empty() : tensor<16xi1>
  %distance = linalg.generic {indexing_maps = [#none, #l], iterator_types = ["parallel"]} ins(%at : tensor<i64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.subi %1, %x : i64
    linalg.yield %2 : i64
  } -> tensor<16xi64>
  %is_new = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%b : tensor<16xi1>) {
  ^bb0(%x: i64, %o: i1):
    %zero = arith.constant 0 : i64
    %0 = arith.cmpi sge, %x, %zero : i64
    %1 = arith.cmpi slt, %x, %size_other : i64
    %2 = arith.andi %0, %1 : i1
    linalg.yield %2 : i1
  } -> tensor<16xi1>
  %row = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %zero = arith.constant 0 : i64
    %0 = arith.maxsi %x, %zero : i64
    %1 = arith.minsi %0, %last : i64
    linalg.yield %1 : i64
  } -> tensor<16xi64>
  %f = tensor.empty() : tensor<4x16x8xf32>
  %new = linalg.generic {indexing_maps = [#of_l, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%row : tensor<16xi64>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%x: i64, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %x : i64 to index
    %2 = linalg.index 2 : index
    %3 = tensor.extract %rows[%0, %1, %2] : tensor<4x?x8xf32>
    linalg.yield %3 : f32
  } -> tensor<4x16x8xf32>
  %u = linalg.generic {indexing_maps = [#of_l, #all, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%is_new, %new, %cache : tensor<16xi1>, tensor<4x16x8xf32>, tensor<4x16x8xf32>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%c: i1, %x: f32, %y: f32, %o: f32):
    %0 = arith.select %c, %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<4x16x8xf32>
  return %u : tensor<4x16x8xf32>
}

// CHECK-LABEL: func.func @limited
// CHECK-NOT: flow.dispatch.region
// CHECK: arith.select
func.func @limited(%cache: tensor<4x16x8xf32>, %rows: tensor<4x?x8xf32>, %other: tensor<?xf32>, %at: tensor<i64>) -> tensor<4x16x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1 : i64
  %dim = tensor.dim %rows, %c1 : tensor<4x?x8xf32>
  %dim_other = tensor.dim %other, %c0 : tensor<?xf32>
  %size = arith.index_cast %dim : index to i64
  %size_other = arith.index_cast %dim_other : index to i64
  %last = arith.subi %size_other, %one : i64
  %e = tensor.empty() : tensor<16xi64>
  %b = tensor.empty() : tensor<16xi1>
  %distance = linalg.generic {indexing_maps = [#none, #l], iterator_types = ["parallel"]} ins(%at : tensor<i64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.subi %1, %x : i64
    linalg.yield %2 : i64
  } -> tensor<16xi64>
  %is_new = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%b : tensor<16xi1>) {
  ^bb0(%x: i64, %o: i1):
    %zero = arith.constant 0 : i64
    %0 = arith.cmpi sge, %x, %zero : i64
    %1 = arith.cmpi slt, %x, %size : i64
    %2 = arith.andi %0, %1 : i1
    linalg.yield %2 : i1
  } -> tensor<16xi1>
  %row = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%distance : tensor<16xi64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %zero = arith.constant 0 : i64
    %0 = arith.maxsi %x, %zero : i64
    %1 = arith.minsi %0, %last : i64
    linalg.yield %1 : i64
  } -> tensor<16xi64>
  %f = tensor.empty() : tensor<4x16x8xf32>
  %new = linalg.generic {indexing_maps = [#of_l, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%row : tensor<16xi64>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%x: i64, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %x : i64 to index
    %2 = linalg.index 2 : index
    %3 = tensor.extract %rows[%0, %1, %2] : tensor<4x?x8xf32>
    linalg.yield %3 : f32
  } -> tensor<4x16x8xf32>
  %u = linalg.generic {indexing_maps = [#of_l, #all, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%is_new, %new, %cache : tensor<16xi1>, tensor<4x16x8xf32>, tensor<4x16x8xf32>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%c: i1, %x: f32, %y: f32, %o: f32):
    %0 = arith.select %c, %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<4x16x8xf32>
  return %u : tensor<4x16x8xf32>
}

// An integer for each place says which row it has, not where each row goes, though there are as many.
// CHECK-LABEL: func.func @of_each_place
// CHECK-NOT: flow.dispatch.region
// CHECK: arith.select
func.func @of_each_place(%cache: tensor<4x16x8xf32>, %rows: tensor<4x16x8xf32>, %at: tensor<16xi64>) -> tensor<4x16x8xf32> {
  %e = tensor.empty() : tensor<16xi64>
  %b = tensor.empty() : tensor<16xi1>
  %row = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%at : tensor<16xi64>) outs(%e : tensor<16xi64>) {
  ^bb0(%x: i64, %o: i64):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.subi %1, %x : i64
    linalg.yield %2 : i64
  } -> tensor<16xi64>
  %is_new = linalg.generic {indexing_maps = [#l, #l], iterator_types = ["parallel"]} ins(%row : tensor<16xi64>) outs(%b : tensor<16xi1>) {
  ^bb0(%x: i64, %o: i1):
    %zero = arith.constant 0 : i64
    %size = arith.constant 16 : i64
    %0 = arith.cmpi sge, %x, %zero : i64
    %1 = arith.cmpi slt, %x, %size : i64
    %2 = arith.andi %0, %1 : i1
    linalg.yield %2 : i1
  } -> tensor<16xi1>
  %f = tensor.empty() : tensor<4x16x8xf32>
  %new = linalg.generic {indexing_maps = [#of_l, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%row : tensor<16xi64>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%x: i64, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %x : i64 to index
    %2 = linalg.index 2 : index
    %3 = tensor.extract %rows[%0, %1, %2] : tensor<4x16x8xf32>
    linalg.yield %3 : f32
  } -> tensor<4x16x8xf32>
  %u = linalg.generic {indexing_maps = [#of_l, #all, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%is_new, %new, %cache : tensor<16xi1>, tensor<4x16x8xf32>, tensor<4x16x8xf32>) outs(%f : tensor<4x16x8xf32>) {
  ^bb0(%c: i1, %x: f32, %y: f32, %o: f32):
    %0 = arith.select %c, %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<4x16x8xf32>
  return %u : tensor<4x16x8xf32>
}
