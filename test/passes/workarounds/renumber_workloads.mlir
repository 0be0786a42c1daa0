// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-renumber-workloads)' | filecheck %s

// Sizes that are twice in a workload are asked for by their first place in it.

// CHECK-LABEL: flow.executable private @twice
// CHECK: iree_tensor_ext.dispatch.workload.ordinal %{{.+}}, 0 : index
// CHECK: iree_tensor_ext.dispatch.workload.ordinal %{{.+}}, 1 : index
flow.executable private @twice {
  flow.executable.export public @twice workgroups(%0: index, %1: index, %2: index, %3: index) -> (index, index, index) {
    %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice(%0, %1, %2, %3)
    flow.return %x, %y, %z : index, index, index
  }
  builtin.module {
    func.func @twice(%m: index, %units: index, %r: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<?x?xf32>>) {
      %0 = iree_tensor_ext.dispatch.workload.ordinal %m, 3 : index
      %1 = iree_tensor_ext.dispatch.workload.ordinal %units, 2 : index
      %2 = flow.dispatch.tie_shape %r : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<?x?xf32>>{%0, %1}
      return
    }
  }
}

// Only where that holds of all dispatches.

// CHECK-LABEL: flow.executable private @not_always
// CHECK: iree_tensor_ext.dispatch.workload.ordinal %{{.+}}, 0 : index
// CHECK: iree_tensor_ext.dispatch.workload.ordinal %{{.+}}, 2 : index
flow.executable private @not_always {
  flow.executable.export public @not_always workgroups(%0: index, %1: index, %2: index, %3: index) -> (index, index, index) {
    %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice(%0, %1, %2, %3)
    flow.return %x, %y, %z : index, index, index
  }
  builtin.module {
    func.func @not_always(%m: index, %units: index, %r: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<?x?xf32>>) {
      %0 = iree_tensor_ext.dispatch.workload.ordinal %m, 3 : index
      %1 = iree_tensor_ext.dispatch.workload.ordinal %units, 2 : index
      %2 = flow.dispatch.tie_shape %r : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<?x?xf32>>{%0, %1}
      return
    }
  }
}

util.func public @main(%m: index, %n: index) -> (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) {
  %0 = flow.dispatch @twice::@twice[%m, %n, %n, %m](%m, %n) : (index, index) -> tensor<?x?xf32>{%m, %n}
  %1 = flow.dispatch @not_always::@not_always[%m, %n, %n, %m](%m, %n) : (index, index) -> tensor<?x?xf32>{%m, %n}
  %2 = flow.dispatch @not_always::@not_always[%m, %m, %n, %m](%m, %n) : (index, index) -> tensor<?x?xf32>{%m, %n}
  util.return %0, %1, %2 : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>
}
