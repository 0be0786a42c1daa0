// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-outline,mxcomp-assume-operands)' | filecheck %s

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
