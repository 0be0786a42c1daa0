// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-deduplicate-workloads)' | filecheck %s

// Sizes that are twice in a workload are in it once; what follows them has another number.

// CHECK-LABEL: flow.executable private @twice
// CHECK: workgroups(%[[M:.+]]: index, %[[U:.+]]: index)
// CHECK: workgroup_count_from_slice(%[[M]], %[[U]])
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
// CHECK: workgroups(%[[M:.+]]: index, %[[N:.+]]: index, %[[U:.+]]: index)
// CHECK: workgroup_count_from_slice(%[[M]], %[[N]], %[[U]])
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

// What follows has the number by which it is counted.

// CHECK-LABEL: flow.executable private @third
// CHECK: workgroup_count_from_slice(%{{.+}}, %{{.+}})
// CHECK: iree_tensor_ext.dispatch.workload.ordinal %{{.+}}, 0 : index
// CHECK: iree_tensor_ext.dispatch.workload.ordinal %{{.+}}, 1 : index
flow.executable private @third {
  flow.executable.export public @third workgroups(%0: index, %1: index, %2: index) -> (index, index, index) {
    %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice(%0, %1, %2)
    flow.return %x, %y, %z : index, index, index
  }
  builtin.module {
    func.func @third(%m: index, %n: index, %r: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<?x?xf32>>) {
      %0 = iree_tensor_ext.dispatch.workload.ordinal %m, 1 : index
      %1 = iree_tensor_ext.dispatch.workload.ordinal %n, 2 : index
      %2 = flow.dispatch.tie_shape %r : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<?x?xf32>>{%0, %1}
      return
    }
  }
}

// CHECK-LABEL: util.func public @main(
// CHECK-SAME: %[[M:.+]]: index, %[[N:.+]]: index)
// CHECK: flow.dispatch @twice::@twice[%[[M]], %[[N]]](%[[M]], %[[N]])
// CHECK: flow.dispatch @not_always::@not_always[%[[M]], %[[N]], %[[N]]](
// CHECK: flow.dispatch @not_always::@not_always[%[[M]], %[[M]], %[[N]]](
// CHECK: flow.dispatch @third::@third[%[[M]], %[[N]]](
util.func public @main(%m: index, %n: index) -> (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) {
  %0 = flow.dispatch @twice::@twice[%m, %n, %n, %m](%m, %n) : (index, index) -> tensor<?x?xf32>{%m, %n}
  %1 = flow.dispatch @not_always::@not_always[%m, %n, %n, %m](%m, %n) : (index, index) -> tensor<?x?xf32>{%m, %n}
  %2 = flow.dispatch @not_always::@not_always[%m, %m, %n, %m](%m, %n) : (index, index) -> tensor<?x?xf32>{%m, %n}
  %3 = flow.dispatch @third::@third[%m, %m, %n](%m, %n) : (index, index) -> tensor<?x?xf32>{%m, %n}
  util.return %0, %1, %2, %3 : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>
}
