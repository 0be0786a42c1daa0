// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-take-bytes)' | filecheck %s

// CHECK-LABEL: util.func public @main(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x2x16xi8>, %[[W:[a-z0-9]+]]: tensor<16x2x24xi8>, %[[S:[a-z0-9]+]]: tensor<16x2xf8E8M0FNU>) -> tensor<?x2x16xi8>
// CHECK-DAG: %[[N:.+]] = iree_tensor_ext.bitcast %[[X]] : tensor<?x2x16xi8>{%{{.+}}} -> tensor<?x2x32xf4E2M1FN>
// CHECK-DAG: iree_tensor_ext.bitcast %[[W]] : tensor<16x2x24xi8> -> tensor<16x2x32xf6E2M3FN>
// CHECK: util.return %[[X]]
util.func public @main(%x: tensor<?x2x32xf4E2M1FN>, %w: tensor<16x2x32xf6E2M3FN>, %s: tensor<16x2xf8E8M0FNU>)
    -> tensor<?x2x32xf4E2M1FN> {
  util.return %x : tensor<?x2x32xf4E2M1FN>
}

// No whole bytes, and what is called from inside.
// CHECK-LABEL: util.func public @parts(%{{.+}}: tensor<4x3xf4E2M1FN>)
util.func public @parts(%x: tensor<4x3xf4E2M1FN>) {
  util.return
}
// CHECK-LABEL: util.func private @inside(%{{.+}}: tensor<4x32xf4E2M1FN>)
util.func private @inside(%x: tensor<4x32xf4E2M1FN>) {
  util.return
}

// A call of a public function.
// CHECK-LABEL: util.func public @call(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x2x16xi8>, %[[W:[a-z0-9]+]]: tensor<16x2x24xi8>
// CHECK: %[[R:.+]] = util.call @main(%[[X]], %[[W]], %{{.+}}) : (tensor<?x2x16xi8>, tensor<16x2x24xi8>, tensor<16x2xf8E8M0FNU>) -> tensor<?x2x16xi8>
// CHECK: %[[F:.+]] = iree_tensor_ext.bitcast %[[R]] : tensor<?x2x16xi8>{%{{.+}}} -> tensor<?x2x32xf4E2M1FN>
// CHECK: %[[B:.+]] = iree_tensor_ext.bitcast %[[F]] : tensor<?x2x32xf4E2M1FN>{%{{.+}}} -> tensor<?x2x16xi8>
// CHECK: util.return %[[B]]
util.func public @call(%x: tensor<?x2x32xf4E2M1FN>, %w: tensor<16x2x32xf6E2M3FN>, %s: tensor<16x2xf8E8M0FNU>)
    -> tensor<?x2x32xf4E2M1FN> {
  %r = util.call @main(%x, %w, %s)
      : (tensor<?x2x32xf4E2M1FN>, tensor<16x2x32xf6E2M3FN>, tensor<16x2xf8E8M0FNU>) -> tensor<?x2x32xf4E2M1FN>
  util.return %r : tensor<?x2x32xf4E2M1FN>
}
