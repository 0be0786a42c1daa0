// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-defer-narrow)' | filecheck %s

// What depends on constants only is kept for run time where IREE's CPU compiler would compute it wrongly or not at all.

#id = affine_map<(m, k) -> (m, k)>
#self = affine_map<(m, ko, kb) -> (m, ko, kb)>

// CHECK-LABEL: util.func public @quantised_constant(
// CHECK: %[[CONSTANT:.+]] = arith.constant dense<{{.+}}> : tensor<2x32xf32>
// CHECK-NEXT: %[[HELD:.+]] = util.optimization_barrier %[[CONSTANT]] : tensor<2x32xf32>
// CHECK: linalg.generic {{.*}} ins(%[[HELD]] : tensor<2x32xf32>)
util.func @quantised_constant() -> tensor<2x32xf4E2M1FN> {
  %one = arith.constant 1.0 : f8E8M0FNU
  %x = arith.constant dense<3.0> : tensor<2x32xf32>
  %e = tensor.empty() : tensor<2x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<2x32xf32>) outs(%e : tensor<2x32xf4E2M1FN>) {
  ^bb0(%i: f32, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %one : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<2x32xf4E2M1FN>
  util.return %q : tensor<2x32xf4E2M1FN>
}

// What is sorted is written over, and is not itself held.
// CHECK-LABEL: util.func public @sorted_constant(
// CHECK-NOT: util.optimization_barrier
// CHECK: %[[SORTED:.+]] = iree_linalg_ext.sort dimension(1) outs(%cst
// CHECK: %[[HELD:.+]] = util.optimization_barrier %[[SORTED]] : tensor<2x32xf32>
// CHECK: linalg.generic {{.*}} ins(%[[HELD]] : tensor<2x32xf32>)
util.func @sorted_constant() -> tensor<2x32xf4E2M1FN> {
  %one = arith.constant 1.0 : f8E8M0FNU
  %x = arith.constant dense<3.0> : tensor<2x32xf32>
  %y = iree_linalg_ext.sort dimension(1) outs(%x : tensor<2x32xf32>) {
  ^bb0(%a: f32, %b: f32):
    %l = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %l : i1
  } -> tensor<2x32xf32>
  %e = tensor.empty() : tensor<2x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<2x32xf32>) outs(%e : tensor<2x32xf4E2M1FN>) {
  ^bb0(%i: f32, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %one : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<2x32xf4E2M1FN>
  util.return %q : tensor<2x32xf4E2M1FN>
}

// CHECK-LABEL: util.func public @sorted_activation(
// CHECK-NOT: util.optimization_barrier
// CHECK: util.return
util.func @sorted_activation(%x: tensor<2x32xf32>) -> tensor<2x32xf4E2M1FN> {
  %one = arith.constant 1.0 : f8E8M0FNU
  %y = iree_linalg_ext.sort dimension(1) outs(%x : tensor<2x32xf32>) {
  ^bb0(%a: f32, %b: f32):
    %l = arith.cmpf olt, %a, %b : f32
    iree_linalg_ext.yield %l : i1
  } -> tensor<2x32xf32>
  %e = tensor.empty() : tensor<2x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<2x32xf32>) outs(%e : tensor<2x32xf4E2M1FN>) {
  ^bb0(%i: f32, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %one : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<2x32xf4E2M1FN>
  util.return %q : tensor<2x32xf4E2M1FN>
}

// An activation is known at run time only anyway.
// CHECK-LABEL: util.func public @activation(
// CHECK-NOT: util.optimization_barrier
// CHECK: util.return
util.func @activation(%x: tensor<2x32xf32>) -> tensor<2x32xf4E2M1FN> {
  %one = arith.constant 1.0 : f8E8M0FNU
  %e = tensor.empty() : tensor<2x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<2x32xf32>) outs(%e : tensor<2x32xf4E2M1FN>) {
  ^bb0(%i: f32, %o: f4E2M1FN):
    %t = arith.scaling_truncf %i, %one : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %t : f4E2M1FN
  } -> tensor<2x32xf4E2M1FN>
  util.return %q : tensor<2x32xf4E2M1FN>
}
