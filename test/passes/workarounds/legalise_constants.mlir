// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-constants)' | filecheck %s

// Constants of narrow floats, and globals that never change, are bytes; others, and rows of no whole bytes, stay.

// CHECK: util.global private @weights = dense<{{.*}}> : tensor<2x16xi8>
// CHECK: util.global private mutable @state = dense<{{.*}}> : tensor<2x32xf4E2M1FN>
util.global private @weights = dense<1.5> : tensor<2x32xf4E2M1FN>
util.global private mutable @state = dense<1.5> : tensor<2x32xf4E2M1FN>

// CHECK-LABEL: util.func public @bytes(
// CHECK: %[[C:.+]] = arith.constant dense<{{\[\[}}56, -64]]> : tensor<1x2xi8>
// CHECK: iree_tensor_ext.bitcast %[[C]] : tensor<1x2xi8> -> tensor<1x2xf8E4M3FN>
// CHECK: %[[W:.+]] = util.global.load @weights : tensor<2x16xi8>
// CHECK: iree_tensor_ext.bitcast %[[W]] : tensor<2x16xi8> -> tensor<2x32xf4E2M1FN>
// CHECK: util.global.load @state : tensor<2x32xf4E2M1FN>
util.func @bytes() -> (tensor<1x2xf8E4M3FN>, tensor<2x32xf4E2M1FN>, tensor<2x32xf4E2M1FN>) {
  %c = arith.constant dense<[[1.0, -2.0]]> : tensor<1x2xf8E4M3FN>
  %w = util.global.load @weights : tensor<2x32xf4E2M1FN>
  %s = util.global.load @state : tensor<2x32xf4E2M1FN>
  util.return %c, %w, %s : tensor<1x2xf8E4M3FN>, tensor<2x32xf4E2M1FN>, tensor<2x32xf4E2M1FN>
}

// CHECK-LABEL: util.func public @others(
// CHECK-NOT: iree_tensor_ext.bitcast
// CHECK: util.return
util.func @others() -> (tensor<2xf16>, tensor<3xf4E2M1FN>, tensor<2xi8>) {
  %a = arith.constant dense<1.0> : tensor<2xf16>
  %b = arith.constant dense<1.0> : tensor<3xf4E2M1FN>
  %c = arith.constant dense<1> : tensor<2xi8>
  util.return %a, %b, %c : tensor<2xf16>, tensor<3xf4E2M1FN>, tensor<2xi8>
}
