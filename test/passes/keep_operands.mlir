// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-keep-operands)' | filecheck %s

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

// What comes from outside of two loops is needed until both have ended.

// CHECK-LABEL: util.func public @in_loops
// CHECK: scf.for
// CHECK: scf.for
// CHECK-NEXT: flow.dispatch @sort::@sort(%arg0)
// CHECK-NEXT: scf.yield
// CHECK-NEXT: }
// CHECK-NEXT: scf.yield
// CHECK-NEXT: }
// CHECK-NEXT: util.optimization_barrier %arg0 : tensor<4xf32>
// CHECK-NEXT: util.return
util.func public @in_loops(%x: tensor<4xf32>, %start: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %start) -> (tensor<4xf32>) {
    %1 = scf.for %j = %c0 to %n step %c1 iter_args(%b = %a) -> (tensor<4xf32>) {
      %2 = flow.dispatch @sort::@sort(%x) : (tensor<4xf32>) -> %x
      scf.yield %2 : tensor<4xf32>
    }
    scf.yield %1 : tensor<4xf32>
  }
  util.return %0 : tensor<4xf32>
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

// What is written over on one side of a barrier, and read on the other: IREE sees so only without it.

// CHECK-LABEL: util.func public @in_front_of_a_barrier
// CHECK-NEXT: %[[V:.+]] = flow.tensor.reshape %arg0
// CHECK-NEXT: %[[S:.+]] = flow.dispatch @sort::@sort(%arg0) : (tensor<4xf32>) -> %arg0
// CHECK-NEXT: %[[R:.+]] = flow.dispatch @sort::@sort(%[[V]])
// CHECK-NEXT: util.return %[[S]], %[[R]]
util.func public @in_front_of_a_barrier(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<2x2xf32>) {
  %0 = flow.tensor.reshape %x : tensor<4xf32> -> tensor<2x2xf32>
  %1 = util.optimization_barrier %0 : tensor<2x2xf32>
  %2 = util.optimization_barrier %x : tensor<4xf32>
  %3 = flow.dispatch @sort::@sort(%2) : (tensor<4xf32>) -> %2
  %4 = flow.dispatch @sort::@sort(%1) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  util.return %3, %4 : tensor<4xf32>, tensor<2x2xf32>
}

// CHECK-LABEL: util.func public @behind_barriers
// CHECK-NOT: util.optimization_barrier
// CHECK: %[[X:.+]] = util.global.load immutable @constant
// CHECK-NEXT: %[[V:.+]] = flow.tensor.reshape %[[X]]
// CHECK-NEXT: flow.dispatch @sort::@sort(%[[V]]) : (tensor<4xf32>) -> %[[V]]
// CHECK-NEXT: flow.dispatch @sort::@sort(%[[X]])
util.global private @constant = dense<[[1.0, 4.0], [2.0, 3.0]]> : tensor<2x2xf32>
util.func public @behind_barriers() -> (tensor<4xf32>, tensor<2x2xf32>) {
  %x = util.global.load immutable @constant : tensor<2x2xf32>
  %0 = util.optimization_barrier %x : tensor<2x2xf32>
  %1 = util.optimization_barrier %0 : tensor<2x2xf32>
  %2 = flow.tensor.reshape %1 : tensor<2x2xf32> -> tensor<4xf32>
  %3 = flow.dispatch @sort::@sort(%2) : (tensor<4xf32>) -> %2
  %4 = flow.dispatch @sort::@sort(%1) : (tensor<2x2xf32>) -> tensor<2x2xf32>
  util.return %3, %4 : tensor<4xf32>, tensor<2x2xf32>
}

// One that is only read stays, and so does one of a number.

// CHECK-LABEL: util.func public @read
// CHECK: util.optimization_barrier %{{.+}} : index
// CHECK: util.optimization_barrier %{{.+}} : tensor<2x2xf32>
util.func public @read() -> tensor<?xf32> {
  %c1 = arith.constant 1 : index
  %x = util.global.load immutable @constant : tensor<2x2xf32>
  %n = util.optimization_barrier %c1 : index
  %0 = util.optimization_barrier %x : tensor<2x2xf32>
  %m = arith.addi %n, %n : index
  %1 = flow.dispatch @sort::@sort(%0, %m) : (tensor<2x2xf32>, index) -> tensor<?xf32>{%m}
  util.return %1 : tensor<?xf32>
}
