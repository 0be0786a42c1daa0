// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-check-sizes)' | filecheck %s

#id = affine_map<(r, c) -> (r, c)>
#row = affine_map<(r, c) -> (r)>
#turned = affine_map<(r, c) -> (c, r)>

// Each pair of sizes once, at the beginning of the function; what follows from others is not asserted.
// CHECK-LABEL: util.func public @consumers(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x64xf32>, %[[Y:[a-z0-9]+]]: tensor<?x64xf32>, %[[F:[a-z0-9]+]]: tensor<?xf32>)
// CHECK-DAG: %[[M:.+]] = tensor.dim %[[X]], %c0
// CHECK-DAG: %[[N:.+]] = tensor.dim %[[Y]], %c0
// CHECK: %[[SAME:.+]] = arith.cmpi eq, %[[M]], %[[N]] : index
// CHECK: cf.assert %[[SAME]], "mxcomp: dimension 0 of argument 0 and dimension 0 of argument 1 must be equal, for linalg.generic at {{.+}}check_sizes.mlir:25:8"
// CHECK: %[[L:.+]] = tensor.dim %[[F]]
// CHECK: %[[ALSO:.+]] = arith.cmpi eq, %{{.+}}, %[[L]] : index
// CHECK: cf.assert %[[ALSO]], "mxcomp: dimension 0 of argument 0 and dimension 0 of argument 2 must be equal, for linalg.generic
// CHECK: linalg.generic
// CHECK-NOT: cf.assert
// CHECK: util.return
util.func @consumers(%x: tensor<?x64xf32>, %y: tensor<?x64xf32>, %f: tensor<?xf32>) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x64xf32>
  %e = tensor.empty(%m) : tensor<?x64xf32>
  // The first that reads both.
  %a = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<?x64xf32>, tensor<?x64xf32>) outs(%e : tensor<?x64xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %0 = arith.addf %i, %j : f32
    linalg.yield %0 : f32
  } -> tensor<?x64xf32>
  %b = linalg.generic {indexing_maps = [#id, #id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %y, %f : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?xf32>) outs(%e : tensor<?x64xf32>) {
  ^bb0(%i: f32, %j: f32, %k: f32, %o: f32):
    %0 = arith.mulf %i, %j : f32
    %1 = arith.mulf %0, %k : f32
    linalg.yield %1 : f32
  } -> tensor<?x64xf32>
  %c = arith.addf %b, %y : tensor<?x64xf32>
  util.return %c : tensor<?x64xf32>
}

// Parts of a dimension, and a size that a cast knows.
// CHECK-LABEL: util.func public @reshapes(
// CHECK: %[[FOUR:.+]] = affine.apply #{{.+}}(%{{.+}})
// CHECK: arith.cmpi eq, %[[FOUR]], %{{.+}}
// CHECK: "mxcomp: 4 * dimension 0 of argument 0 and dimension 0 of argument 1 must be equal, for arith.addf at
// CHECK: arith.cmpi eq, %{{.+}}, %c7
// CHECK: "mxcomp: dimension 0 of argument 2 and 7 must be equal, for tensor.cast at
util.func @reshapes(%x: tensor<?x4x64xf32>, %y: tensor<?x64xf32>, %z: tensor<?x3xi8>) -> (tensor<?x64xf32>, tensor<7x3xi8>) {
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x4x64xf32> into tensor<?x64xf32>
  %a = arith.addf %flat, %y : tensor<?x64xf32>
  %k = tensor.cast %z : tensor<?x3xi8> to tensor<7x3xi8>
  util.return %a, %k : tensor<?x64xf32>, tensor<7x3xi8>
}

// One size, by whatever way, is not compared with itself; nor are sizes that nobody can know before.
// CHECK-LABEL: util.func public @nothing(
// CHECK-NOT: cf.assert
// CHECK: util.return
util.func @nothing(%x: tensor<?x?xf32>, %k: index) -> (tensor<?x?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%n, %m) : tensor<?x?xf32>
  %t = linalg.generic {indexing_maps = [#id, #turned], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%i: f32, %o: f32):
    linalg.yield %i : f32
  } -> tensor<?x?xf32>
  %u = arith.addf %t, %t : tensor<?x?xf32>
  %r:2 = util.call @elsewhere(%u) : (tensor<?x?xf32>) -> (tensor<?xf32>, tensor<?xf32>)
  %v = arith.addf %r#0, %r#1 : tensor<?xf32>
  util.return %u, %v : tensor<?x?xf32>, tensor<?xf32>
}
util.func private @elsewhere(tensor<?x?xf32>) -> (tensor<?xf32>, tensor<?xf32>)

// What is computed only sometimes is compared there.
// CHECK-LABEL: util.func public @sometimes(
// CHECK-NOT: cf.assert
// CHECK: scf.if
// CHECK: cf.assert
// CHECK: arith.addf
util.func @sometimes(%c: i1, %x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %r = scf.if %c -> tensor<?xf32> {
    %a = arith.addf %x, %y : tensor<?xf32>
    scf.yield %a : tensor<?xf32>
  } else {
    scf.yield %x : tensor<?xf32>
  }
  util.return %r : tensor<?xf32>
}

// Sizes of a reshape are integers, as PyTorch's exporter makes them of a view: a quotient of sizes is found, and one
// that is given is compared as an index.
// CHECK-LABEL: util.func public @integers(
// CHECK-NOT: cf.assert
// CHECK: %[[ROWS:.+]] = tensor.dim
// CHECK: %[[GIVEN:.+]] = arith.index_cast %{{.+}} : i64 to index
// CHECK: %[[SAME:.+]] = arith.cmpi eq, %[[ROWS]], %[[GIVEN]] : index
// CHECK-NEXT: cf.assert %[[SAME]], "mxcomp: dimension 0 of argument 0 and argument 1 must be equal, for tensor.reshape at
// CHECK-NOT: cf.assert
// CHECK: util.return
util.func @integers(%x: tensor<?x128xf32>, %given: i64) -> (tensor<?x4x32xf32>, tensor<?x32x4xf32>) {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x128xf32>
  %rows = arith.index_cast %m : index to i64
  %c4 = arith.constant 4 : i64
  %c32 = arith.constant 32 : i64
  %c128 = arith.constant 128 : i64
  %all = arith.muli %rows, %c128 : i64
  %some = arith.muli %rows, %c32 : i64
  %four = arith.divui %all, %some : i64
  %sizes = tensor.from_elements %rows, %four, %c32 : tensor<3xi64>
  %a = tensor.reshape %x(%sizes) : (tensor<?x128xf32>, tensor<3xi64>) -> tensor<?x4x32xf32>
  %others = tensor.from_elements %given, %c32, %c4 : tensor<3xi64>
  %b = tensor.reshape %x(%others) : (tensor<?x128xf32>, tensor<3xi64>) -> tensor<?x32x4xf32>
  util.return %a, %b : tensor<?x4x32xf32>, tensor<?x32x4xf32>
}

// A quotient that leaves a rest is no multiple of a size.
// CHECK-LABEL: util.func public @halves(
// CHECK: cf.assert %{{.+}}, "mxcomp: dimension 0 of argument 0 and 2 * a size computed at {{.+}} must be equal, for tensor.reshape at
util.func @halves(%x: tensor<?x4xf32>) -> tensor<?x2x4xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %m = tensor.dim %x, %c0 : tensor<?x4xf32>
  %half = arith.divui %m, %c2 : index
  %sizes = tensor.from_elements %half, %c2, %c4 : tensor<3xindex>
  %a = tensor.reshape %x(%sizes) : (tensor<?x4xf32>, tensor<3xindex>) -> tensor<?x2x4xf32>
  util.return %a : tensor<?x2x4xf32>
}

// What is put one after another has the same sizes besides.
// CHECK-LABEL: util.func public @concatenated(
// CHECK: cf.assert %{{.+}}, "mxcomp: dimension 0 of argument 0 and dimension 0 of argument 1 must be equal, for tensor.concat at {{[^,]+}}"
// CHECK-NOT: cf.assert
// CHECK: util.return
util.func @concatenated(%x: tensor<?x?x4xf32>, %y: tensor<?x?x4xf32>) -> tensor<?x?x4xf32> {
  %r = tensor.concat dim(1) %x, %y : (tensor<?x?x4xf32>, tensor<?x?x4xf32>) -> tensor<?x?x4xf32>
  util.return %r : tensor<?x?x4xf32>
}

// What both branches give has one size, which is compared first of all; what they give of two is compared behind them.
// CHECK-LABEL: util.func public @branches(
// CHECK-NEXT: %c0
// CHECK: cf.assert %{{.+}}, "mxcomp: dimension 0 of argument 1 and dimension 0 of argument 2 must be equal, for arith.addf at {{[^,]+}}"
// CHECK: scf.if
// CHECK: scf.if
// CHECK: cf.assert %{{.+}}, "mxcomp: a size computed at {{.+}} and dimension 0 of argument 1 must be equal, for arith.mulf at {{[^,]+}}"
// CHECK: arith.mulf
util.func @branches(%c: i1, %x: tensor<?xf32>, %y: tensor<?xf32>, %z: tensor<?xf32>) -> tensor<?xf32> {
  %r = scf.if %c -> tensor<?xf32> {
    %a = arith.mulf %x, %x : tensor<?xf32>
    scf.yield %a : tensor<?xf32>
  } else {
    scf.yield %x : tensor<?xf32>
  }
  %s = arith.addf %r, %y : tensor<?xf32>
  %t = scf.if %c -> tensor<?xf32> {
    scf.yield %z : tensor<?xf32>
  } else {
    scf.yield %x : tensor<?xf32>
  }
  %u = arith.mulf %t, %s : tensor<?xf32>
  util.return %u : tensor<?xf32>
}

// A loop that keeps a size; one that does not, in which each pass is compared.
// CHECK-LABEL: util.func public @loops(
// CHECK-NOT: cf.assert
// CHECK: scf.for
// CHECK: cf.assert %{{.+}}, "mxcomp: dimension 0 of argument 1 and dimension 0 of argument 2 must be equal, for arith.addf at {{[^,]+}}, in a branch, a loop or a call"
// CHECK-NOT: cf.assert
// CHECK: scf.for
// CHECK: cf.assert %{{.+}}, "mxcomp: a size computed at {{.+}} and dimension 0 of argument 2 must be equal, for arith.mulf at {{[^,]+}}, in a branch, a loop or a call"
// CHECK-NOT: cf.assert
// CHECK: util.return
util.func @loops(%n: index, %x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%v = %x) -> tensor<?x4xf32> {
    %a = math.exp %v : tensor<?x4xf32>
    %b = arith.addf %a, %y : tensor<?x4xf32>
    scf.yield %b : tensor<?x4xf32>
  }
  %s = arith.mulf %r, %x : tensor<?x4xf32>
  %t = scf.for %i = %c0 to %n step %c1 iter_args(%v = %x) -> tensor<?x4xf32> {
    %a = arith.mulf %v, %y : tensor<?x4xf32>
    %b = tensor.concat dim(0) %a, %y : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    scf.yield %b : tensor<?x4xf32>
  }
  util.return %s, %t : tensor<?x4xf32>, tensor<?x4xf32>
}

// A function compares its own arguments, and gives what has the size of the first.
// CHECK-LABEL: util.func private @add(
// CHECK: "mxcomp: dimension 0 of argument 0 of @add and dimension 0 of argument 1 of @add must be equal, for arith.addf at {{.+}}, in a branch, a loop or a call"
util.func private @add(%x: tensor<?xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  %a = arith.addf %x, %y : tensor<?xf32>
  util.return %a : tensor<?xf32>
}
// CHECK-LABEL: util.func public @calls(
// CHECK: "mxcomp: dimension 0 of argument 0 and dimension 0 of argument 2 must be equal, for arith.mulf at {{[^,]+}}"
// CHECK: util.call
// CHECK-NOT: cf.assert
// CHECK: util.return
util.func @calls(%x: tensor<?xf32>, %y: tensor<?xf32>, %z: tensor<?xf32>) -> tensor<?xf32> {
  %a = util.call @add(%x, %y) : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  %b = arith.mulf %a, %z : tensor<?xf32>
  util.return %b : tensor<?xf32>
}
