// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-unmask-stores)' | filecheck %s

// CHECK-DAG: #[[PLACE_OF:.+]] = affine_map<(d0, d1, d2, d3) -> (d0 * 128 + d1 * 4 + d2 + d3 * 512)>
// CHECK-DAG: #[[WITH_AWAY:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d0 * 128 + d1 * 4 + d2 + d3 + d4 * 500)>
// CHECK-DAG: #[[OF_MATRICES:.+]] = affine_map<(d0, d1, d2, d3) -> (d0 + d1 + d2 * 153000 + d3 * 510)>
#raw = #amdgpu.address_space<fat_raw_buffer>
#ukernel = #iree_codegen.ukernel_descriptor<"mx_f4E2M1FN_f4E2M1FN_f32_m128_n128_k512", tensor>

// Rows are the last of the buffer, and columns none of the padding: nothing is asked for. The buffer is a single row,
// and a place in it one sum.
// CHECK-LABEL: func.func @rows(
// CHECK: iree_linalg_ext.map_store
// CHECK: ^bb0(%[[A:[^:]+]]: index, %[[B:[^:]+]]: index, %[[C:[^:]+]]: index, %[[D:[^:]+]]: index, %[[V:[^:]+]]: index):
// CHECK: %[[ROW:.+]] = affine.linearize_index disjoint [%[[A]], %[[C]]] by (3, 128)
// CHECK: %[[TRUE:.+]] = arith.constant true
// CHECK: %[[PLACE:.+]] = affine.apply #[[PLACE_OF]](%[[B]], %[[D]], %[[V]], %[[ROW]])
// CHECK: iree_linalg_ext.yield %[[PLACE]], %[[TRUE]]
// CHECK: into tensor<153600xf32>
// CHECK: memref.reinterpret_cast %{{.+}} to offset: [0], sizes: [153600], strides: [1]
// CHECK: iree_codegen.store_to_buffer %{{.+}} : tensor<153600xf32> into memref<153600xf32, #amdgpu.address_space<fat_raw_buffer>>
func.func @rows(%tiles: tensor<3x4x128x32x4xf32>, %buffer: memref<300x512xf32, #raw>) {
  %c300 = arith.constant 300 : index
  %c512 = arith.constant 512 : index
  %zero = arith.constant 0.0 : f32
  %like = linalg.fill {iree_codegen.ukernel = #ukernel} ins(%zero : f32) outs(%tiles : tensor<3x4x128x32x4xf32>) -> tensor<3x4x128x32x4xf32>
  %empty = tensor.empty() : tensor<300x512xf32>
  %r = iree_linalg_ext.map_store %like into %empty {
  ^bb0(%a: index, %b: index, %c: index, %d: index, %v: index):
    %row = affine.linearize_index disjoint [%a, %c] by (3, 128) : index
    %column = affine.linearize_index disjoint [%b, %d, %v] by (4, 32, 4) : index
    %is_row = arith.cmpi ult, %row, %c300 : index
    %is_column = arith.cmpi ult, %column, %c512 : index
    %is_real = arith.andi %is_row, %is_column : i1
    iree_linalg_ext.yield %row, %column, %is_real : index, index, i1
  } : tensor<3x4x128x32x4xf32> into tensor<300x512xf32> -> tensor<300x512xf32>
  iree_codegen.store_to_buffer %r, %buffer : tensor<300x512xf32> into memref<300x512xf32, #raw>
  return
}

// Columns that are padding go beyond the buffer, four at a time; 2 bytes an element.
// CHECK-LABEL: func.func @columns(
// CHECK: ^bb0(%{{.+}}: index, %[[B:[^:]+]]: index, %{{.+}}: index, %[[D:[^:]+]]: index, %[[V:[^:]+]]: index):
// CHECK: %[[ROW:.+]] = affine.linearize_index
// CHECK: %[[FIRST:.+]] = affine.apply #{{.+}}(%[[B]], %[[D]])
// CHECK: %[[IS_REAL:.+]] = arith.cmpi ult, %[[FIRST]], %c500
// CHECK: %[[AWAY:.+]] = arith.select %[[IS_REAL]], %c0{{.*}}, %c1073741824
// CHECK: %[[PLACE:.+]] = affine.apply #[[WITH_AWAY]](%[[B]], %[[D]], %[[V]], %[[AWAY]], %[[ROW]])
// CHECK: iree_linalg_ext.yield %[[PLACE]], %true
// CHECK: iree_codegen.store_to_buffer %{{.+}} : tensor<?xbf16> into memref<?xbf16
func.func @columns(%tiles: tensor<3x4x128x32x4xbf16>, %m: index, %buffer: memref<?x500xbf16, strided<[500, 1]>, #raw>) {
  %c500 = arith.constant 500 : index
  %zero = arith.constant 0.0 : bf16
  %like = linalg.fill {iree_codegen.ukernel = #ukernel} ins(%zero : bf16) outs(%tiles : tensor<3x4x128x32x4xbf16>) -> tensor<3x4x128x32x4xbf16>
  %empty = tensor.empty(%m) : tensor<?x500xbf16>
  %r = iree_linalg_ext.map_store %like into %empty {
  ^bb0(%a: index, %b: index, %c: index, %d: index, %v: index):
    %row = affine.linearize_index disjoint [%a, %c] by (3, 128) : index
    %column = affine.linearize_index disjoint [%b, %d, %v] by (4, 32, 4) : index
    %is_row = arith.cmpi ult, %row, %m : index
    %is_column = arith.cmpi ult, %column, %c500 : index
    %is_real = arith.andi %is_row, %is_column : i1
    iree_linalg_ext.yield %row, %column, %is_real : index, index, i1
  } : tensor<3x4x128x32x4xbf16> into tensor<?x500xbf16> -> tensor<?x500xbf16>
  iree_codegen.store_to_buffer %r, %buffer : tensor<?x500xbf16> into memref<?x500xbf16, strided<[500, 1]>, #raw>
  return
}

// Behind the last row of a matrix is the next one's first: rows are asked for there. Columns are alone, 510 of them.
// CHECK-LABEL: func.func @matrices(
// CHECK: %[[ROW:.+]] = affine.linearize_index disjoint [%{{.+}}, %{{.+}}] by (3, 128)
// CHECK: %[[COLUMN:.+]] = affine.linearize_index
// CHECK: %[[IS_ROW:.+]] = arith.cmpi ult, %[[ROW]], %c300
// CHECK: %[[IS_COLUMN:.+]] = arith.cmpi ult, %[[COLUMN]], %c510
// CHECK: %[[IS_REAL:.+]] = arith.andi %[[IS_ROW]], %[[IS_COLUMN]]
// CHECK: %[[AWAY:.+]] = arith.select %[[IS_REAL]], %{{.+}}, %c536870912
// CHECK: %[[PLACE:.+]] = affine.apply #[[OF_MATRICES]](%[[COLUMN]], %[[AWAY]], %{{.+}}, %[[ROW]])
// CHECK: iree_linalg_ext.yield %[[PLACE]], %true
func.func @matrices(%tiles: tensor<2x3x4x128x32x4xf32>, %buffer: memref<2x300x510xf32, #raw>) {
  %c300 = arith.constant 300 : index
  %c510 = arith.constant 510 : index
  %zero = arith.constant 0.0 : f32
  %like = linalg.fill {iree_codegen.ukernel = #ukernel} ins(%zero : f32) outs(%tiles : tensor<2x3x4x128x32x4xf32>) -> tensor<2x3x4x128x32x4xf32>
  %empty = tensor.empty() : tensor<2x300x510xf32>
  %r = iree_linalg_ext.map_store %like into %empty {
  ^bb0(%x: index, %a: index, %b: index, %c: index, %d: index, %v: index):
    %row = affine.linearize_index disjoint [%a, %c] by (3, 128) : index
    %column = affine.linearize_index disjoint [%b, %d, %v] by (4, 32, 4) : index
    %is_row = arith.cmpi ult, %row, %c300 : index
    %is_column = arith.cmpi ult, %column, %c510 : index
    %is_real = arith.andi %is_row, %is_column : i1
    iree_linalg_ext.yield %x, %row, %column, %is_real : index, index, index, i1
  } : tensor<2x3x4x128x32x4xf32> into tensor<2x300x510xf32> -> tensor<2x300x510xf32>
  iree_codegen.store_to_buffer %r, %buffer : tensor<2x300x510xf32> into memref<2x300x510xf32, #raw>
  return
}

// Not checked by the hardware; with a gap behind each row; another's rows; a dynamic number of them that begin anywhere.
// CHECK-LABEL: func.func @left(
// CHECK-NOT: arith.constant true
// CHECK: return
func.func @left(%tiles: tensor<3x4x128x32x4xf32>, %plain: memref<300x512xf32>,
    %gaps: memref<300x512xf32, strided<[520, 1]>, #raw>, %other: memref<300x512xf32, #raw>,
    %anywhere: memref<?x512xf32, strided<[512, 1], offset: ?>, #raw>) {
  %c300 = arith.constant 300 : index
  %c512 = arith.constant 512 : index
  %zero = arith.constant 0.0 : f32
  %like = linalg.fill {iree_codegen.ukernel = #ukernel} ins(%zero : f32) outs(%tiles : tensor<3x4x128x32x4xf32>) -> tensor<3x4x128x32x4xf32>
  %empty = tensor.empty() : tensor<300x512xf32>
  %r = iree_linalg_ext.map_store %like into %empty {
  ^bb0(%a: index, %b: index, %c: index, %d: index, %v: index):
    %row = affine.linearize_index disjoint [%a, %c] by (3, 128) : index
    %column = affine.linearize_index disjoint [%b, %d, %v] by (4, 32, 4) : index
    %is_real = arith.cmpi ult, %row, %c300 : index
    iree_linalg_ext.yield %row, %column, %is_real : index, index, i1
  } : tensor<3x4x128x32x4xf32> into tensor<300x512xf32> -> tensor<300x512xf32>
  iree_codegen.store_to_buffer %r, %plain : tensor<300x512xf32> into memref<300x512xf32>
  %s = iree_linalg_ext.map_store %like into %empty {
  ^bb0(%a: index, %b: index, %c: index, %d: index, %v: index):
    %row = affine.linearize_index disjoint [%a, %c] by (3, 128) : index
    %column = affine.linearize_index disjoint [%b, %d, %v] by (4, 32, 4) : index
    %is_real = arith.cmpi ult, %row, %c300 : index
    iree_linalg_ext.yield %row, %column, %is_real : index, index, i1
  } : tensor<3x4x128x32x4xf32> into tensor<300x512xf32> -> tensor<300x512xf32>
  iree_codegen.store_to_buffer %s, %gaps : tensor<300x512xf32> into memref<300x512xf32, strided<[520, 1]>, #raw>
  %t = iree_linalg_ext.map_store %like into %empty {
  ^bb0(%a: index, %b: index, %c: index, %d: index, %v: index):
    %row = affine.linearize_index disjoint [%a, %c] by (3, 128) : index
    %column = affine.linearize_index disjoint [%b, %d, %v] by (4, 32, 4) : index
    %is_real = arith.cmpi ult, %row, %c300 : index
    iree_linalg_ext.yield %row, %column, %is_real : index, index, i1
  } : tensor<3x4x128x32x4xf32> into tensor<300x512xf32> -> tensor<300x512xf32>
  iree_codegen.store_to_buffer %t, %other : tensor<300x512xf32> into memref<300x512xf32, #raw>
  iree_codegen.store_to_buffer %t, %plain : tensor<300x512xf32> into memref<300x512xf32>
  %rows = tensor.empty(%c300) : tensor<?x512xf32>
  %u = iree_linalg_ext.map_store %like into %rows {
  ^bb0(%a: index, %b: index, %c: index, %d: index, %v: index):
    %row = affine.linearize_index disjoint [%a, %c] by (3, 128) : index
    %column = affine.linearize_index disjoint [%b, %d, %v] by (4, 32, 4) : index
    %is_real = arith.cmpi ult, %row, %c300 : index
    iree_linalg_ext.yield %row, %column, %is_real : index, index, i1
  } : tensor<3x4x128x32x4xf32> into tensor<?x512xf32> -> tensor<?x512xf32>
  iree_codegen.store_to_buffer %u, %anywhere : tensor<?x512xf32> into memref<?x512xf32, strided<[512, 1], offset: ?>, #raw>
  return
}

// No ukernel: not ours.
// CHECK-LABEL: func.func @others(
// CHECK-NOT: arith.constant true
// CHECK: return
func.func @others(%tiles: tensor<3x128x4xf32>, %buffer: memref<300x4xf32, #raw>) {
  %c300 = arith.constant 300 : index
  %empty = tensor.empty() : tensor<300x4xf32>
  %r = iree_linalg_ext.map_store %tiles into %empty {
  ^bb0(%a: index, %c: index, %v: index):
    %row = affine.linearize_index disjoint [%a, %c] by (3, 128) : index
    %is_real = arith.cmpi ult, %row, %c300 : index
    iree_linalg_ext.yield %row, %v, %is_real : index, index, i1
  } : tensor<3x128x4xf32> into tensor<300x4xf32> -> tensor<300x4xf32>
  iree_codegen.store_to_buffer %r, %buffer : tensor<300x4xf32> into memref<300x4xf32, #raw>
  return
}
