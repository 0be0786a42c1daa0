// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-rank-sorts,mxcomp-join-routing)' | filecheck %s

// Each workgroup of the kernel that reads what is chosen chooses it itself, and stores a copy of it for what else reads it.

#part = affine_map<(d0, d1, d2) -> (d2)>
#all = affine_map<(d0, d1, d2) -> (d0, d1)>
#told = {threads = 256, along = [0], llvm_func_attrs = {}}
#kernel = "util.func private @mx_reading_0(%ids: tensor<4xi32>, %out: tensor<1x4xi32>) -> tensor<1x4xi32> { %w = hal.interface.workgroup.id[0] : index %e = tensor.empty() : tensor<1x4xi32> %r = scf.forall (%t) in (256) shared_outs(%o = %e) -> (tensor<1x4xi32>) { %c = arith.constant 3 : index %at = arith.minui %t, %c : index %id = tensor.extract %ids[%at] : tensor<4xi32> %v = tensor.from_elements %id : tensor<1x1xi32> scf.forall.in_parallel { tensor.parallel_insert_slice %v into %o[0, %at] [1, 1] [1, 1] : tensor<1x1xi32> into tensor<1x4xi32> } } {mapping = [#gpu.thread<linear_dim_0>]} util.return %r : tensor<1x4xi32> }"
#ukernel = #iree_codegen.ukernel_descriptor<"mx_reading_0", tensor>
#row = affine_map<(d0, d1) -> (d1)>
#one = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: @first
// CHECK-SAME: (%[[X:[a-z0-9]+]]: tensor<1x32xbf16>, %[[I:[a-z0-9]+]]: tensor<1x32xi32>)
// CHECK-NOT: flow.dispatch.region
// CHECK: %[[A:[a-z_0-9]+]] = tensor.collapse_shape %[[X]]
// CHECK: %[[B:[a-z_0-9]+]] = tensor.collapse_shape %[[I]]
// CHECK: %[[D:[0-9]+]]:2 = flow.dispatch.region -> (tensor<2x4xi32>, tensor<2x4xi32>) {
// CHECK: ins(%{{[a-z_0-9]+}}, %[[B]] : tensor<32xbf16>, tensor<32xi32>)
// CHECK-SAME: ukernel_descriptor<"mx_reading_{{[0-9a-f]+}}", tensor>
// CHECK-NOT: mxcomp.ahead
// CHECK: flow.return
// CHECK: %[[F:[a-z_0-9]+]] = tensor.collapse_shape %[[D]]#1 {{[^:]+}} : tensor<2x4xi32> into tensor<8xi32>
// CHECK: %[[N:[a-z_0-9]+]] = tensor.extract_slice %[[F]][0] [4] [1]
// CHECK: %[[R:[a-z_0-9]+]] = tensor.expand_shape %[[N]]
// CHECK: return %[[D]]#0, %[[R]]
func.func @first(%x: tensor<1x32xbf16>, %i: tensor<1x32xi32>) -> (tensor<2x4xi32>, tensor<1x4xi32>) {
  %s:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : tensor<1x32xbf16>, tensor<1x32xi32>) {
  ^bb0(%a: bf16, %b: bf16, %c: i32, %d: i32):
    %0 = arith.cmpf oge, %a, %b : bf16
    iree_linalg_ext.yield %0 : i1
  } -> tensor<1x32xbf16>, tensor<1x32xi32>
  %n = tensor.extract_slice %s#1[0, 0] [1, 4] [1, 1] : tensor<1x32xi32> to tensor<1x4xi32>
  %ids = tensor.collapse_shape %n [[0, 1]] : tensor<1x4xi32> into tensor<4xi32>
  %r = flow.dispatch.region -> (tensor<2x4xi32>) {
    %e = tensor.empty() : tensor<2x4xi32>
    %0 = linalg.generic {indexing_maps = [#part, #all], iterator_types = ["parallel", "parallel", "reduction"]} ins(%ids : tensor<4xi32>) outs(%e : tensor<2x4xi32>)
      attrs = {iree_codegen.ukernel = #ukernel, mxcomp.ahead = #told, mxcomp.kernel = #kernel} {
    ^bb0(%in: i32, %out: i32):
      linalg.yield %in : i32
    } -> tensor<2x4xi32>
    flow.return %0 : tensor<2x4xi32>
  }
  return %r, %n : tensor<2x4xi32>, tensor<1x4xi32>
}

// Not of more than is computed in the time of a dispatch: of integers, all elements are compared with all.

// CHECK-LABEL: @many
// CHECK: flow.dispatch.region
// CHECK: mx_chain
// CHECK: flow.return
// CHECK: flow.dispatch.region -> (tensor<2x4xi32>) {
func.func @many(%x: tensor<1x128xi32>, %i: tensor<1x128xi32>) -> (tensor<2x4xi32>, tensor<1x4xi32>) {
  %s:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : tensor<1x128xi32>, tensor<1x128xi32>) {
  ^bb0(%a: i32, %b: i32, %c: i32, %d: i32):
    %0 = arith.cmpi sge, %a, %b : i32
    iree_linalg_ext.yield %0 : i1
  } -> tensor<1x128xi32>, tensor<1x128xi32>
  %n = tensor.extract_slice %s#1[0, 0] [1, 4] [1, 1] : tensor<1x128xi32> to tensor<1x4xi32>
  %ids = tensor.collapse_shape %n [[0, 1]] : tensor<1x4xi32> into tensor<4xi32>
  %r = flow.dispatch.region -> (tensor<2x4xi32>) {
    %e = tensor.empty() : tensor<2x4xi32>
    %0 = linalg.generic {indexing_maps = [#part, #all], iterator_types = ["parallel", "parallel", "reduction"]} ins(%ids : tensor<4xi32>) outs(%e : tensor<2x4xi32>)
      attrs = {iree_codegen.ukernel = #ukernel, mxcomp.ahead = #told, mxcomp.kernel = #kernel} {
    ^bb0(%in: i32, %out: i32):
      linalg.yield %in : i32
    } -> tensor<2x4xi32>
    flow.return %0 : tensor<2x4xi32>
  }
  return %r, %n : tensor<2x4xi32>, tensor<1x4xi32>
}

// Nor where something else reads it before.

// CHECK-LABEL: @before
// CHECK: flow.dispatch.region
// CHECK: mx_chain
// CHECK: flow.return
// CHECK: tensor<4096x4xi32>
// CHECK: flow.dispatch.region -> (tensor<2x4xi32>) {
func.func @before(%x: tensor<1x32xbf16>, %i: tensor<1x32xi32>) -> (tensor<2x4xi32>, tensor<4096x4xi32>) {
  %s:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : tensor<1x32xbf16>, tensor<1x32xi32>) {
  ^bb0(%a: bf16, %b: bf16, %c: i32, %d: i32):
    %0 = arith.cmpf oge, %a, %b : bf16
    iree_linalg_ext.yield %0 : i1
  } -> tensor<1x32xbf16>, tensor<1x32xi32>
  %n = tensor.extract_slice %s#1[0, 0] [1, 4] [1, 1] : tensor<1x32xi32> to tensor<1x4xi32>
  %ids = tensor.collapse_shape %n [[0, 1]] : tensor<1x4xi32> into tensor<4xi32>
  %w = tensor.empty() : tensor<4096x4xi32>
  %z = linalg.generic {indexing_maps = [#row, #one], iterator_types = ["parallel", "parallel"]} ins(%ids : tensor<4xi32>) outs(%w : tensor<4096x4xi32>) {
  ^bb0(%a: i32, %b: i32):
    linalg.yield %a : i32
  } -> tensor<4096x4xi32>
  %r = flow.dispatch.region -> (tensor<2x4xi32>) {
    %e = tensor.empty() : tensor<2x4xi32>
    %0 = linalg.generic {indexing_maps = [#part, #all], iterator_types = ["parallel", "parallel", "reduction"]} ins(%ids : tensor<4xi32>) outs(%e : tensor<2x4xi32>)
      attrs = {iree_codegen.ukernel = #ukernel, mxcomp.ahead = #told, mxcomp.kernel = #kernel} {
    ^bb0(%in: i32, %out: i32):
      linalg.yield %in : i32
    } -> tensor<2x4xi32>
    flow.return %0 : tensor<2x4xi32>
  }
  return %r, %z : tensor<2x4xi32>, tensor<4096x4xi32>
}
