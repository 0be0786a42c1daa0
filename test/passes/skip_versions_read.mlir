// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-skip-versions)' | filecheck %s

// What packs for a single version runs with others too, if something else reads that.

// CHECK-LABEL: util.func public @packed_for_two(
// CHECK-SAME: %[[X:.+]]: tensor<?x4xf32>, %[[M:.+]]: index
// CHECK: %[[PACKED:.+]] = flow.dispatch @pack::@pack[%[[M]]](%[[X]], %[[M]])
// CHECK: %[[MANY:.+]] = flow.dispatch @many::@many[%[[M]], %{{.+}}](%[[PACKED]], %[[M]])
// CHECK: %[[FEW:.+]] = flow.dispatch @few::@few[%[[M]], %{{.+}}](%[[X]], %[[M]], %[[MANY]])
// CHECK: util.return %[[FEW]], %[[PACKED]]

!in = !iree_tensor_ext.dispatch.tensor<readonly:tensor<?x4xf32>>
!out = !iree_tensor_ext.dispatch.tensor<writeonly:tensor<?x4xf32>>
flow.executable private @pack {
  flow.executable.export public @pack workgroups(%m: index) -> (index, index, index) {
    %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice(%m)
    flow.return %x, %y, %z : index, index, index
  }
  builtin.module {
    func.func @pack(%a: !in, %m: index, %r: !out) {
      return
    }
  }
}
flow.executable private @few {
  flow.executable.export public @few workgroups(%m: index) -> (index, index, index) {
    %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice(%m)
    flow.return %x, %y, %z : index, index, index
  }
  builtin.module {
    func.func @few(%a: !in, %m: index, %r: !out) {
      return
    }
  }
}
flow.executable private @many {
  flow.executable.export public @many workgroups(%m: index) -> (index, index, index) {
    %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice(%m)
    flow.return %x, %y, %z : index, index, index
  }
  builtin.module {
    func.func @many(%a: !in, %m: index, %r: !out) {
      return
    }
  }
}

util.func public @packed_for_two(%x: tensor<?x4xf32>, %m: index) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %c16 = arith.constant 16 : index
  %packed = flow.dispatch @pack::@pack[%m](%x, %m) : (tensor<?x4xf32>{%m}, index) -> tensor<?x4xf32>{%m}
  %few = flow.dispatch @few::@few[%m](%x, %m) : (tensor<?x4xf32>{%m}, index) -> tensor<?x4xf32>{%m}
  %many = flow.dispatch @many::@many[%m](%packed, %m) : (tensor<?x4xf32>{%m}, index) -> tensor<?x4xf32>{%m}
  %is_few = arith.cmpi ule, %m, %c16 : index
  %r = arith.select %is_few, %few, %many {mxcomp.versions} : tensor<?x4xf32>
  util.return %r, %packed : tensor<?x4xf32>, tensor<?x4xf32>
}
