// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-extend-scales)' | filecheck %s

// A scale that is extended on its own is so by its bits, of which 0 is 2^-127; an element is extended as it is.

// CHECK-LABEL: util.func public @scale(
// CHECK: ^bb0(%[[S:.+]]: f8E8M0FNU, %[[X:.+]]: f8E4M3FN, %{{.+}}: f32):
// CHECK: arith.bitcast %[[S]] : f8E8M0FNU to i8
// CHECK-NOT: f8E8M0FNU to f32
// CHECK: arith.extf %[[X]] : f8E4M3FN to f32
util.func @scale(%s: tensor<8xf8E8M0FNU>, %x: tensor<8xf8E4M3FN>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%s, %x : tensor<8xf8E8M0FNU>, tensor<8xf8E4M3FN>) outs(%e : tensor<8xf32>) {
  ^bb0(%i: f8E8M0FNU, %j: f8E4M3FN, %o: f32):
    %0 = arith.extf %i : f8E8M0FNU to f32
    %1 = arith.extf %j : f8E4M3FN to f32
    %2 = arith.mulf %0, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<8xf32>
  util.return %r : tensor<8xf32>
}

// CHECK-LABEL: util.func public @tensor(
// CHECK: linalg.generic {{.*}} ins(%arg0 : tensor<?x8xf8E8M0FNU>) outs(%{{.+}} : tensor<?x8xbf16>)
// CHECK: arith.bitcast {{.*}} : f8E8M0FNU to i8
// CHECK: arith.truncf {{.*}} : f32 to bf16
// CHECK: arith.extf %arg1 : tensor<8xf8E4M3FN> to tensor<8xf32>
util.func @tensor(%s: tensor<?x8xf8E8M0FNU>, %x: tensor<8xf8E4M3FN>) -> (tensor<?x8xbf16>, tensor<8xf32>) {
  %0 = arith.extf %s : tensor<?x8xf8E8M0FNU> to tensor<?x8xbf16>
  %1 = arith.extf %x : tensor<8xf8E4M3FN> to tensor<8xf32>
  util.return %0, %1 : tensor<?x8xbf16>, tensor<8xf32>
}
