// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-double-keys)' | filecheck %s

#q = affine_map<(n, t, v, d, l) -> (n, t, d)>
#k = affine_map<(n, t, v, d, l) -> (n, l, d)>
#v = affine_map<(n, t, v, d, l) -> (n, l, v)>
#s = affine_map<(n, t, v, d, l) -> ()>
#mask = affine_map<(n, t, v, d, l) -> (n, t, l)>
#r = affine_map<(n, t, v, d, l) -> (n, t, v)>

// Keys, values and the mask.
// CHECK-LABEL: util.func public @single(
// CHECK-SAME: %[[Q:[a-z0-9]+]]: tensor<?x9x16xf32>, %[[K:[a-z0-9]+]]: tensor<?x1x16xf32>, %[[V:[a-z0-9]+]]: tensor<?x1x24xf32>, %[[M:[a-z0-9]+]]: tensor<?x9x1xi1>
// CHECK: %[[KEYS:.+]] = tensor.concat dim(1) %[[K]], %[[K]] : {{.*}} -> tensor<?x2x16xf32>
// CHECK: %[[HIDDEN:.+]] = util.optimization_barrier %[[KEYS]]
// CHECK: %[[KEYS2:.+]] = flow.tensor.tie_shape %[[HIDDEN]]
// CHECK: %[[VALUES:.+]] = tensor.concat dim(1) %[[V]], %[[V]] : {{.*}} -> tensor<?x2x24xf32>
// CHECK: %[[MASKS:.+]] = tensor.concat dim(2) %[[M]], %[[M]] : {{.*}} -> tensor<?x9x2xi1>
// CHECK: iree_linalg_ext.attention {{.*}} ins(%[[Q]], %[[KEYS2]], {{.*}} : tensor<?x9x16xf32>, tensor<?x2x16xf32>, tensor<?x2x24xf32>, f32, tensor<?x9x2xi1>)
util.func @single(%q: tensor<?x9x16xf32>, %k: tensor<?x1x16xf32>, %v: tensor<?x1x24xf32>, %m: tensor<?x9x1xi1>,
                  %o: tensor<?x9x24xf32>) -> tensor<?x9x24xf32> {
  %scale = arith.constant 0.25 : f32
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #mask, #r]> ins(%q, %k, %v, %scale, %m : tensor<?x9x16xf32>, tensor<?x1x16xf32>, tensor<?x1x24xf32>, f32, tensor<?x9x1xi1>) outs(%o : tensor<?x9x24xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<?x9x24xf32>
  util.return %r : tensor<?x9x24xf32>
}

// Not two keys, or so many as the program knows.
// CHECK-LABEL: util.func public @others(
// CHECK-NOT: tensor.concat
util.func @others(%q: tensor<4x9x16xf32>, %k: tensor<4x2x16xf32>, %k2: tensor<4x?x16xf32>, %o: tensor<4x9x16xf32>)
    -> (tensor<4x9x16xf32>, tensor<4x9x16xf32>) {
  %scale = arith.constant 0.25 : f32
  %r = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #r]> ins(%q, %k, %k, %scale : tensor<4x9x16xf32>, tensor<4x2x16xf32>, tensor<4x2x16xf32>, f32) outs(%o : tensor<4x9x16xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x9x16xf32>
  %r2 = iree_linalg_ext.attention <indexing_maps = [#q, #k, #v, #s, #r]> ins(%q, %k2, %k2, %scale : tensor<4x9x16xf32>, tensor<4x?x16xf32>, tensor<4x?x16xf32>, f32) outs(%o : tensor<4x9x16xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x9x16xf32>
  util.return %r, %r2 : tensor<4x9x16xf32>, tensor<4x9x16xf32>
}
