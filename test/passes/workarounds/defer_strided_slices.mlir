// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-defer-strided-slices)' | filecheck %s

// Slices with steps of constants are taken at run time; others, and those of what is not constant, stay.

// CHECK-LABEL: util.func public @stepped(
// CHECK: %[[C:.+]] = arith.constant dense<{{.+}}> : tensor<3x3xi8>
// CHECK-NEXT: %[[H:.+]] = util.optimization_barrier %[[C]]
// CHECK: tensor.extract_slice %[[H]][0, 0] [2, 2] [2, 2]
util.func @stepped() -> tensor<2x2xi8> {
  %x = arith.constant dense<[[1, 2, 3], [4, 5, 6], [7, 8, 9]]> : tensor<3x3xi8>
  %s = tensor.extract_slice %x[0, 0] [2, 2] [2, 2] : tensor<3x3xi8> to tensor<2x2xi8>
  util.return %s : tensor<2x2xi8>
}

// CHECK-LABEL: util.func public @others(
// CHECK-NOT: util.optimization_barrier
// CHECK: util.return
util.func @others(%y: tensor<3x3xi8>) -> (tensor<2x2xi8>, tensor<2x2xi8>) {
  %x = arith.constant dense<[[1, 2, 3], [4, 5, 6], [7, 8, 9]]> : tensor<3x3xi8>
  %s = tensor.extract_slice %x[0, 0] [2, 2] [1, 1] : tensor<3x3xi8> to tensor<2x2xi8>
  %t = tensor.extract_slice %y[0, 0] [2, 2] [2, 2] : tensor<3x3xi8> to tensor<2x2xi8>
  util.return %s, %t : tensor<2x2xi8>, tensor<2x2xi8>
}
