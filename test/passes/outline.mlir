// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-outline)' | filecheck %s
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-outline,mxcomp-outline)' | filecheck %s

// Dispatch regions become executables under names of our own: IREE will call the first region that it outlines of this
// function @model_dispatch_0 again, and names of functions meet where it links executables.

// CHECK: flow.executable private @mxcomp_model_dispatch_0 {
// CHECK-NEXT: flow.executable.export public @mxcomp_model_dispatch_0 workgroups(
// CHECK: builtin.module {
// CHECK-NEXT: func.func @mxcomp_model_dispatch_0(
// CHECK: arith.negf
// CHECK: flow.executable private @mxcomp_model_dispatch_1 {
// CHECK-NEXT: flow.executable.export public @mxcomp_model_dispatch_1 workgroups(
// CHECK: arith.addf
// CHECK-LABEL: util.func public @model(
// CHECK-SAME: %[[X:[a-z0-9_]+]]: tensor<?xf32>)
// CHECK-NOT: flow.dispatch.region
// CHECK: %[[M:.+]] = tensor.dim %[[X]]
// CHECK: %[[Y:.+]] = flow.dispatch @mxcomp_model_dispatch_0::@mxcomp_model_dispatch_0[{{.*}}](%[[X]], {{.*}} -> tensor<?xf32>{%[[M]]}
// CHECK: %[[Z:.+]] = flow.dispatch @mxcomp_model_dispatch_1::@mxcomp_model_dispatch_1[{{.*}}](%[[Y]], {{.*}} -> tensor<?xf32>{%[[M]]}
// What is outside of regions stays.
// CHECK: %[[R:.+]] = arith.mulf %[[Z]], %[[Z]] : tensor<?xf32>
// CHECK-NOT: flow.dispatch.region
// CHECK: util.return %[[R]]
util.func @model(%x: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?xf32>
  %y = flow.dispatch.region -> (tensor<?xf32>{%m}) {
    %0 = arith.negf %x : tensor<?xf32>
    flow.return %0 : tensor<?xf32>
  }
  %z = flow.dispatch.region -> (tensor<?xf32>{%m}) {
    %0 = arith.addf %y, %y : tensor<?xf32>
    flow.return %0 : tensor<?xf32>
  }
  %r = arith.mulf %z, %z : tensor<?xf32>
  util.return %r : tensor<?xf32>
}

// Regions of an initializer, too.
// CHECK: flow.executable private @mxcomp__initializer_0_dispatch_0 {
// CHECK: util.initializer {
// CHECK-NOT: flow.dispatch.region
// CHECK: %[[T:.+]] = flow.dispatch @mxcomp__initializer_0_dispatch_0::@mxcomp__initializer_0_dispatch_0(
// CHECK: util.global.store %[[T]], @twice
util.global private @twice : tensor<2xf32>
util.initializer {
  %c = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %t = flow.dispatch.region -> (tensor<2xf32>) {
    %0 = arith.addf %c, %c : tensor<2xf32>
    flow.return %0 : tensor<2xf32>
  }
  util.global.store %t, @twice : tensor<2xf32>
  util.return
}
