// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-sort-slots)' | filecheck %s

// The tables of a routing come from one dispatch, which reads the experts of slots; IREE drops what made them before.
// What the experts are is hidden: constant ones would be sorted when compiled, on a CPU.

// CHECK-LABEL: util.func public @fits(
// CHECK-SAME: %[[IDS:[a-z0-9]+]]: tensor<12xi32>
// CHECK: %[[HIDDEN:.+]] = util.optimization_barrier %[[IDS]] : tensor<12xi32>
// CHECK: %[[TABLES:.+]] = flow.dispatch.region -> (tensor<128xi32>)
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[HIDDEN]] : tensor<12xi32>)
// CHECK-SAME: iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_sort_slots_s12_e3_b4_m16", tensor>
// CHECK-SAME: mxcomp.kernel = "
// CHECK: %[[ROWS:.+]] = tensor.extract_slice %[[TABLES]][0] [12] [1]
// CHECK: %[[SLOTS:.+]] = tensor.extract_slice %[[TABLES]][12] [64] [1]
// CHECK: %[[EXPERTS:.+]] = tensor.extract_slice %[[TABLES]][76] [4] [1]
// CHECK: %[[VALID:.+]] = tensor.extract_slice %[[TABLES]][80] [1] [1]
// CHECK-NOT: util.optimization_barrier
// CHECK: util.return %[[ROWS]], %[[SLOTS]], %[[EXPERTS]], %[[VALID]]
util.func public @fits(%ids: tensor<12xi32>, %made: tensor<12xi32>, %valid: tensor<1xi32>, %experts: tensor<4xi32>)
    -> (tensor<12xi32>, tensor<64xi32>, tensor<4xi32>, tensor<1xi32>) {
  %places = tensor.expand_shape %made [[0, 1]] output_shape [12, 1] : tensor<12xi32> into tensor<12x1xi32>
  %none = arith.constant dense<12> : tensor<64xi32>
  %slots = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true)
      ins(%made, %places : tensor<12xi32>, tensor<12x1xi32>) outs(%none : tensor<64xi32>) {
  ^bb0(%new: i32, %old: i32):
    iree_linalg_ext.yield %new : i32
  } -> tensor<64xi32>
  %r:5 = util.optimization_barrier {mxcomp.sorting = {slots = 12, experts = 3, block_m = 16, blocks = 4}}
      %made, %slots, %experts, %valid, %ids : tensor<12xi32>, tensor<64xi32>, tensor<4xi32>, tensor<1xi32>, tensor<12xi32>
  util.return %r#0, %r#1, %r#2, %r#3 : tensor<12xi32>, tensor<64xi32>, tensor<4xi32>, tensor<1xi32>
}

// A single slot.

// CHECK-LABEL: util.func public @one_slot(
// CHECK-SAME: %[[IDS:[a-z0-9]+]]: tensor<1xi32>
// CHECK: %[[HIDDEN:.+]] = util.optimization_barrier %[[IDS]] : tensor<1xi32>
// CHECK: linalg.generic
// CHECK-SAME: ins(%[[HIDDEN]] : tensor<1xi32>)
// CHECK-SAME: iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_sort_slots_s1_e3_b1_m16", tensor>
util.func public @one_slot(%ids: tensor<1xi32>, %made: tensor<1xi32>, %slots: tensor<16xi32>, %valid: tensor<1xi32>,
    %experts: tensor<1xi32>) -> (tensor<1xi32>, tensor<16xi32>, tensor<1xi32>, tensor<1xi32>) {
  %r:5 = util.optimization_barrier {mxcomp.sorting = {slots = 1, experts = 3, block_m = 16, blocks = 1}}
      %made, %slots, %experts, %valid, %ids : tensor<1xi32>, tensor<16xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>
  util.return %r#0, %r#1, %r#2, %r#3 : tensor<1xi32>, tensor<16xi32>, tensor<1xi32>, tensor<1xi32>
}

// Of more slots than one workgroup is to sort the tables stay as they are.

// CHECK-LABEL: util.func public @does_not_fit(
// CHECK-SAME: %{{[a-z0-9]+}}: tensor<5000xi32>, %[[ROWS:[a-z0-9]+]]: tensor<5000xi32>, %[[SLOTS:[a-z0-9]+]]: tensor<5040xi32>
// CHECK-NOT: flow.dispatch.region
// CHECK-NOT: util.optimization_barrier
// CHECK: util.return %[[ROWS]], %[[SLOTS]]
util.func public @does_not_fit(%ids: tensor<5000xi32>, %rows: tensor<5000xi32>, %slots: tensor<5040xi32>,
    %experts: tensor<315xi32>, %valid: tensor<1xi32>) -> (tensor<5000xi32>, tensor<5040xi32>) {
  %r:5 = util.optimization_barrier {mxcomp.sorting = {slots = 5000, experts = 3, block_m = 16, blocks = 315}}
      %rows, %slots, %experts, %valid, %ids
      : tensor<5000xi32>, tensor<5040xi32>, tensor<315xi32>, tensor<1xi32>, tensor<5000xi32>
  util.return %r#0, %r#1 : tensor<5000xi32>, tensor<5040xi32>
}
