// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-rank-sorts,mxcomp-join-routing)' | filecheck %s

#map = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#none = affine_map<(d0, d1) -> ()>
#each = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#of_each = affine_map<(d0, d1, d2) -> (d0, d1)>

// A top-k and a sum of its scores: one dispatch with a result for each.

// CHECK-LABEL: @router
// CHECK-SAME: (%[[X:.+]]: tensor<1x32xbf16>, %[[I:.+]]: tensor<1x32xi64>)
// CHECK: tensor.collapse_shape %[[X]]
// CHECK: %[[B:.+]] = tensor.collapse_shape %[[I]]
// CHECK: %[[D:.+]]:2 = flow.dispatch.region -> (tensor<4xi64>, tensor<1xf32>)
// CHECK: linalg.generic {{.+}} ins(%{{.+}}, %[[B]] : tensor<32xbf16>, tensor<32xi64>) {{.+}}mx_chain{{.+}}mxcomp.kernel
// CHECK-NOT: mxcomp.ranks
// CHECK: flow.return
// CHECK: %[[N:.+]] = tensor.expand_shape %[[D]]#0 {{.+}} : tensor<4xi64> into tensor<1x4xi64>
// CHECK: return %[[N]], %[[D]]#1
func.func @router(%x: tensor<1x32xbf16>, %i: tensor<1x32xi64>) -> (tensor<1x4xi64>, tensor<1xf32>) {
  %s:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : tensor<1x32xbf16>, tensor<1x32xi64>) {
  ^bb0(%a: bf16, %b: bf16, %c: i64, %d: i64):
    %0 = arith.cmpf oge, %a, %b : bf16
    iree_linalg_ext.yield %0 : i1
  } -> tensor<1x32xbf16>, tensor<1x32xi64>
  %v = tensor.extract_slice %s#0[0, 0] [1, 4] [1, 1] : tensor<1x32xbf16> to tensor<1x4xbf16>
  %n = tensor.extract_slice %s#1[0, 0] [1, 4] [1, 1] : tensor<1x32xi64> to tensor<1x4xi64>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1xf32>) -> tensor<1xf32>
  %w = linalg.generic {indexing_maps = [#map, #row], iterator_types = ["parallel", "reduction"]} ins(%v : tensor<1x4xbf16>) outs(%f : tensor<1xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.addf %0, %o : f32
    linalg.yield %1 : f32
  } -> tensor<1xf32>
  return %n, %w : tensor<1x4xi64>, tensor<1xf32>
}

// These stay: rows of a number that only the program knows, and more than a workgroup compares.

// CHECK-LABEL: @others
// CHECK-NOT: mx_chain
// CHECK: return
func.func @others(%some: tensor<?x32xf32>, %many: tensor<64x128xf32>) -> (tensor<?x32xf32>, tensor<64x128xf32>) {
  %0 = iree_linalg_ext.sort dimension(1) outs(%some : tensor<?x32xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.cmpf ogt, %a, %b : f32
    iree_linalg_ext.yield %c : i1
  } -> tensor<?x32xf32>
  %1 = iree_linalg_ext.sort dimension(1) outs(%many : tensor<64x128xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.cmpf ogt, %a, %b : f32
    iree_linalg_ext.yield %c : i1
  } -> tensor<64x128xf32>
  return %0, %1 : tensor<?x32xf32>, tensor<64x128xf32>
}

// What is large ends the chain: the product reads the sum, and what is computed of the product is not joined.

// CHECK-LABEL: @between
// CHECK: flow.dispatch.region
// CHECK: mx_chain
// CHECK: flow.return
// CHECK-NOT: mx_chain
// CHECK: %[[P:.+]] = linalg.generic {{.+}} outs(%{{.+}} : tensor<1x4096xf32>)
// CHECK: linalg.generic {{.+}} ins(%[[P]] : tensor<1x4096xf32>)
func.func @between(%x: tensor<1x32xf32>, %y: tensor<1x4096xf32>) -> tensor<1xf32> {
  %s = iree_linalg_ext.sort dimension(1) outs(%x : tensor<1x32xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.cmpf ogt, %a, %b : f32
    iree_linalg_ext.yield %c : i1
  } -> tensor<1x32xf32>
  %v = tensor.extract_slice %s[0, 0] [1, 4] [1, 1] : tensor<1x32xf32> to tensor<1x4xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1xf32>) -> tensor<1xf32>
  %w = linalg.generic {indexing_maps = [#map, #row], iterator_types = ["parallel", "reduction"]} ins(%v : tensor<1x4xf32>) outs(%f : tensor<1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = arith.addf %a, %o : f32
    linalg.yield %1 : f32
  } -> tensor<1xf32>
  %eb = tensor.empty() : tensor<1x4096xf32>
  %p = linalg.generic {indexing_maps = [#map, #row, #map], iterator_types = ["parallel", "parallel"]} ins(%y, %w : tensor<1x4096xf32>, tensor<1xf32>) outs(%eb : tensor<1x4096xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %1 = arith.mulf %a, %b : f32
    linalg.yield %1 : f32
  } -> tensor<1x4096xf32>
  %r = linalg.generic {indexing_maps = [#map, #row], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<1x4096xf32>) outs(%w : tensor<1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = arith.addf %a, %o : f32
    linalg.yield %1 : f32
  } -> tensor<1xf32>
  return %r : tensor<1xf32>
}

// The best of the best, as of groups of experts: both rankings are in one dispatch.

// CHECK-LABEL: @best_of_best
// CHECK: flow.dispatch.region -> (tensor<2xf32>)
// CHECK: mx_chain
// CHECK: flow.return
// CHECK-NOT: mxcomp.ranks
// CHECK-NOT: mx_chain
// CHECK: return
func.func @best_of_best(%x: tensor<1x32xf32>) -> tensor<1x2xf32> {
  %s = iree_linalg_ext.sort dimension(1) outs(%x : tensor<1x32xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.cmpf ogt, %a, %b : f32
    iree_linalg_ext.yield %c : i1
  } -> tensor<1x32xf32>
  %v = tensor.extract_slice %s[0, 0] [1, 8] [1, 1] : tensor<1x32xf32> to tensor<1x8xf32>
  %e = tensor.empty() : tensor<1x8xf32>
  %n = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%v : tensor<1x8xf32>) outs(%e : tensor<1x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = arith.negf %a : f32
    linalg.yield %1 : f32
  } -> tensor<1x8xf32>
  %t = iree_linalg_ext.sort dimension(1) outs(%n : tensor<1x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.cmpf ogt, %a, %b : f32
    iree_linalg_ext.yield %c : i1
  } -> tensor<1x8xf32>
  %r = tensor.extract_slice %t[0, 0] [1, 2] [1, 1] : tensor<1x8xf32> to tensor<1x2xf32>
  return %r : tensor<1x2xf32>
}

// Elements are masked in front of a ranking, by i1 that are in no memory, with constants; an assertion is left out, as no
// GPU can stop a program.

// CHECK-LABEL: @masked
// CHECK: flow.dispatch.region
// CHECK: mx_chain
// CHECK: flow.return
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @masked(%x: tensor<2x32xf32>, %groups: tensor<2x32x4xi32>, %i: tensor<2x32xi64>) -> tensor<2x4xf32> {
  %lowest = arith.constant dense<0xFF800000> : tensor<f32>
  %false = arith.constant false
  %zero = arith.constant 0 : i32
  %c32 = arith.constant 32 : index
  %e1 = tensor.empty() : tensor<2x32xi1>
  %f1 = linalg.fill ins(%false : i1) outs(%e1 : tensor<2x32xi1>) -> tensor<2x32xi1>
  %c = linalg.generic {indexing_maps = [#each, #of_each], iterator_types = ["parallel", "parallel", "reduction"]} ins(%groups : tensor<2x32x4xi32>) outs(%f1 : tensor<2x32xi1>) {
  ^bb0(%a: i32, %o: i1):
    %0 = arith.cmpi eq, %a, %zero : i32
    %1 = arith.ori %0, %o : i1
    linalg.yield %1 : i1
  } -> tensor<2x32xi1>
  %e = tensor.empty() : tensor<2x32xf32>
  %m = linalg.generic {indexing_maps = [#map, #none, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%c, %lowest, %x : tensor<2x32xi1>, tensor<f32>, tensor<2x32xf32>) outs(%e : tensor<2x32xf32>) {
  ^bb0(%a: i1, %b: f32, %v: f32, %o: f32):
    %0 = arith.select %a, %b, %v : f32
    linalg.yield %0 : f32
  } -> tensor<2x32xf32>
  %s:2 = iree_linalg_ext.sort dimension(1) outs(%m, %i : tensor<2x32xf32>, tensor<2x32xi64>) {
  ^bb0(%a: f32, %b: f32, %d: i64, %f: i64):
    %0 = arith.cmpf ogt, %a, %b : f32
    iree_linalg_ext.yield %0 : i1
  } -> tensor<2x32xf32>, tensor<2x32xi64>
  %n = tensor.extract_slice %s#1[0, 0] [2, 4] [1, 1] : tensor<2x32xi64> to tensor<2x4xi64>
  %ew = tensor.empty() : tensor<2x4xf32>
  %w = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%n : tensor<2x4xi64>) outs(%ew : tensor<2x4xf32>) {
  ^bb0(%a: i64, %o: f32):
    %0 = arith.index_cast %a : i64 to index
    %1 = arith.cmpi slt, %0, %c32 : index
    cf.assert %1, "index must be smaller than dim size"
    %2 = linalg.index 0 : index
    %3 = tensor.extract %x[%2, %0] : tensor<2x32xf32>
    linalg.yield %3 : f32
  } -> tensor<2x4xf32>
  return %w : tensor<2x4xf32>
}
