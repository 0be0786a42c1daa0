// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-bitcasts)' | filecheck %s

// A bitcast of static bytes whose sizes a cast hides is one of static bytes; what is dynamic stays.

// CHECK-LABEL: util.func public @hidden(
// CHECK: %[[B:.+]] = iree_tensor_ext.bitcast %arg0 : tensor<4x32xi8> -> tensor<4x2x32xf4E2M1FN>
// CHECK: tensor.cast %[[B]] : tensor<4x2x32xf4E2M1FN> to tensor<?x2x32xf4E2M1FN>
util.func @hidden(%x: tensor<4x32xi8>) -> tensor<?x2x32xf4E2M1FN> {
  %c0 = arith.constant 0 : index
  %d = tensor.cast %x : tensor<4x32xi8> to tensor<?x32xi8>
  %n = tensor.dim %d, %c0 : tensor<?x32xi8>
  %e = iree_tensor_ext.bitcast %d : tensor<?x32xi8>{%n} -> tensor<?x2x32xf4E2M1FN>{%n}
  util.return %e : tensor<?x2x32xf4E2M1FN>
}

// CHECK-LABEL: util.func public @dynamic(
// CHECK-NOT: tensor.cast
// CHECK: iree_tensor_ext.bitcast %arg0 : tensor<?x32xi8>{
util.func @dynamic(%d: tensor<?x32xi8>) -> tensor<?x2x32xf4E2M1FN> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %d, %c0 : tensor<?x32xi8>
  %e = iree_tensor_ext.bitcast %d : tensor<?x32xi8>{%n} -> tensor<?x2x32xf4E2M1FN>{%n}
  util.return %e : tensor<?x2x32xf4E2M1FN>
}
