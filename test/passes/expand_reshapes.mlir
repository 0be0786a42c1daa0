// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-expand-reshapes)' | filecheck %s

// Reshapes by sizes that the running program knows: as expansions and collapses where that is what they are.

// CHECK-LABEL: util.func public @expansion(
// CHECK-SAME: %[[X:.+]]: tensor<?x576xbf16>, %[[T:[a-z0-9]+]]: i64
// CHECK: %[[N:.+]] = arith.index_cast %[[T]] : i64 to index
// CHECK: %[[R:.+]] = tensor.expand_shape %[[X]] {{\[\[}}0, 1], [2]] output_shape [2, %[[N]], 576] : tensor<?x576xbf16> into tensor<2x?x576xbf16>
// CHECK: util.return %[[R]]
util.func @expansion(%x: tensor<?x576xbf16>, %t: i64) -> tensor<2x?x576xbf16> {
  %c2 = arith.constant 2 : i64
  %c576 = arith.constant 576 : i64
  %sizes = tensor.from_elements %c2, %t, %c576 : tensor<3xi64>
  %r = tensor.reshape %x(%sizes) : (tensor<?x576xbf16>, tensor<3xi64>) -> tensor<2x?x576xbf16>
  util.return %r : tensor<2x?x576xbf16>
}

// Sizes that are in memory.
// CHECK-LABEL: util.func public @two_sizes(
// CHECK-SAME: %[[X:.+]]: tensor<?x576xbf16>, %[[S:.+]]: tensor<4xindex>
// CHECK-DAG: %[[B:.+]] = tensor.extract %[[S]][%{{c0.*}}]
// CHECK-DAG: %[[T:.+]] = tensor.extract %[[S]][%{{c1.*}}]
// CHECK: tensor.expand_shape %[[X]] {{\[\[}}0, 1], [2, 3]] output_shape [%[[B]], %[[T]], 18, 32]
util.func @two_sizes(%x: tensor<?x576xbf16>, %s: tensor<4xindex>) -> tensor<?x?x18x32xbf16> {
  %r = tensor.reshape %x(%s) : (tensor<?x576xbf16>, tensor<4xindex>) -> tensor<?x?x18x32xbf16>
  util.return %r : tensor<?x?x18x32xbf16>
}

// CHECK-LABEL: util.func public @collapse(
// CHECK: tensor.collapse_shape %{{.+}} {{\[\[}}0, 1], [2]] : tensor<?x?x576xbf16> into tensor<?x576xbf16>
util.func @collapse(%x: tensor<?x?x576xbf16>, %s: tensor<2xindex>) -> tensor<?x576xbf16> {
  %r = tensor.reshape %x(%s) : (tensor<?x?x576xbf16>, tensor<2xindex>) -> tensor<?x576xbf16>
  util.return %r : tensor<?x576xbf16>
}

// A one is part of any of its neighbours.
// CHECK-LABEL: util.func public @one(
// CHECK: tensor.expand_shape
util.func @one(%x: tensor<?x64xbf16>, %s: tensor<3xindex>) -> tensor<?x1x64xbf16> {
  %r = tensor.reshape %x(%s) : (tensor<?x64xbf16>, tensor<3xindex>) -> tensor<?x1x64xbf16>
  util.return %r : tensor<?x1x64xbf16>
}

// Sizes that are the same, whatever they are.
// CHECK-LABEL: util.func public @several(
// CHECK: tensor.expand_shape %{{.+}} {{\[\[}}0, 1], [2], [3]] output_shape [1, 8,
// CHECK: tensor.collapse_shape %{{.+}} {{\[\[}}0, 1], [2], [3]] : tensor<?x8x?x?xbf16> into tensor<?x?x?xbf16>
// CHECK-NOT: tensor.reshape
util.func @several(%x: tensor<8x?x?xbf16>, %y: tensor<?x8x?x?xbf16>) -> (tensor<1x8x?x?xbf16>, tensor<?x?x?xbf16>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c8 = arith.constant 8 : index
  %t = tensor.dim %x, %c1 : tensor<8x?x?xbf16>
  %l = tensor.dim %x, %c2 : tensor<8x?x?xbf16>
  %u = tensor.from_elements %c1, %c8, %t, %l : tensor<4xindex>
  %0 = tensor.reshape %x(%u) : (tensor<8x?x?xbf16>, tensor<4xindex>) -> tensor<1x8x?x?xbf16>
  %b = tensor.dim %y, %c0 : tensor<?x8x?x?xbf16>
  %q = tensor.dim %y, %c2 : tensor<?x8x?x?xbf16>
  %k = tensor.dim %y, %c3 : tensor<?x8x?x?xbf16>
  %n = arith.muli %b, %c8 : index
  %v = tensor.from_elements %n, %q, %k : tensor<3xindex>
  %1 = tensor.reshape %y(%v) : (tensor<?x8x?x?xbf16>, tensor<3xindex>) -> tensor<?x?x?xbf16>
  util.return %0, %1 : tensor<1x8x?x?xbf16>, tensor<?x?x?xbf16>
}

// Either of two may be split; sizes may move between dimensions.
// CHECK-LABEL: util.func public @left(
// CHECK-COUNT-3: tensor.reshape
util.func @left(%x: tensor<?x?xbf16>, %y: tensor<?x64xbf16>, %s: tensor<3xindex>, %u: tensor<2xindex>, %v: tensor<4xindex>)
    -> (tensor<?x2x?xbf16>, tensor<?x32xbf16>, tensor<2x?x4x16xbf16>) {
  %0 = tensor.reshape %x(%s) : (tensor<?x?xbf16>, tensor<3xindex>) -> tensor<?x2x?xbf16>
  %1 = tensor.reshape %y(%u) : (tensor<?x64xbf16>, tensor<2xindex>) -> tensor<?x32xbf16>
  %2 = tensor.reshape %x(%v) : (tensor<?x?xbf16>, tensor<4xindex>) -> tensor<2x?x4x16xbf16>
  util.return %0, %1, %2 : tensor<?x2x?xbf16>, tensor<?x32xbf16>, tensor<2x?x4x16xbf16>
}
