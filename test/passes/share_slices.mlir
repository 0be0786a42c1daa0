// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-share-slices)' | filecheck %s

// Three layers read a matrix of a stack and two rows of another, of which one goes along with the matrix; all write one
// row of a result that they are given.

// CHECK-LABEL: flow.executable private @layer_0
// CHECK: func.func @layer_0(
// CHECK-SAME: %[[X:[a-z0-9]+]]: !iree_tensor_ext.dispatch.tensor<readonly:tensor<3x4x8xf32>>,
// CHECK-SAME: %[[ROWS:[a-z0-9]+]]: !iree_tensor_ext.dispatch.tensor<readonly:tensor<5x8xf32>>,
// CHECK-SAME: %[[SIZE:[a-z0-9]+]]: index,
// CHECK-SAME: %[[OUT:[a-z0-9]+]]: !iree_tensor_ext.dispatch.tensor<readwrite:tensor<2x4x8xf32>>,
// CHECK-SAME: %[[I:[a-z0-9]+]]: index, %[[J:[a-z0-9]+]]: index)
// CHECK: dispatch.tensor.load %[[X]], offsets = [%[[I]], 0, 0], sizes = [1, 4, 8]
// CHECK: dispatch.tensor.load %[[ROWS]], offsets = [%[[J]], 0], sizes = [1, 8]
// CHECK: dispatch.tensor.load %[[ROWS]], offsets = [%[[I]], 0], sizes = [1, 8]
// CHECK: dispatch.tensor.store {{.*}}, %[[OUT]], offsets = [1, %[[SIZE]], 0], sizes = [1, 1, 8]
// CHECK-NOT: @layer_1
// CHECK-NOT: @layer_2

// More than one element of the dimension is read: these stay apart.
// CHECK: flow.executable private @wide_0
// CHECK: dispatch.tensor.load {{.*}}, offsets = [0, 0], sizes = [2, 8]
// CHECK: flow.executable private @wide_1
// CHECK: dispatch.tensor.load {{.*}}, offsets = [1, 0], sizes = [2, 8]

// Which of both runs is decided later: they stay as they are.
// CHECK: flow.executable private @either_0
// CHECK: dispatch.tensor.load {{.*}}, offsets = [0, 0], sizes = [1, 8]
// CHECK: flow.executable private @either_1
// CHECK: dispatch.tensor.load {{.*}}, offsets = [1, 0], sizes = [1, 8]

// Nothing else is like it, and its offset stays what it is.
// CHECK: flow.executable private @alone
// CHECK: dispatch.tensor.load {{.*}}, offsets = [3, 0], sizes = [1, 8]

!stack = tensor<3x4x8xf32>
!rows = tensor<5x8xf32>
!out = tensor<2x4x8xf32>

flow.executable private @layer_0 {
  flow.executable.export public @layer_0 workgroups() -> (index, index, index) {
    %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice()
    flow.return %x, %y, %z : index, index, index
  }
  builtin.module {
    func.func @layer_0(%x: !iree_tensor_ext.dispatch.tensor<readonly:!stack>, %rows: !iree_tensor_ext.dispatch.tensor<readonly:!rows>, %at: index, %out: !iree_tensor_ext.dispatch.tensor<readwrite:!out>) {
      %0 = iree_tensor_ext.dispatch.tensor.load %x, offsets = [0, 0, 0], sizes = [1, 4, 8], strides = [1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:!stack> -> tensor<4x8xf32>
      %1 = iree_tensor_ext.dispatch.tensor.load %rows, offsets = [4, 0], sizes = [1, 8], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:!rows> -> tensor<8xf32>
      %2 = iree_tensor_ext.dispatch.tensor.load %rows, offsets = [0, 0], sizes = [1, 8], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:!rows> -> tensor<8xf32>
      %4 = linalg.reduce { arith.addf } ins(%0 : tensor<4x8xf32>) outs(%1 : tensor<8xf32>) dimensions = [0]
      %5 = arith.addf %4, %2 : tensor<8xf32>
      iree_tensor_ext.dispatch.tensor.store %5, %out, offsets = [1, %at, 0], sizes = [1, 1, 8], strides = [1, 1, 1] : tensor<8xf32> -> !iree_tensor_ext.dispatch.tensor<readwrite:!out>
      return
    }
  }
}
flow.executable private @layer_1 {
  flow.executable.export public @layer_1 workgroups() -> (index, index, index) {
    %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice()
    flow.return %x, %y, %z : index, index, index
  }
  builtin.module {
    func.func @layer_1(%x: !iree_tensor_ext.dispatch.tensor<readonly:!stack>, %rows: !iree_tensor_ext.dispatch.tensor<readonly:!rows>, %at: index, %out: !iree_tensor_ext.dispatch.tensor<readwrite:!out>) {
      %0 = iree_tensor_ext.dispatch.tensor.load %x, offsets = [1, 0, 0], sizes = [1, 4, 8], strides = [1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:!stack> -> tensor<4x8xf32>
      %1 = iree_tensor_ext.dispatch.tensor.load %rows, offsets = [2, 0], sizes = [1, 8], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:!rows> -> tensor<8xf32>
      %2 = iree_tensor_ext.dispatch.tensor.load %rows, offsets = [1, 0], sizes = [1, 8], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:!rows> -> tensor<8xf32>
      %4 = linalg.reduce { arith.addf } ins(%0 : tensor<4x8xf32>) outs(%1 : tensor<8xf32>) dimensions = [0]
      %5 = arith.addf %4, %2 : tensor<8xf32>
      iree_tensor_ext.dispatch.tensor.store %5, %out, offsets = [1, %at, 0], sizes = [1, 1, 8], strides = [1, 1, 1] : tensor<8xf32> -> !iree_tensor_ext.dispatch.tensor<readwrite:!out>
      return
    }
  }
}
flow.executable private @layer_2 {
  flow.executable.export public @layer_2 workgroups() -> (index, index, index) {
    %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice()
    flow.return %x, %y, %z : index, index, index
  }
  builtin.module {
    func.func @layer_2(%x: !iree_tensor_ext.dispatch.tensor<readonly:!stack>, %rows: !iree_tensor_ext.dispatch.tensor<readonly:!rows>, %at: index, %out: !iree_tensor_ext.dispatch.tensor<readwrite:!out>) {
      %0 = iree_tensor_ext.dispatch.tensor.load %x, offsets = [2, 0, 0], sizes = [1, 4, 8], strides = [1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:!stack> -> tensor<4x8xf32>
      %1 = iree_tensor_ext.dispatch.tensor.load %rows, offsets = [2, 0], sizes = [1, 8], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:!rows> -> tensor<8xf32>
      %2 = iree_tensor_ext.dispatch.tensor.load %rows, offsets = [2, 0], sizes = [1, 8], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:!rows> -> tensor<8xf32>
      %4 = linalg.reduce { arith.addf } ins(%0 : tensor<4x8xf32>) outs(%1 : tensor<8xf32>) dimensions = [0]
      %5 = arith.addf %4, %2 : tensor<8xf32>
      iree_tensor_ext.dispatch.tensor.store %5, %out, offsets = [1, %at, 0], sizes = [1, 1, 8], strides = [1, 1, 1] : tensor<8xf32> -> !iree_tensor_ext.dispatch.tensor<readwrite:!out>
      return
    }
  }
}
flow.executable private @wide_0 {
  flow.executable.export public @wide_0
  builtin.module {
    func.func @wide_0(%x: !iree_tensor_ext.dispatch.tensor<readonly:!rows>, %out: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<2x8xf32>>) {
      %0 = iree_tensor_ext.dispatch.tensor.load %x, offsets = [0, 0], sizes = [2, 8], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:!rows> -> tensor<2x8xf32>
      iree_tensor_ext.dispatch.tensor.store %0, %out, offsets = [0, 0], sizes = [2, 8], strides = [1, 1] : tensor<2x8xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<2x8xf32>>
      return
    }
  }
}
flow.executable private @wide_1 {
  flow.executable.export public @wide_1
  builtin.module {
    func.func @wide_1(%x: !iree_tensor_ext.dispatch.tensor<readonly:!rows>, %out: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<2x8xf32>>) {
      %0 = iree_tensor_ext.dispatch.tensor.load %x, offsets = [1, 0], sizes = [2, 8], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:!rows> -> tensor<2x8xf32>
      iree_tensor_ext.dispatch.tensor.store %0, %out, offsets = [0, 0], sizes = [2, 8], strides = [1, 1] : tensor<2x8xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<2x8xf32>>
      return
    }
  }
}
flow.executable private @either_0 {
  flow.executable.export public @either_0
  builtin.module {
    func.func @either_0(%x: !iree_tensor_ext.dispatch.tensor<readonly:!rows>, %out: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<8xf32>>) {
      %0 = iree_tensor_ext.dispatch.tensor.load %x, offsets = [0, 0], sizes = [1, 8], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:!rows> -> tensor<8xf32>
      iree_tensor_ext.dispatch.tensor.store %0, %out, offsets = [0], sizes = [8], strides = [1] : tensor<8xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<8xf32>>
      return
    }
  }
}
flow.executable private @either_1 {
  flow.executable.export public @either_1
  builtin.module {
    func.func @either_1(%x: !iree_tensor_ext.dispatch.tensor<readonly:!rows>, %out: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<8xf32>>) {
      %0 = iree_tensor_ext.dispatch.tensor.load %x, offsets = [1, 0], sizes = [1, 8], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:!rows> -> tensor<8xf32>
      iree_tensor_ext.dispatch.tensor.store %0, %out, offsets = [0], sizes = [8], strides = [1] : tensor<8xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<8xf32>>
      return
    }
  }
}
flow.executable private @alone {
  flow.executable.export public @alone
  builtin.module {
    func.func @alone(%x: !iree_tensor_ext.dispatch.tensor<readonly:!rows>, %out: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<8xf32>>) {
      %0 = iree_tensor_ext.dispatch.tensor.load %x, offsets = [3, 0], sizes = [1, 8], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:!rows> -> tensor<8xf32>
      %2 = arith.negf %0 : tensor<8xf32>
      iree_tensor_ext.dispatch.tensor.store %2, %out, offsets = [0], sizes = [8], strides = [1] : tensor<8xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<8xf32>>
      return
    }
  }
}

// CHECK-LABEL: util.func public @model(
// CHECK-SAME: %[[STACK:[a-z0-9]+]]: tensor<3x4x8xf32>, %[[GIVEN:[a-z0-9]+]]: tensor<5x8xf32>, %[[RESULT:[a-z0-9]+]]: tensor<2x4x8xf32>, %[[PLACE:[a-z0-9]+]]: index)
// CHECK-DAG: %[[C0:.+]] = arith.constant 0 : index
// CHECK-DAG: %[[C4:.+]] = arith.constant 4 : index
// CHECK: %[[A:.+]] = flow.dispatch @layer_0::@layer_0(%[[STACK]], %[[GIVEN]], %[[PLACE]], %[[RESULT]], %[[C0]], %[[C4]]) : (tensor<3x4x8xf32>, tensor<5x8xf32>, index, tensor<2x4x8xf32>, index, index) -> %[[RESULT]]
// CHECK-DAG: %[[C1:.+]] = arith.constant 1 : index
// CHECK-DAG: %[[C2:.+]] = arith.constant 2 : index
// CHECK: %[[B:.+]] = flow.dispatch @layer_0::@layer_0(%[[STACK]], %[[GIVEN]], %[[PLACE]], %[[A]], %[[C1]], %[[C2]])
// CHECK: flow.dispatch @layer_0::@layer_0(%[[STACK]], %[[GIVEN]], %[[PLACE]], %[[B]],
util.func public @model(%x: !stack, %rows: !rows, %out: !out, %at: index) -> (!out, tensor<2x8xf32>, tensor<2x8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %0 = flow.dispatch @layer_0::@layer_0(%x, %rows, %at, %out) : (!stack, !rows, index, !out) -> %out
  %1 = flow.dispatch @layer_1::@layer_1(%x, %rows, %at, %0) : (!stack, !rows, index, !out) -> %0
  %2 = flow.dispatch @layer_2::@layer_2(%x, %rows, %at, %1) : (!stack, !rows, index, !out) -> %1
  %3 = flow.dispatch @wide_0::@wide_0(%rows) : (!rows) -> tensor<2x8xf32>
  %4 = flow.dispatch @wide_1::@wide_1(%rows) : (!rows) -> tensor<2x8xf32>
  %5 = flow.dispatch {@either_0::@either_0, @either_1::@either_1}(%rows) : (!rows) -> tensor<8xf32>
  %6 = flow.dispatch @alone::@alone(%rows) : (!rows) -> tensor<8xf32>
  util.return %2, %3, %4, %5, %6 : !out, tensor<2x8xf32>, tensor<2x8xf32>, tensor<8xf32>, tensor<8xf32>
}
