// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-unite-sizes)' | filecheck %s

// An argument that nothing reads has no size.
module attributes {mxcomp.equal_sizes = {main = [[[0, 0], [1, 1], [2, 0], [3, 0]]], other = [[[0, 0], [1, 0]]]}} {

// CHECK-LABEL: util.func public @main$async(
// CHECK: %[[M:.+]] = hal.buffer_view.dim<%[[X:.+]] : !hal.buffer_view>[0]
// CHECK: hal.tensor.import %[[X]] : !hal.buffer_view -> tensor<?x6xbf16>{%[[M]]}
// CHECK: %[[K:.+]] = hal.buffer_view.dim<%[[Y:.+]] : !hal.buffer_view>[0]
// CHECK: %[[N:.+]] = hal.buffer_view.dim<%[[Y]] : !hal.buffer_view>[1]
// CHECK: %[[SAME:.+]] = arith.cmpi eq, %[[M]], %[[N]] : index
// CHECK: cf.assert %[[SAME]], "mxcomp: dimension 0 of argument 0 and dimension 1 of argument 1 must be equal, as exported"
// CHECK: hal.tensor.import %[[Y]] : !hal.buffer_view -> tensor<?x?xbf16>{%[[K]], %[[M]]}
// CHECK: %[[L:.+]] = hal.buffer_view.dim<%[[Z:.+]] : !hal.buffer_view>[0]
// CHECK: arith.cmpi eq, %[[M]], %[[L]] : index
// CHECK: "mxcomp: dimension 0 of argument 0 and dimension 0 of argument 3 must be equal, as exported"
// CHECK: hal.tensor.import %[[Z]] : !hal.buffer_view -> tensor<?xbf16>{%[[M]]}
util.func public @main$async(%x: !hal.buffer_view, %y: !hal.buffer_view, %unread: !hal.buffer_view, %z: !hal.buffer_view)
    -> (tensor<?x6xbf16>, tensor<?x?xbf16>, tensor<?xbf16>) {
  %m = hal.buffer_view.dim<%x : !hal.buffer_view>[0] : index
  %0 = hal.tensor.import %x : !hal.buffer_view -> tensor<?x6xbf16>{%m}
  %k = hal.buffer_view.dim<%y : !hal.buffer_view>[0] : index
  %n = hal.buffer_view.dim<%y : !hal.buffer_view>[1] : index
  %1 = hal.tensor.import %y : !hal.buffer_view -> tensor<?x?xbf16>{%k, %n}
  %l = hal.buffer_view.dim<%z : !hal.buffer_view>[0] : index
  %2 = hal.tensor.import %z : !hal.buffer_view -> tensor<?xbf16>{%l}
  util.return %0, %1, %2 : tensor<?x6xbf16>, tensor<?x?xbf16>, tensor<?xbf16>
}

// Sizes of other functions, of which nothing is noted.
// CHECK-LABEL: util.func public @unnoted(
// CHECK-NOT: cf.assert
// CHECK: util.return
util.func public @unnoted(%x: !hal.buffer_view, %y: !hal.buffer_view) -> (index, index) {
  %m = hal.buffer_view.dim<%x : !hal.buffer_view>[0] : index
  %n = hal.buffer_view.dim<%y : !hal.buffer_view>[0] : index
  util.return %m, %n : index, index
}
}
