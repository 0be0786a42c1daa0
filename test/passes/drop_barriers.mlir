// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-drop-barriers)' | filecheck %s

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
