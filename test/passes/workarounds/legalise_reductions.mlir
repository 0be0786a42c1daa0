// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-legalise-reductions)' | filecheck %s

// Reductions of integers that IREE gets wrong on a wave combine codes of the numbers instead.

#rows = affine_map<(m, k) -> (m, k)>
#row = affine_map<(m, k) -> (m)>

// CHECK-LABEL: util.func public @greatest(
// CHECK-DAG: %[[LEAST:.+]] = arith.constant -2147483648 : i32
// CHECK-DAG: %[[SIGN:.+]] = arith.constant -2147483648 : i32
// CHECK: %[[START:.+]] = arith.xori %[[LEAST]], %[[SIGN]] : i32
// CHECK: %[[CODES:.+]] = linalg.fill ins(%[[START]] : i32) outs(%{{.+}} : tensor<?xi32>)
// CHECK: %[[REDUCED:.+]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]}
// CHECK-SAME: outs(%[[CODES]] : tensor<?xi32>)
// CHECK: %[[CODE:.+]] = arith.xori %in, %{{.+}} : i32
// CHECK: arith.maxui %out, %[[CODE]] : i32
// CHECK: %[[NUMBERS:.+]] = linalg.generic {{.*}} ins(%[[REDUCED]] : tensor<?xi32>)
// CHECK: arith.xori %in
// CHECK: util.return %[[NUMBERS]]
util.func public @greatest(%x: tensor<?x256xi32>, %m: index) -> tensor<?xi32> {
  %least = arith.constant -2147483648 : i32
  %e = tensor.empty(%m) : tensor<?xi32>
  %f = linalg.fill ins(%least : i32) outs(%e : tensor<?xi32>) -> tensor<?xi32>
  %r = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x256xi32>) outs(%f : tensor<?xi32>) {
  ^bb0(%in: i32, %out: i32):
    %s = arith.maxsi %in, %out : i32
    linalg.yield %s : i32
  } -> tensor<?xi32>
  util.return %r : tensor<?xi32>
}

// A named reduction, of bytes, from numbers that are not constant.
// CHECK-LABEL: util.func public @least_byte(
// CHECK-SAME: %{{.+}}: tensor<4x256xi8>, %[[INIT:.+]]: tensor<4xi8>
// CHECK: %[[START:.+]] = linalg.generic {{.*}} ins(%[[INIT]] : tensor<4xi8>) outs(%{{.+}} : tensor<4xi32>)
// CHECK: arith.extui %in : i8 to i32
// CHECK: linalg.reduce ins(%{{.+}} : tensor<4x256xi8>) outs(%[[START]] : tensor<4xi32>) dimensions = [1]
// CHECK: %[[WIDE:.+]] = arith.extui %in : i8 to i32
// CHECK: arith.minui {{.*}}%[[WIDE]]
// CHECK: arith.trunci %in : i32 to i8
util.func public @least_byte(%x: tensor<4x256xi8>, %init: tensor<4xi8>) -> tensor<4xi8> {
  %r = linalg.reduce ins(%x : tensor<4x256xi8>) outs(%init : tensor<4xi8>) dimensions = [1]
    (%in: i8, %out: i8) {
      %s = arith.minui %in, %out : i8
      linalg.yield %s : i8
    }
  util.return %r : tensor<4xi8>
}

// Sums of i32 are right, and blocks of 32 are no wave's.
// CHECK-LABEL: util.func public @right(
// CHECK-NOT: arith.xori
// CHECK: arith.addi
// CHECK-NOT: arith.xori
// CHECK: arith.maxsi
// CHECK-NOT: arith.xori
util.func public @right(%x: tensor<4x256xi32>, %y: tensor<4x32xi32>, %f: tensor<4xi32>) -> (tensor<4xi32>, tensor<4xi32>) {
  %r = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x256xi32>) outs(%f : tensor<4xi32>) {
  ^bb0(%in: i32, %out: i32):
    %s = arith.addi %in, %out : i32
    linalg.yield %s : i32
  } -> tensor<4xi32>
  %q = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<4x32xi32>) outs(%f : tensor<4xi32>) {
  ^bb0(%in: i32, %out: i32):
    %s = arith.maxsi %in, %out : i32
    linalg.yield %s : i32
  } -> tensor<4xi32>
  util.return %r, %q : tensor<4xi32>, tensor<4xi32>
}

// What is combined with more than one operation, and what all elements have a part in, stays.
// CHECK-LABEL: util.func public @others(
// CHECK-NOT: arith.xori
// CHECK: util.return
util.func public @others(%x: tensor<4x256xi32>, %f: tensor<4xi32>) -> (tensor<4xi32>, tensor<4x256xi32>) {
  %r = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x256xi32>) outs(%f : tensor<4xi32>) {
  ^bb0(%in: i32, %out: i32):
    %a = arith.maxsi %in, %out : i32
    %b = arith.addi %a, %out : i32
    linalg.yield %b : i32
  } -> tensor<4xi32>
  %q = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x256xi32>) outs(%x : tensor<4x256xi32>) {
  ^bb0(%in: i32, %out: i32):
    %a = arith.maxsi %in, %out : i32
    linalg.yield %a : i32
  } -> tensor<4x256xi32>
  util.return %r, %q : tensor<4xi32>, tensor<4x256xi32>
}
