// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-keep-for-steps)' | filecheck %s

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
