// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-place-results)' | filecheck %s

flow.executable private @iota {
  flow.executable.export public @iota workgroups(%n: index) -> (index, index, index) {
    %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice(%n)
    flow.return %x, %y, %z : index, index, index
  }
  builtin.module {
    func.func @iota(%n: index, %r: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<?xi32>>) {
      return
    }
  }
}
flow.executable private @sort {
  flow.executable.export public @sort workgroups(%n: index) -> (index, index, index) {
    %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice(%n)
    flow.return %x, %y, %z : index, index, index
  }
  builtin.module {
    func.func @sort(%x: !iree_tensor_ext.dispatch.tensor<readonly:tensor<?x4xf32>>, %i: !iree_tensor_ext.dispatch.tensor<readwrite:tensor<?x4xi32>>, %n: index) {
      return
    }
  }
}

// Two sorts of one table, seen in another shape: it is written into a tensor that is an operand.

// CHECK-LABEL: util.func public @shared
// CHECK: %[[E:.+]] = flow.tensor.empty : tensor<?xi32>{%[[N:.+]]}
// CHECK: %[[I:.+]] = flow.dispatch @iota::@iota[%[[N]]](%[[N]], %[[E]]) : (index, tensor<?xi32>{%[[N]]}) -> %[[E]]{%[[N]]}
// CHECK: flow.tensor.reshape %[[I]]
util.func public @shared(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>, %m: index, %n: index) -> (tensor<?x4xi32>, tensor<?x4xi32>) {
  %0 = flow.dispatch @iota::@iota[%n](%n) : (index) -> tensor<?xi32>{%n}
  %i = flow.tensor.reshape %0 : tensor<?xi32>{%n} -> tensor<?x4xi32>{%m}
  %r = flow.dispatch @sort::@sort[%m](%x, %i, %m) : (tensor<?x4xf32>{%m}, tensor<?x4xi32>{%m}, index) -> %i{%m}
  %s = flow.dispatch @sort::@sort[%m](%y, %i, %m) : (tensor<?x4xf32>{%m}, tensor<?x4xi32>{%m}, index) -> %i{%m}
  util.return %r, %s : tensor<?x4xi32>, tensor<?x4xi32>
}

// One sort alone has its own as well: another function, or initialiser, may have the same, and CSE make one of both.

// CHECK-LABEL: util.func public @alone
// CHECK: %[[E:.+]] = flow.tensor.empty : tensor<?xi32>{%[[N:.+]]}
// CHECK: flow.dispatch @iota::@iota[%[[N]]](%[[N]], %[[E]]) : (index, tensor<?xi32>{%[[N]]}) -> %[[E]]{%[[N]]}
util.func public @alone(%x: tensor<?x4xf32>, %m: index, %n: index) -> tensor<?x4xi32> {
  %0 = flow.dispatch @iota::@iota[%n](%n) : (index) -> tensor<?xi32>{%n}
  %i = flow.tensor.reshape %0 : tensor<?xi32>{%n} -> tensor<?x4xi32>{%m}
  %r = flow.dispatch @sort::@sort[%m](%x, %i, %m) : (tensor<?x4xf32>{%m}, tensor<?x4xi32>{%m}, index) -> %i{%m}
  util.return %r : tensor<?x4xi32>
}

// What is only read is shared as it is.

// CHECK-LABEL: util.func public @read
// CHECK-NOT: flow.tensor.empty
util.func public @read(%m: index) -> (!hal.buffer_view, !hal.buffer_view) {
  %0 = flow.dispatch @iota::@iota[%m](%m) : (index) -> tensor<?xi32>{%m}
  %1 = hal.tensor.export %0 : tensor<?xi32>{%m} -> !hal.buffer_view
  %2 = hal.tensor.export %0 : tensor<?xi32>{%m} -> !hal.buffer_view
  util.return %1, %2 : !hal.buffer_view, !hal.buffer_view
}

// A table that has a tensor as operand is copied by IREE.

// CHECK-LABEL: util.func public @of_a_tensor
// CHECK-NOT: flow.tensor.empty
util.func public @of_a_tensor(%x: tensor<?x4xf32>, %i: tensor<?x4xi32>, %m: index) -> (tensor<?x4xi32>, tensor<?x4xi32>) {
  %0 = flow.dispatch @sort::@sort[%m](%x, %i, %m) : (tensor<?x4xf32>{%m}, tensor<?x4xi32>{%m}, index) -> tensor<?x4xi32>{%m}
  %r = flow.dispatch @sort::@sort[%m](%x, %0, %m) : (tensor<?x4xf32>{%m}, tensor<?x4xi32>{%m}, index) -> %0{%m}
  %s = flow.dispatch @sort::@sort[%m](%x, %0, %m) : (tensor<?x4xf32>{%m}, tensor<?x4xi32>{%m}, index) -> %0{%m}
  util.return %r, %s : tensor<?x4xi32>, tensor<?x4xi32>
}
