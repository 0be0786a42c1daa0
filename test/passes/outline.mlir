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

// What is assumed of sizes, or follows for counts of tiles, is said in the executable, once for loads and tensors; of
// others nothing is.

// CHECK: flow.executable private @mxcomp_assumed_dispatch_0 {
// CHECK: func.func @mxcomp_assumed_dispatch_0(
// CHECK-NEXT: %[[TILES_KNOWN:.+]] = util.assume.int %{{.+}}<umin = 1, umax = 4> : index
// CHECK-NEXT: %[[TILES:.+]] = iree_tensor_ext.dispatch.workload.ordinal %[[TILES_KNOWN]], 4 : index
// CHECK-NEXT: %[[M_KNOWN:.+]] = util.assume.int %{{.+}}<umin = 1, umax = 100> : index
// CHECK-NEXT: %[[M:.+]] = iree_tensor_ext.dispatch.workload.ordinal %[[M_KNOWN]], 2 : index
// CHECK: flow.dispatch.tie_shape %{{.+}}tensor<?x?xf32>>{%[[M]], %[[N:[a-z0-9]+]]}
// CHECK-NEXT: flow.dispatch.tie_shape %{{.+}}tensor<?x?x32xf32>>{%[[TILES]], %[[N]]}
// CHECK-NOT: util.assume.int
// CHECK-LABEL: util.func public @assumed(
util.func @assumed(%x: tensor<?x?xf32>) -> tensor<?x?x32xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %d0 = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %m = util.assume.int %d0<umin = 1, umax = 100> : index
  %tiles = affine.apply affine_map<(d0) -> (d0 ceildiv 32)>(%m)
  %y = flow.tensor.tie_shape %x : tensor<?x?xf32>{%m, %n}
  %z = flow.dispatch.region -> (tensor<?x?x32xf32>{%tiles, %n}) {
    %e = tensor.empty(%tiles, %n) : tensor<?x?x32xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(t, n, i) -> (t, n, i)>], iterator_types = ["parallel", "parallel", "parallel"]} outs(%e : tensor<?x?x32xf32>) {
    ^bb0(%o: f32):
      %t = linalg.index 0 : index
      %j = linalg.index 1 : index
      %f = tensor.extract %y[%t, %j] : tensor<?x?xf32>
      linalg.yield %f : f32
    } -> tensor<?x?x32xf32>
    flow.return %r : tensor<?x?x32xf32>
  }
  util.return %z : tensor<?x?x32xf32>
}
