// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{data-tiling=off ukernels=none},mxcomp-fall-back,mxcomp-keep-branches-behind)' | filecheck %s

// What reads another tensor and branches stays out of the dispatch of a matmul that is left to IREE: its vectors hold
// poison beyond the tensor's edge, and a branch on poison makes LLVM take the kernel for unreachable.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
#same = affine_map<(m, n) -> (m, n)>

// CHECK-LABEL: util.func public @branches(
// CHECK: %[[R:.+]] = linalg.generic {{.*}}mxcomp.scaled_matmul
// CHECK: %[[HIDDEN:.+]] = util.optimization_barrier %[[R]]
// CHECK: linalg.generic {{.*}} ins(%[[HIDDEN]], %
// CHECK: math.tanh

// CHECK-LABEL: util.func public @branchless(
// CHECK-NOT: util.optimization_barrier
// CHECK: math.exp

// CHECK-LABEL: util.func public @nothing_read(
// CHECK-NOT: util.optimization_barrier
// CHECK: math.tanh

// CHECK-LABEL: util.func public @of_another(
// CHECK-NOT: util.optimization_barrier
// CHECK: util.return

util.func @branches(%a: tensor<3x8x32xf8E4M3FN>, %b: tensor<64x8x32xf8E4M3FN>, %as: tensor<3x8xf8E8M0FNU>,
    %bs: tensor<64x8xf8E8M0FNU>, %bias: tensor<3x64xf32>) -> tensor<3x64xf32> {
  %init = arith.constant dense<0.0> : tensor<3x64xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<3x8x32xf8E4M3FN>, tensor<64x8x32xf8E4M3FN>,
                             tensor<3x8xf8E8M0FNU>, tensor<64x8xf8E8M0FNU>)
      outs(%init : tensor<3x64xf32>) {
  ^bb0(%x: f8E4M3FN, %y: f8E4M3FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f8E4M3FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<3x64xf32>
  %e = tensor.empty() : tensor<3x64xf32>
  %s = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%r, %bias : tensor<3x64xf32>, tensor<3x64xf32>) outs(%e : tensor<3x64xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.addf %x, %y : f32
    %1 = math.tanh %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x64xf32>
  util.return %s : tensor<3x64xf32>
}

util.func @branchless(%a: tensor<3x8x32xf8E4M3FN>, %b: tensor<64x8x32xf8E4M3FN>, %as: tensor<3x8xf8E8M0FNU>,
    %bs: tensor<64x8xf8E8M0FNU>, %bias: tensor<3x64xf32>) -> tensor<3x64xf32> {
  %init = arith.constant dense<0.0> : tensor<3x64xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<3x8x32xf8E4M3FN>, tensor<64x8x32xf8E4M3FN>,
                             tensor<3x8xf8E8M0FNU>, tensor<64x8xf8E8M0FNU>)
      outs(%init : tensor<3x64xf32>) {
  ^bb0(%x: f8E4M3FN, %y: f8E4M3FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f8E4M3FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<3x64xf32>
  %e = tensor.empty() : tensor<3x64xf32>
  %s = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%r, %bias : tensor<3x64xf32>, tensor<3x64xf32>) outs(%e : tensor<3x64xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.addf %x, %y : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x64xf32>
  util.return %s : tensor<3x64xf32>
}

util.func @nothing_read(%a: tensor<3x8x32xf8E4M3FN>, %b: tensor<64x8x32xf8E4M3FN>, %as: tensor<3x8xf8E8M0FNU>,
    %bs: tensor<64x8xf8E8M0FNU>, %bias: tensor<3x64xf32>) -> tensor<3x64xf32> {
  %init = arith.constant dense<0.0> : tensor<3x64xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<3x8x32xf8E4M3FN>, tensor<64x8x32xf8E4M3FN>,
                             tensor<3x8xf8E8M0FNU>, tensor<64x8xf8E8M0FNU>)
      outs(%init : tensor<3x64xf32>) {
  ^bb0(%x: f8E4M3FN, %y: f8E4M3FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f8E4M3FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<3x64xf32>
  %e = tensor.empty() : tensor<3x64xf32>
  %s = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%r : tensor<3x64xf32>) outs(%e : tensor<3x64xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = math.tanh %x : f32
    linalg.yield %0 : f32
  } -> tensor<3x64xf32>
  util.return %s : tensor<3x64xf32>
}

util.func @of_another(%a: tensor<3x8x32xf8E4M3FN>, %b: tensor<64x8x32xf8E4M3FN>, %as: tensor<3x8xf8E8M0FNU>,
    %bs: tensor<64x8xf8E8M0FNU>, %bias: tensor<3x64xf32>) -> tensor<3x64xf32> {
  %init = arith.constant dense<0.0> : tensor<3x64xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<3x8x32xf8E4M3FN>, tensor<64x8x32xf8E4M3FN>,
                             tensor<3x8xf8E8M0FNU>, tensor<64x8xf8E8M0FNU>)
      outs(%init : tensor<3x64xf32>) {
  ^bb0(%x: f8E4M3FN, %y: f8E4M3FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f8E4M3FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<3x64xf32>
  %e = tensor.empty() : tensor<3x64xf32>
  %s = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%bias, %bias : tensor<3x64xf32>, tensor<3x64xf32>) outs(%e : tensor<3x64xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.addf %x, %y : f32
    %1 = math.tanh %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x64xf32>
  util.return %r : tensor<3x64xf32>
}

// A product that is no scaled matmul; a sum of one tensor stays in one dispatch with what comes behind.
// CHECK-LABEL: util.func public @plain(
// CHECK: %[[R:.+]] = linalg.matmul
// CHECK: %[[HIDDEN:.+]] = util.optimization_barrier %[[R]]
// CHECK: linalg.generic {{.*}} ins(%[[HIDDEN]], %
// CHECK: %[[S:.+]] = linalg.reduce
// CHECK-NOT: util.optimization_barrier
// CHECK: linalg.generic {{.*}} ins(%[[S]], %
util.func @plain(%a: tensor<3x256xf32>, %b: tensor<256x64xf32>, %c: tensor<3x64xf32>, %d: tensor<3xf32>, %zero: tensor<3x64xf32>,
    %zeros: tensor<3xf32>) -> (tensor<3x64xf32>, tensor<3xf32>) {
  %r = linalg.matmul ins(%a, %b : tensor<3x256xf32>, tensor<256x64xf32>) outs(%zero : tensor<3x64xf32>) -> tensor<3x64xf32>
  %y = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%r, %c : tensor<3x64xf32>, tensor<3x64xf32>) outs(%zero : tensor<3x64xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %0 = arith.addf %i, %j : f32
    %1 = math.tanh %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x64xf32>
  %s = linalg.reduce { arith.addf } ins(%a : tensor<3x256xf32>) outs(%zeros : tensor<3xf32>) dimensions = [1]
  %z = linalg.generic {indexing_maps = [affine_map<(m) -> (m)>, affine_map<(m) -> (m)>, affine_map<(m) -> (m)>], iterator_types = ["parallel"]}
      ins(%s, %d : tensor<3xf32>, tensor<3xf32>) outs(%zeros : tensor<3xf32>) {
  ^bb0(%i: f32, %j: f32, %o: f32):
    %0 = arith.addf %i, %j : f32
    %1 = math.tanh %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3xf32>
  util.return %y, %z : tensor<3x64xf32>, tensor<3xf32>
}
