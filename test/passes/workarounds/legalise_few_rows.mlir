// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-few-rows)' | filecheck %s

// Products of 1 to 8 rows of 16-bit floats, over which IREE's compiler ends the process.

#mk = affine_map<(m, n, k) -> (m, k)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>

// CHECK-LABEL: util.func public @router(
// CHECK-SAME: %[[X:.+]]: tensor<4x2048xbf16>, %[[W:.+]]: tensor<32x2048xbf16>
// CHECK: linalg.generic {indexing_maps = [#[[NK:.+]], #[[MK:.+]], #[[MN:.+]]], {{.*}} ins(%[[W]], %[[X]] :
// CHECK-NEXT: ^bb0(%[[B:[a-z_0-9]+]]: bf16, %[[A:[a-z_0-9]+]]: bf16,
// CHECK-NEXT: arith.extf %[[A]]
// CHECK-NEXT: arith.extf %[[B]]
util.func @router(%x: tensor<4x2048xbf16>, %w: tensor<32x2048xbf16>, %init: tensor<4x32xf32>) -> tensor<4x32xf32> {
  %r = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<4x2048xbf16>, tensor<32x2048xbf16>) outs(%init : tensor<4x32xf32>) {
  ^bb0(%a: bf16, %b: bf16, %acc: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<4x32xf32>
  util.return %r : tensor<4x32xf32>
}

// Neither factor has more rows.
// CHECK-LABEL: util.func public @both(
// CHECK: linalg.generic {{.*}} outs(%{{[0-9]+}} : tensor<4x256xf32>)
// CHECK: %[[X:.+]] = util.optimization_barrier %{{[0-9]+}} : tensor<4x256xf32>
// CHECK: linalg.generic {{.*}} outs(%{{[0-9]+}} : tensor<3x256xf32>)
// CHECK: %[[W:.+]] = util.optimization_barrier %{{[0-9]+}} : tensor<3x256xf32>
// CHECK: linalg.generic {{.*}} ins(%[[X]], %[[W]] : tensor<4x256xf32>, tensor<3x256xf32>)
util.func @both(%x: tensor<4x256xf16>, %w: tensor<3x256xf16>, %init: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %r = linalg.generic {indexing_maps = [#mk, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<4x256xf16>, tensor<3x256xf16>) outs(%init : tensor<4x3xf32>) {
  ^bb0(%a: f16, %b: f16, %acc: f32):
    %0 = arith.extf %a : f16 to f32
    %1 = arith.extf %b : f16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<4x3xf32>
  util.return %r : tensor<4x3xf32>
}

// What extends a factor becomes part of the product. Named operations, and a batch.
// CHECK-LABEL: util.func public @extended(
// CHECK: linalg.generic {{.*}} ins(%arg1, %arg0 : tensor<5x128x64xbf16>, tensor<5x7x128xbf16>)
// CHECK-NEXT: ^bb0(%[[B:[a-z_0-9]+]]: bf16, %[[A:[a-z_0-9]+]]: bf16,
// CHECK: arith.extf %[[A]] : bf16 to f32
util.func @extended(%x: tensor<5x7x128xbf16>, %w: tensor<5x128x64xbf16>, %init: tensor<5x7x64xf32>) -> tensor<5x7x64xf32> {
  %e = tensor.empty() : tensor<5x7x128xf32>
  %wide = linalg.generic {indexing_maps = [affine_map<(b, m, k) -> (b, m, k)>, affine_map<(b, m, k) -> (b, m, k)>],
                          iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<5x7x128xbf16>) outs(%e : tensor<5x7x128xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<5x7x128xf32>
  %r = linalg.batch_matmul ins(%wide, %w : tensor<5x7x128xf32>, tensor<5x128x64xbf16>) outs(%init : tensor<5x7x64xf32>) -> tensor<5x7x64xf32>
  util.return %r : tensor<5x7x64xf32>
}

// One row, in a named operation; it becomes a generic one.
// CHECK-LABEL: util.func public @one(
// CHECK-SAME: %[[X:.+]]: tensor<1x512xbf16>, %[[W:.+]]: tensor<512x8xbf16>
// CHECK: linalg.generic {{.*}} ins(%[[W]], %[[X]] :
// CHECK-NOT: linalg.matmul
util.func @one(%x: tensor<1x512xbf16>, %w: tensor<512x8xbf16>, %init: tensor<1x8xf32>) -> tensor<1x8xf32> {
  %r = linalg.matmul ins(%x, %w : tensor<1x512xbf16>, tensor<512x8xbf16>) outs(%init : tensor<1x8xf32>) -> tensor<1x8xf32>
  util.return %r : tensor<1x8xf32>
}

// A factor that is one number everywhere has been no 16-bit float.
// CHECK-LABEL: util.func public @filled(
// CHECK: linalg.matmul ins(%{{.+}}, %arg0 :
util.func @filled(%w: tensor<128x32xf32>, %one: f32, %init: tensor<4x32xf32>) -> tensor<4x32xf32> {
  %e = tensor.empty() : tensor<4x128xf32>
  %x = linalg.fill ins(%one : f32) outs(%e : tensor<4x128xf32>) -> tensor<4x128xf32>
  %r = linalg.matmul ins(%x, %w : tensor<4x128xf32>, tensor<128x32xf32>) outs(%init : tensor<4x32xf32>) -> tensor<4x32xf32>
  util.return %r : tensor<4x32xf32>
}

// What IREE compiles stays: other K, other rows, f32.
// CHECK-LABEL: util.func public @others(
// CHECK: linalg.matmul ins(%arg0, %arg1 :
// CHECK: linalg.matmul ins(%arg2, %arg3 :
// CHECK: linalg.matmul ins(%arg4, %arg5 :
// CHECK: linalg.matmul ins(%arg6, %arg7 :
util.func @others(%a: tensor<4x192xbf16>, %b: tensor<192x32xbf16>, %c: tensor<9x128xbf16>, %d: tensor<128x32xbf16>,
    %e: tensor<4x128xf32>, %f: tensor<128x32xf32>, %g: tensor<?x128xbf16>, %h: tensor<128x32xbf16>,
    %init: tensor<4x32xf32>, %init9: tensor<9x32xf32>, %init_m: tensor<?x32xf32>)
    -> (tensor<4x32xf32>, tensor<9x32xf32>, tensor<4x32xf32>, tensor<?x32xf32>) {
  %0 = linalg.matmul ins(%a, %b : tensor<4x192xbf16>, tensor<192x32xbf16>) outs(%init : tensor<4x32xf32>) -> tensor<4x32xf32>
  %1 = linalg.matmul ins(%c, %d : tensor<9x128xbf16>, tensor<128x32xbf16>) outs(%init9 : tensor<9x32xf32>) -> tensor<9x32xf32>
  %2 = linalg.matmul ins(%e, %f : tensor<4x128xf32>, tensor<128x32xf32>) outs(%init : tensor<4x32xf32>) -> tensor<4x32xf32>
  %3 = linalg.matmul ins(%g, %h : tensor<?x128xbf16>, tensor<128x32xbf16>) outs(%init_m : tensor<?x32xf32>) -> tensor<?x32xf32>
  util.return %0, %1, %2, %3 : tensor<4x32xf32>, tensor<9x32xf32>, tensor<4x32xf32>, tensor<?x32xf32>
}

// A factor that a number is added to: it is no tensor, and of f32.
// CHECK-LABEL: util.func public @number(
// CHECK: linalg.matmul ins(%{{.+}}, %arg1 :
util.func @number(%x: tensor<4x128xf32>, %w: tensor<128x32xbf16>, %n: f32, %init: tensor<4x32xf32>) -> tensor<4x32xf32> {
  %e = tensor.empty() : tensor<4x128xf32>
  %moved = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> ()>, affine_map<(m, k) -> (m, k)>],
                           iterator_types = ["parallel", "parallel"]}
      ins(%x, %n : tensor<4x128xf32>, f32) outs(%e : tensor<4x128xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<4x128xf32>
  %r = linalg.matmul ins(%moved, %w : tensor<4x128xf32>, tensor<128x32xbf16>) outs(%init : tensor<4x32xf32>) -> tensor<4x32xf32>
  util.return %r : tensor<4x32xf32>
}

// A transpose of an extension, which IREE makes an extension of a transpose, and then part of the product.
// CHECK-LABEL: util.func public @transposed(
// CHECK: %[[W:.+]] = linalg.transpose
// CHECK: linalg.generic {{.*}} ins(%[[W]], %{{.+}} : tensor<128x16xf32>, tensor<2x128xbf16>)
util.func @transposed(%x: tensor<2x128xbf16>, %w: tensor<16x128xbf16>, %init: tensor<2x16xf32>) -> tensor<2x16xf32> {
  %x_places = tensor.empty() : tensor<2x128xf32>
  %wide_x = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<2x128xbf16>) outs(%x_places : tensor<2x128xf32>) {
  ^bb0(%a: bf16, %out: f32):
    %0 = arith.extf %a : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<2x128xf32>
  %w_places = tensor.empty() : tensor<16x128xf32>
  %wide_w = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%w : tensor<16x128xbf16>) outs(%w_places : tensor<16x128xf32>) {
  ^bb0(%a: bf16, %out: f32):
    %0 = arith.extf %a : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<16x128xf32>
  %t_places = tensor.empty() : tensor<128x16xf32>
  %t = linalg.transpose ins(%wide_w : tensor<16x128xf32>) outs(%t_places : tensor<128x16xf32>) permutation = [1, 0]
  %r = linalg.matmul ins(%wide_x, %t : tensor<2x128xf32>, tensor<128x16xf32>) outs(%init : tensor<2x16xf32>) -> tensor<2x16xf32>
  util.return %r : tensor<2x16xf32>
}
