// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-take-bytes)' | filecheck %s

// CHECK-LABEL: util.func public @main(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x2x16xi8>, %[[W:[a-z0-9]+]]: tensor<16x2x24xi8>, %[[S:[a-z0-9]+]]: tensor<16x2xf8E8M0FNU>) -> tensor<?x2x16xi8>
// CHECK-DAG: %[[N:.+]] = iree_tensor_ext.bitcast %[[X]] : tensor<?x2x16xi8>{%{{.+}}} -> tensor<?x2x32xf4E2M1FN>
// CHECK-DAG: iree_tensor_ext.bitcast %[[W]] : tensor<16x2x24xi8> -> tensor<16x2x32xf6E2M3FN>
// CHECK: %[[R:.+]] = iree_tensor_ext.bitcast %{{.+}} -> tensor<?x2x16xi8>
// CHECK: util.return %[[R]]
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
