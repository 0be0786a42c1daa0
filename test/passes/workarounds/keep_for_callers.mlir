// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-keep-for-callers)' | filecheck %s

flow.executable private @sort {
  flow.executable.export public @sort workgroups() -> (index, index, index) {
    %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice()
    flow.return %x, %y, %z : index, index, index
  }
  builtin.module {
    func.func @sort(%x: !iree_tensor_ext.dispatch.tensor<readwrite:tensor<4xf32>>) {
      return
    }
  }
}

// An argument that is returned, and written over.

// CHECK-LABEL: util.func public @returned
// CHECK: %[[X:.+]] = hal.tensor.import
// CHECK: %[[B:.+]] = util.optimization_barrier %[[X]] : tensor<4xf32>
// CHECK: %[[V:.+]] = hal.tensor.export %[[B]] : tensor<4xf32> -> !hal.buffer_view
// CHECK: util.return %[[V]], %{{.+}} : !hal.buffer_view, !hal.buffer_view
util.func public @returned(%x: !hal.buffer_view) -> (!hal.buffer_view, !hal.buffer_view) {
  %0 = hal.tensor.import %x : !hal.buffer_view -> tensor<4xf32>
  %1 = flow.dispatch @sort::@sort(%0) : (tensor<4xf32>) -> %0
  %2 = hal.tensor.export %1 : tensor<4xf32> -> !hal.buffer_view
  util.return %x, %2 : !hal.buffer_view, !hal.buffer_view
}

// Read only, in a loop and returned; written over in a branch, or in the step that it comes from: nothing is added.

// CHECK-LABEL: util.func public @untouched
// CHECK-NOT: util.optimization_barrier
util.func public @untouched(%x: !hal.buffer_view, %y: tensor<4xf32>, %n: index, %flag: i1) -> (!hal.buffer_view, tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = hal.tensor.import %x : !hal.buffer_view -> tensor<4xf32>
  %1 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %y) -> (tensor<4xf32>) {
    %2 = flow.dispatch @sort::@sort(%0) : (tensor<4xf32>) -> tensor<4xf32>
    %3 = flow.dispatch @sort::@sort(%2) : (tensor<4xf32>) -> %2
    scf.yield %3 : tensor<4xf32>
  }
  %4 = scf.if %flag -> (tensor<4xf32>) {
    %5 = flow.dispatch @sort::@sort(%1) : (tensor<4xf32>) -> %1
    scf.yield %5 : tensor<4xf32>
  } else {
    scf.yield %1 : tensor<4xf32>
  }
  util.return %x, %4, %1 : !hal.buffer_view, tensor<4xf32>, tensor<4xf32>
}

// What a caller waits for is no size of it; and what is put into an argument is not the argument as it came.

// CHECK-LABEL: util.func public @changed
// CHECK: hal.tensor.alias wait(%{{.+}}) => %{{.+}} : tensor<4xf32> to %arg0 : !hal.buffer_view
// CHECK: %[[B:.+]] = util.optimization_barrier
// CHECK: %[[V:.+]] = hal.tensor.export %[[B]] : tensor<4xf32> -> !hal.buffer_view
// CHECK: util.return %[[V]], %{{.+}}
util.func public @changed(%x: !hal.buffer_view, %y: !hal.buffer_view, %f: !hal.fence) -> (!hal.buffer_view, tensor<4xf32>, tensor<4xf32>) {
  %0 = hal.tensor.import wait(%f) => %x : !hal.buffer_view -> tensor<4xf32>
  %1 = flow.dispatch @sort::@sort(%0) : (tensor<4xf32>) -> %0
  %2 = hal.tensor.alias wait(%f) => %1 : tensor<4xf32> to %x : !hal.buffer_view
  %3 = hal.tensor.import wait(%f) => %y : !hal.buffer_view -> tensor<4xf32>
  %4 = flow.dispatch @sort::@sort(%3) : (tensor<4xf32>) -> %3
  util.return %y, %2, %4 : !hal.buffer_view, tensor<4xf32>, tensor<4xf32>
}
