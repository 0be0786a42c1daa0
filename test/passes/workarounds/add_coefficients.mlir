// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-add-coefficients)' | filecheck %s

// Coefficients of the second step: 1 and −i.

// CHECK-LABEL: @transform
// CHECK-DAG: arith.constant dense<[1.000000e+00, {{.+}}]> : tensor<2xf32>
// CHECK-DAG: arith.constant dense<[{{-?}}0.000000e+00, -1.000000e+00]> : tensor<2xf32>
// CHECK: iree_linalg_ext.fft ins(%{{.+}}, %{{.+}}, %{{.+}} : index, tensor<2xf32>, tensor<2xf32>)
func.func @transform(%re: tensor<8xf32>, %im: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %c2 = arith.constant 2 : index
  %r:2 = iree_linalg_ext.fft ins(%c2 : index) outs(%re, %im : tensor<8xf32>, tensor<8xf32>) : tensor<8xf32>, tensor<8xf32>
  return %r#0, %r#1 : tensor<8xf32>, tensor<8xf32>
}
