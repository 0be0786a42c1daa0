// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-overwriting)' | filecheck %s

// A part of a tensor in another place of it: a copy is written over.

// CHECK-LABEL: @shifted
// CHECK: %[[C:.+]] = flow.dispatch.region -> (tensor<?x4xf32>
// CHECK: linalg.generic
// CHECK: tensor.insert_slice %{{.+}} into %[[C]]
func.func @shifted(%x: tensor<?x4xf32>, %n: index) -> tensor<?x4xf32> {
  %0 = tensor.extract_slice %x[0, 0] [%n, 2] [1, 1] : tensor<?x4xf32> to tensor<?x2xf32>
  %1 = tensor.insert_slice %0 into %x[0, 1] [%n, 2] [1, 1] : tensor<?x2xf32> into tensor<?x4xf32>
  return %1 : tensor<?x4xf32>
}

// CHECK-LABEL: @another
// CHECK-NOT: flow.dispatch.region
func.func @another(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = tensor.extract_slice %y[0, 0] [8, 2] [1, 1] : tensor<8x4xf32> to tensor<8x2xf32>
  %1 = tensor.insert_slice %0 into %x[0, 1] [8, 2] [1, 1] : tensor<8x2xf32> into tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// CHECK-LABEL: @scattered
// CHECK: %[[C:.+]] = flow.dispatch.region -> (tensor<8x4xf32>)
// CHECK: iree_linalg_ext.scatter {{.*}} ins(%arg0, %arg1 : {{.*}}) outs(%[[C]] :
func.func @scattered(%x: tensor<8x4xf32>, %ids: tensor<8x1xi32>) -> tensor<8x4xf32> {
  %0 = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true)
      ins(%x, %ids : tensor<8x4xf32>, tensor<8x1xi32>) outs(%x : tensor<8x4xf32>) {
  ^bb0(%a: f32, %b: f32):
    iree_linalg_ext.yield %a : f32
  } -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// What is alike stays as it is where nothing writes over it.

// CHECK-LABEL: @alike_and_read
// CHECK: tensor.extract_slice
// CHECK: tensor.extract_slice
// CHECK: return
func.func @alike_and_read(%x: tensor<8x6xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %0 = tensor.extract_slice %x[0, 0] [8, 4] [1, 1] : tensor<8x6xf32> to tensor<8x4xf32>
  %1 = tensor.extract_slice %x[0, 0] [8, 4] [1, 1] : tensor<8x6xf32> to tensor<8x4xf32>
  return %0, %1 : tensor<8x4xf32>, tensor<8x4xf32>
}
