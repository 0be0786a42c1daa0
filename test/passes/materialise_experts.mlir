// RUN: mxcomp-opt %s --ukernel-dir=%S/../registry/inputs/good \
// RUN:   --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{ukernels=test_tile},mxcomp-materialise)' | filecheck %s

// Matrices that expert ids choose are packed once for all experts, and read through the ids in the matmul's dispatch;
// rows that token ids choose are read where they are packed.

#lhs = affine_map<(b, m, n, ko, kb) -> (b, m, ko, kb)>
#rhs = affine_map<(b, m, n, ko, kb) -> (b, n, ko, kb)>
#lhs_scale = affine_map<(b, m, n, ko, kb) -> (b, m, ko)>
#rhs_scale = affine_map<(b, m, n, ko, kb) -> (b, n, ko)>
#out = affine_map<(b, m, n, ko, kb) -> (b, m, n)>

// CHECK-LABEL: util.func public @grouped(
// CHECK-SAME: %[[A:[a-z0-9]+]]: tensor<10x128xi8>, %{{.+}}: tensor<10x8xi8>, %[[W:[a-z0-9]+]]: tensor<4x128x128xi8>, %{{.+}}: tensor<4x128x8xi8>,
// CHECK-SAME: %[[SLOTS:[a-z0-9]+]]: tensor<3x32xi32>, %[[IDS:[a-z0-9]+]]: tensor<3xi32>
// CHECK: %[[WORDS:.+]] = iree_tensor_ext.bitcast %[[A]] : tensor<10x128xi8> -> tensor<10x8x4xi32>
// CHECK: flow.dispatch.region -> (tensor<3x1x1x
// CHECK: tensor.extract %[[SLOTS]][
// CHECK: arith.divsi
// CHECK: tensor.extract %[[WORDS]][
// CHECK: iree_tensor_ext.bitcast %[[W]] : tensor<4x128x128xi8> -> tensor<4x128x8x4xi32>
// CHECK: flow.dispatch.region -> (tensor<4x1x1x
// CHECK-NOT: %[[IDS]]
// CHECK: flow.dispatch.region -> (tensor<3x32x128xf32>) {
// CHECK: iree_linalg_ext.gather dimension_map = [0] ins(%{{.+}}, %[[IDS]] : tensor<4x1x1x{{.+}}xf4E2M1FN>, tensor<3xi32>)
// CHECK: iree_linalg_ext.gather dimension_map = [0] ins(%{{.+}}, %[[IDS]] : tensor<4x1x1x{{.+}}xf8E8M0FNU>, tensor<3xi32>)
// CHECK: iree_codegen.inner_tiled
util.func @grouped(%a: tensor<10x128xi8>, %as: tensor<10x8xi8>, %w: tensor<4x128x128xi8>, %ws: tensor<4x128x8xi8>,
    %slots: tensor<3x32xi32>, %ids: tensor<3xi32>) -> tensor<3x32x128xf32> {
  %c0 = arith.constant 0 : i32
  %c2 = arith.constant 2 : i32
  %c3 = arith.constant 3 : i32
  %c9 = arith.constant 9 : i32
  %ae = tensor.empty() : tensor<3x32x128xi8>
  %ag = linalg.generic {indexing_maps = [affine_map<(b, m, k) -> (b, m)>, affine_map<(b, m, k) -> (b, m, k)>],
                        iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%slots : tensor<3x32xi32>) outs(%ae : tensor<3x32x128xi8>) {
  ^bb0(%slot: i32, %o: i8):
    %t = arith.divsi %slot, %c2 : i32
    %l = arith.minsi %t, %c9 : i32
    %i = arith.index_cast %l : i32 to index
    %k = linalg.index 2 : index
    %x = tensor.extract %a[%i, %k] : tensor<10x128xi8>
    linalg.yield %x : i8
  } -> tensor<3x32x128xi8>
  %ase = tensor.empty() : tensor<3x32x8xi8>
  %asg = linalg.generic {indexing_maps = [affine_map<(b, m, k) -> (b, m)>, affine_map<(b, m, k) -> (b, m, k)>],
                         iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%slots : tensor<3x32xi32>) outs(%ase : tensor<3x32x8xi8>) {
  ^bb0(%slot: i32, %o: i8):
    %t = arith.divsi %slot, %c2 : i32
    %l = arith.minsi %t, %c9 : i32
    %i = arith.index_cast %l : i32 to index
    %k = linalg.index 2 : index
    %x = tensor.extract %as[%i, %k] : tensor<10x8xi8>
    linalg.yield %x : i8
  } -> tensor<3x32x8xi8>
  %we = tensor.empty() : tensor<3x128x128xi8>
  %wg = linalg.generic {indexing_maps = [affine_map<(b, n, k) -> (b)>, affine_map<(b, n, k) -> (b, n, k)>],
                        iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%ids : tensor<3xi32>) outs(%we : tensor<3x128x128xi8>) {
  ^bb0(%id: i32, %o: i8):
    %i = arith.index_cast %id : i32 to index
    %n = linalg.index 1 : index
    %k = linalg.index 2 : index
    %x = tensor.extract %w[%i, %n, %k] : tensor<4x128x128xi8>
    linalg.yield %x : i8
  } -> tensor<3x128x128xi8>
  %wse = tensor.empty() : tensor<3x128x8xi8>
  %wsg = linalg.generic {indexing_maps = [affine_map<(b, n, k) -> (b)>, affine_map<(b, n, k) -> (b, n, k)>],
                         iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%ids : tensor<3xi32>) outs(%wse : tensor<3x128x8xi8>) {
  ^bb0(%id: i32, %o: i8):
    %h = arith.minsi %id, %c3 : i32
    %l = arith.maxsi %h, %c0 : i32
    %i = arith.index_cast %l : i32 to index
    %n = linalg.index 1 : index
    %k = linalg.index 2 : index
    %x = tensor.extract %ws[%i, %n, %k] : tensor<4x128x8xi8>
    linalg.yield %x : i8
  } -> tensor<3x128x8xi8>
  %af = iree_tensor_ext.bitcast %ag : tensor<3x32x128xi8> -> tensor<3x32x8x32xf4E2M1FN>
  %asf = iree_tensor_ext.bitcast %asg : tensor<3x32x8xi8> -> tensor<3x32x8xf8E8M0FNU>
  %wf = iree_tensor_ext.bitcast %wg : tensor<3x128x128xi8> -> tensor<3x128x8x32xf4E2M1FN>
  %wsf = iree_tensor_ext.bitcast %wsg : tensor<3x128x8xi8> -> tensor<3x128x8xf8E8M0FNU>
  %init = arith.constant dense<0.0> : tensor<3x32x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%af, %wf, %asf, %wsf : tensor<3x32x8x32xf4E2M1FN>, tensor<3x128x8x32xf4E2M1FN>,
                                 tensor<3x32x8xf8E8M0FNU>, tensor<3x128x8xf8E8M0FNU>)
      outs(%init : tensor<3x32x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<3x32x128xf32>
  util.return %r : tensor<3x32x128xf32>
}

// Ids that are calculated with in any other way than clamped to the experts are no business of the matmul's dispatch:
// matrices are gathered where they are packed. A gather along another dimension is computed as it is.
// CHECK-LABEL: util.func public @calculated(
// CHECK-SAME: %[[IDS:[a-z0-9]+]]: tensor<3xi32>
// CHECK: linalg.generic {{.*}} ins(%[[IDS]] : tensor<3xi32>) outs(%{{.+}} : tensor<3x128x8xi8>)
// CHECK: flow.dispatch.region -> (tensor<3x1x1x
// CHECK: tensor.extract %[[IDS]][
// CHECK: arith.addi
// CHECK: tensor.extract
// CHECK-NOT: iree_linalg_ext.gather
// CHECK: iree_codegen.inner_tiled
// CHECK-NOT: iree_linalg_ext.gather
util.func @calculated(%a: tensor<3x32x8x32xf4E2M1FN>, %as: tensor<3x32x8xf8E8M0FNU>, %w: tensor<4x128x128xi8>,
    %ws: tensor<8x4x128xi8>, %ids: tensor<3xi32>) -> tensor<3x32x128xf32> {
  %c1 = arith.constant 1 : i32
  %we = tensor.empty() : tensor<3x128x128xi8>
  %wg = linalg.generic {indexing_maps = [affine_map<(b, n, k) -> (b)>, affine_map<(b, n, k) -> (b, n, k)>],
                        iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%ids : tensor<3xi32>) outs(%we : tensor<3x128x128xi8>) {
  ^bb0(%id: i32, %o: i8):
    %next = arith.addi %id, %c1 : i32
    %i = arith.index_cast %next : i32 to index
    %n = linalg.index 1 : index
    %k = linalg.index 2 : index
    %x = tensor.extract %w[%i, %n, %k] : tensor<4x128x128xi8>
    linalg.yield %x : i8
  } -> tensor<3x128x128xi8>
  %wse = tensor.empty() : tensor<3x128x8xi8>
  %wsg = linalg.generic {indexing_maps = [affine_map<(b, n, k) -> (b)>, affine_map<(b, n, k) -> (b, n, k)>],
                         iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%ids : tensor<3xi32>) outs(%wse : tensor<3x128x8xi8>) {
  ^bb0(%id: i32, %o: i8):
    %i = arith.index_cast %id : i32 to index
    %n = linalg.index 1 : index
    %k = linalg.index 2 : index
    %x = tensor.extract %ws[%k, %i, %n] : tensor<8x4x128xi8>
    linalg.yield %x : i8
  } -> tensor<3x128x8xi8>
  %wf = iree_tensor_ext.bitcast %wg : tensor<3x128x128xi8> -> tensor<3x128x8x32xf4E2M1FN>
  %wsf = iree_tensor_ext.bitcast %wsg : tensor<3x128x8xi8> -> tensor<3x128x8xf8E8M0FNU>
  %init = arith.constant dense<0.0> : tensor<3x32x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %wf, %as, %wsf : tensor<3x32x8x32xf4E2M1FN>, tensor<3x128x8x32xf4E2M1FN>,
                               tensor<3x32x8xf8E8M0FNU>, tensor<3x128x8xf8E8M0FNU>)
      outs(%init : tensor<3x32x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<3x32x128xf32>
  util.return %r : tensor<3x32x128xf32>
}
