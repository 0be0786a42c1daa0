// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-order-workgroups)' | filecheck %s
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-order-workgroups,func.func(canonicalize,cse))' \
// RUN:   | filecheck %s --check-prefix=FOLDED

// Each of 8 XCDs takes 60 / 8 tiles, the first 4 one more, in bands of 4 rows. IREE's loop stays as it is, but for its
// indices, and nothing is left to distribute.
// CHECK-LABEL: func.func @static
// CHECK: scf.forall (%[[Y:.+]], %[[X:.+]]) in (10, 6)
// CHECK-NEXT: %[[Y32:.+]] = arith.index_castui %[[Y]] : index to i32
// CHECK-NEXT: %[[X32:.+]] = arith.index_castui %[[X]] : index to i32
// CHECK: %[[ROW:.+]] = arith.index_castui %{{.+}} : i32 to index
// CHECK: %[[COLUMN:.+]] = arith.index_castui %{{.+}} : i32 to index
// CHECK-NOT: %[[X]]
// CHECK-NOT: %[[Y]]
// CHECK: tensor.extract_slice %{{.+}}[%[[ROW]], 0] [1, 64] [1, 1]
// CHECK: tensor.extract_slice %{{.+}}[0, %[[COLUMN]]] [64, 1] [1, 1]
// CHECK: linalg.matmul {lowering_config = #iree_gpu.lowering_config<{reduction = [0, 0, 4]}>}
// CHECK: linalg.generic
// CHECK: tensor.parallel_insert_slice %{{.+}} into %{{.+}}[%[[ROW]], %[[COLUMN]]] [1, 1] [1, 1]
// CHECK: mapping = [#iree_codegen.workgroup_mapping<y>, #iree_codegen.workgroup_mapping<x>]

// FOLDED-LABEL: func.func @static
// FOLDED-DAG: %[[C4:.+]] = arith.constant 4 : i32
// FOLDED-DAG: %[[C6:.+]] = arith.constant 6 : i32
// FOLDED-DAG: %[[C7:.+]] = arith.constant 7 : i32
// FOLDED-DAG: %[[C8:.+]] = arith.constant 8 : i32
// FOLDED-DAG: %[[C10:.+]] = arith.constant 10 : i32
// FOLDED-DAG: %[[C24:.+]] = arith.constant 24 : i32
// FOLDED-DAG: %[[C60:.+]] = arith.constant 60 : i32
// FOLDED: scf.forall (%[[Y:.+]], %[[X:.+]]) in (10, 6)
// FOLDED: %[[LINE:.+]] = arith.muli %{{.+}}, %[[C6]]
// FOLDED: %[[NUMBER:.+]] = arith.addi %[[LINE]], %{{.+}}
// FOLDED: %[[XCD:.+]] = arith.remui %[[NUMBER]], %[[C8]]
// FOLDED: %[[SHARE:.+]] = arith.muli %[[XCD]], %[[C7]]
// FOLDED: %[[MORE:.+]] = arith.minui %[[XCD]], %[[C4]]
// FOLDED: %[[START:.+]] = arith.addi %[[SHARE]], %[[MORE]]
// FOLDED: %[[TURN:.+]] = arith.divui %[[NUMBER]], %[[C8]]
// FOLDED: %[[AT:.+]] = arith.addi %[[START]], %[[TURN]]
// FOLDED: %[[TILE:.+]] = arith.remui %[[AT]], %[[C60]]
// FOLDED: %[[BAND:.+]] = arith.divui %[[TILE]], %[[C24]]
// FOLDED: %[[FIRST:.+]] = arith.muli %[[BAND]], %[[C4]]
// FOLDED: %[[LEFT:.+]] = arith.subi %[[C10]], %[[FIRST]]
// FOLDED: %[[HEIGHT:.+]] = arith.minui %[[LEFT]], %[[C4]]
// FOLDED: %[[BEFORE:.+]] = arith.muli %[[BAND]], %[[C24]]
// FOLDED: %[[WITHIN:.+]] = arith.subi %[[TILE]], %[[BEFORE]]
// FOLDED: %[[IN:.+]] = arith.remui %[[WITHIN]], %[[HEIGHT]]
// FOLDED: %[[ROW:.+]] = arith.addi %[[FIRST]], %[[IN]]
// FOLDED: %[[COLUMN:.+]] = arith.divui %[[WITHIN]], %[[HEIGHT]]
// FOLDED: arith.index_castui %[[ROW]]
// FOLDED: arith.index_castui %[[COLUMN]]
func.func @static(%a: tensor<10x64xf32>, %b: tensor<64x6xf32>, %zero: tensor<10x6xf32>) -> tensor<10x6xf32> {
  %r = linalg.matmul {lowering_config = #iree_gpu.lowering_config<{workgroup = [1, 1, 0], reduction = [0, 0, 4]}>,
      mxcomp.workgroup_order = {band = 4, xcds = 8}}
    ins(%a, %b : tensor<10x64xf32>, tensor<64x6xf32>) outs(%zero : tensor<10x6xf32>) -> tensor<10x6xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
      iterator_types = ["parallel", "parallel"]}
    ins(%r : tensor<10x6xf32>) outs(%zero : tensor<10x6xf32>) {
  ^bb0(%x: f32, %out: f32):
    %y = arith.negf %x : f32
    linalg.yield %y : f32
  } -> tensor<10x6xf32>
  return %s : tensor<10x6xf32>
}

// Rows that only the running program counts.
// CHECK-LABEL: func.func @dynamic
// CHECK: %[[M:.+]] = tensor.dim
// CHECK: scf.forall (%[[Y:.+]], %[[X:.+]]) in (%[[M]], 6)
// CHECK: arith.index_castui %[[M]] : index to i32
// CHECK: %[[ROW:.+]] = arith.index_castui %{{.+}} : i32 to index
// CHECK: tensor.extract_slice %{{.+}}[%[[ROW]], 0] [1, 64] [1, 1]
func.func @dynamic(%a: tensor<?x64xf32>, %b: tensor<64x6xf32>, %zero: tensor<?x6xf32>) -> tensor<?x6xf32> {
  %r = linalg.matmul {lowering_config = #iree_gpu.lowering_config<{workgroup = [1, 1, 0]}>,
      mxcomp.workgroup_order = {band = 4, xcds = 8}}
    ins(%a, %b : tensor<?x64xf32>, tensor<64x6xf32>) outs(%zero : tensor<?x6xf32>) -> tensor<?x6xf32>
  return %r : tensor<?x6xf32>
}

// Matrices of a batch come one after the other.
// CHECK-LABEL: func.func @batch
// CHECK: scf.forall (%{{.+}}, %{{.+}}, %{{.+}}) in (3, 10, 6)
// CHECK: %[[MATRIX:.+]] = arith.index_castui %{{.+}} : i32 to index
// CHECK: %[[ROW:.+]] = arith.index_castui %{{.+}} : i32 to index
// CHECK: tensor.extract_slice %{{.+}}[%[[MATRIX]], %[[ROW]], 0] [1, 1, 64] [1, 1, 1]
// CHECK: mapping = [#iree_codegen.workgroup_mapping<z>, #iree_codegen.workgroup_mapping<y>, #iree_codegen.workgroup_mapping<x>]
func.func @batch(%a: tensor<3x10x64xf32>, %b: tensor<3x64x6xf32>, %zero: tensor<3x10x6xf32>) -> tensor<3x10x6xf32> {
  %r = linalg.batch_matmul {lowering_config = #iree_gpu.lowering_config<{workgroup = [1, 1, 1, 0]}>,
      mxcomp.workgroup_order = {band = 4, xcds = 8}}
    ins(%a, %b : tensor<3x10x64xf32>, tensor<3x64x6xf32>) outs(%zero : tensor<3x10x6xf32>) -> tensor<3x10x6xf32>
  return %r : tensor<3x10x6xf32>
}

// One column of tiles: IREE makes a loop over rows alone, all of which share the column.
// CHECK-LABEL: func.func @column
// CHECK: scf.forall (%[[X:.+]]) in (10)
// CHECK-NOT: arith
// CHECK: tensor.extract_slice %{{.+}}[%[[X]], 0] [1, 64] [1, 1]
func.func @column(%a: tensor<10x64xf32>, %b: tensor<64x1xf32>, %zero: tensor<10x1xf32>) -> tensor<10x1xf32> {
  %r = linalg.matmul {lowering_config = #iree_gpu.lowering_config<{workgroup = [1, 1, 0]}>,
      mxcomp.workgroup_order = {band = 4, xcds = 8}}
    ins(%a, %b : tensor<10x64xf32>, tensor<64x1xf32>) outs(%zero : tensor<10x1xf32>) -> tensor<10x1xf32>
  return %r : tensor<10x1xf32>
}

// Without an order all stays with IREE.
// CHECK-LABEL: func.func @plain
// CHECK-NOT: scf.forall
// CHECK: linalg.matmul {lowering_config = #iree_gpu.lowering_config<{workgroup = [1, 1, 0]}>}
func.func @plain(%a: tensor<10x64xf32>, %b: tensor<64x6xf32>, %zero: tensor<10x6xf32>) -> tensor<10x6xf32> {
  %r = linalg.matmul {lowering_config = #iree_gpu.lowering_config<{workgroup = [1, 1, 0]}>}
    ins(%a, %b : tensor<10x64xf32>, tensor<64x6xf32>) outs(%zero : tensor<10x6xf32>) -> tensor<10x6xf32>
  return %r : tensor<10x6xf32>
}
