// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-outline,mxcomp-share-executables)' | filecheck %s
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-share-executables)' | filecheck %s --check-prefix=NONE

// Two regions compute the same, of different tensors; the third something else.

// CHECK: flow.executable private @mxcomp_model_dispatch_0 {
// CHECK-NOT: flow.executable private @mxcomp_model_dispatch_1
// CHECK: flow.executable private @mxcomp_model_dispatch_2 {
// CHECK-LABEL: util.func public @model(
// CHECK-SAME: %[[X:[a-z0-9_]+]]: tensor<8xf32>)
// CHECK: %[[Y:.+]] = flow.dispatch @mxcomp_model_dispatch_0::@mxcomp_model_dispatch_0(%[[X]])
// CHECK: %[[Z:.+]] = flow.dispatch @mxcomp_model_dispatch_0::@mxcomp_model_dispatch_0(%[[Y]])
// CHECK: flow.dispatch @mxcomp_model_dispatch_2::@mxcomp_model_dispatch_2(%[[Z]])

// Without executables there is nothing to share.
// NONE-NOT: flow.executable
// NONE-COUNT-3: flow.dispatch.region
util.func public @model(%x: tensor<8xf32>) -> tensor<8xf32> {
  %y = flow.dispatch.region -> (tensor<8xf32>) {
    %0 = arith.negf %x : tensor<8xf32>
    flow.return %0 : tensor<8xf32>
  }
  %z = flow.dispatch.region -> (tensor<8xf32>) {
    %0 = arith.negf %y : tensor<8xf32>
    flow.return %0 : tensor<8xf32>
  }
  %r = flow.dispatch.region -> (tensor<8xf32>) {
    %0 = arith.addf %z, %z : tensor<8xf32>
    flow.return %0 : tensor<8xf32>
  }
  util.return %r : tensor<8xf32>
}
