// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-steps)' | filecheck %s

// A step along a dimension of which one element is taken is none.

// CHECK-LABEL: util.func public @slices(
// CHECK: tensor.extract_slice %{{.+}}[0, 1, 0] [2, 1, 8] [2, 1, 4] : tensor<4x4x32xf8E5M2> to tensor<2x1x8xf8E5M2>
util.func @slices(%x: tensor<4x4x32xf8E5M2>) -> tensor<2x1x8xf8E5M2> {
  %s = tensor.extract_slice %x[0, 1, 0] [2, 1, 8] [2, 3, 4] : tensor<4x4x32xf8E5M2> to tensor<2x1x8xf8E5M2>
  util.return %s : tensor<2x1x8xf8E5M2>
}
