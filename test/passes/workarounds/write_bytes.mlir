// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-write-bytes)' | filecheck %s

// Bytes that are there already are joined.

// CHECK-LABEL: util.func public @join(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<8x2x16xi8>, %[[Y:[a-z0-9]+]]: tensor<8x?x32xf4E2M1FN>)
// CHECK: %[[B:.+]] = iree_tensor_ext.bitcast %[[Y]] : tensor<8x?x32xf4E2M1FN>{%{{.+}}} -> tensor<8x?x16xi8>
// CHECK: %[[J:.+]] = tensor.concat dim(1) %[[X]], %[[B]] : (tensor<8x2x16xi8>, tensor<8x?x16xi8>) -> tensor<8x?x16xi8>
// CHECK: iree_tensor_ext.bitcast %[[J]] : tensor<8x?x16xi8>{%{{.+}}} -> tensor<8x?x32xf4E2M1FN>
util.func public @join(%x: tensor<8x2x16xi8>, %y: tensor<8x?x32xf4E2M1FN>) -> tensor<8x?x32xf4E2M1FN> {
  %a = iree_tensor_ext.bitcast %x : tensor<8x2x16xi8> -> tensor<8x2x32xf4E2M1FN>
  %c = tensor.concat dim(1) %a, %y : (tensor<8x2x32xf4E2M1FN>, tensor<8x?x32xf4E2M1FN>) -> tensor<8x?x32xf4E2M1FN>
  util.return %c : tensor<8x?x32xf4E2M1FN>
}

// CHECK-LABEL: util.func public @overwrite(
// CHECK: tensor.insert_slice %{{.+}} into %{{.+}}[%{{.+}}, 24] [1, 12] [1, 1] : tensor<12xi8> into tensor<4x48xi8>
util.func public @overwrite(%x: tensor<16xf6E2M3FN>, %y: tensor<4x64xf6E2M3FN>, %i: index) -> tensor<4x64xf6E2M3FN> {
  %c = tensor.insert_slice %x into %y[%i, 32] [1, 16] [1, 1] : tensor<16xf6E2M3FN> into tensor<4x64xf6E2M3FN>
  util.return %c : tensor<4x64xf6E2M3FN>
}

// CHECK-LABEL: util.func public @pad(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x24xf4E2M1FN>, %[[LOW:[a-z0-9]+]]: index)
// CHECK: %[[Z:.+]] = arith.constant 0 : i8
// CHECK: %[[F:.+]] = linalg.fill ins(%[[Z]] : i8) outs(%{{.+}} : tensor<?x16xi8>)
// CHECK: tensor.insert_slice %{{.+}} into %[[F]][%[[LOW]], 0] [%{{.+}}, 12] [1, 1] : tensor<?x12xi8> into tensor<?x16xi8>
util.func public @pad(%x: tensor<?x24xf4E2M1FN>, %low: index) -> tensor<?x32xf4E2M1FN> {
  %p = tensor.pad %x low[%low, 0] high[1, 8] {
  ^bb0(%i: index, %j: index):
    %z = arith.constant 0.0 : f4E2M1FN
    tensor.yield %z : f4E2M1FN
  } : tensor<?x24xf4E2M1FN> to tensor<?x32xf4E2M1FN>
  util.return %p : tensor<?x32xf4E2M1FN>
}

// Of another number, elements are filled.
// CHECK-LABEL: util.func public @ones(
// CHECK: linalg.fill ins(%{{.+}} : f4E2M1FN)
// CHECK: tensor.insert_slice {{.+}} : tensor<4x16xi8> into tensor<8x16xi8>
util.func public @ones(%x: tensor<4x32xf4E2M1FN>) -> tensor<8x32xf4E2M1FN> {
  %z = arith.constant 1.0 : f4E2M1FN
  %p = tensor.pad %x low[0, 0] high[4, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %z : f4E2M1FN
  } : tensor<4x32xf4E2M1FN> to tensor<8x32xf4E2M1FN>
  util.return %p : tensor<8x32xf4E2M1FN>
}

// A part of a byte, and elements that are bytes.
// CHECK-LABEL: util.func public @others(
// CHECK: tensor.insert_slice {{.+}} : tensor<4x2xf4E2M1FN> into tensor<4x32xf4E2M1FN>
// CHECK: tensor.concat dim(1) {{.+}} : (tensor<4x2xf8E5M2>, tensor<4x2xf8E5M2>) -> tensor<4x4xf8E5M2>
util.func public @others(%x: tensor<4x2xf4E2M1FN>, %y: tensor<4x32xf4E2M1FN>, %z: tensor<4x2xf8E5M2>)
    -> (tensor<4x32xf4E2M1FN>, tensor<4x4xf8E5M2>) {
  %c = tensor.insert_slice %x into %y[0, 1] [4, 2] [1, 1] : tensor<4x2xf4E2M1FN> into tensor<4x32xf4E2M1FN>
  %d = tensor.concat dim(1) %z, %z : (tensor<4x2xf8E5M2>, tensor<4x2xf8E5M2>) -> tensor<4x4xf8E5M2>
  util.return %c, %d : tensor<4x32xf4E2M1FN>, tensor<4x4xf8E5M2>
}
