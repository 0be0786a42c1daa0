// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-fuse-consumers)' | filecheck %s

// Elementwise consumers move in front of unset_encoding, as one generic; what needs the plain result stays behind.

#acc = #iree_encoding.encoding<operand_index = 4 : index, op_type = scaled_matmul, element_types = [f4E2M1FN, f4E2M1FN, f8E8M0FNU, f8E8M0FNU, f32]>
#id = affine_map<(m, n) -> (m, n)>
#column = affine_map<(m, n) -> (n)>
#flipped = affine_map<(m, n) -> (n, m)>

// CHECK-DAG: #[[ID:.+]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[COLUMN:.+]] = affine_map<(d0, d1) -> (d1)>
// CHECK-DAG: #[[ACC:.+]] = #iree_encoding.encoding<operand_index = 4

// CHECK-LABEL: util.func public @bias_silu_truncf(
// CHECK-SAME: %[[RE:[a-z0-9]+]]: tensor<64x64xf32, #[[ACC]]>, %[[BIAS:[a-z0-9]+]]: tensor<64xf32>
// CHECK-NOT: iree_encoding.unset_encoding
// CHECK: %[[EMPTY:.+]] = tensor.empty() : tensor<64x64xbf16, #[[ACC]]>
// CHECK-NEXT: %[[FUSED:.+]] = linalg.generic {indexing_maps = [#[[ID]], #[[COLUMN]], #[[ID]]], iterator_types = ["parallel", "parallel"]}
// CHECK-SAME: ins(%[[RE]], %[[BIAS]] : {{.*}}) outs(%[[EMPTY]] : {{.*}}) attrs = {mxcomp.epilogue} {
// CHECK-NEXT: ^bb0(%[[X:.+]]: f32, %[[B:.+]]: f32, %{{.+}}: bf16):
// CHECK-NEXT: %[[SUM:.+]] = arith.addf %[[X]], %[[B]] : f32
// CHECK-NEXT: %[[MINUS:.+]] = arith.negf %[[SUM]] : f32
// CHECK-NEXT: %[[EXP:.+]] = math.exp %[[MINUS]] : f32
// CHECK-NEXT: %[[ONE:.+]] = arith.constant 1.0{{.*}} : f32
// CHECK-NEXT: %[[MORE:.+]] = arith.addf %[[EXP]], %[[ONE]] : f32
// CHECK-NEXT: %[[SILU:.+]] = arith.divf %[[SUM]], %[[MORE]] : f32
// CHECK-NEXT: %[[SHORT:.+]] = arith.truncf %[[SILU]] : f32 to bf16
// CHECK-NEXT: linalg.yield %[[SHORT]] : bf16
// CHECK: %[[Y:.+]] = iree_encoding.unset_encoding %[[FUSED]] : tensor<64x64xbf16, #[[ACC]]> -> tensor<64x64xbf16>
// CHECK-NEXT: util.return %[[Y]]
util.func public @bias_silu_truncf(%re: tensor<64x64xf32, #acc>, %bias: tensor<64xf32>) -> tensor<64x64xbf16> {
  %one = arith.constant 1.0 : f32
  %r = iree_encoding.unset_encoding %re : tensor<64x64xf32, #acc> -> tensor<64x64xf32>
  %e = tensor.empty() : tensor<64x64xf32>
  %b = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]}
    ins(%r, %bias : tensor<64x64xf32>, tensor<64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%x: f32, %c: f32, %o: f32):
    %0 = arith.addf %x, %c : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%b : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = arith.negf %x : f32
    %1 = math.exp %0 : f32
    %2 = arith.addf %1, %one : f32
    linalg.yield %2 : f32
  } -> tensor<64x64xf32>
  %h = tensor.empty() : tensor<64x64xbf16>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%b, %d : tensor<64x64xf32>, tensor<64x64xf32>) outs(%h : tensor<64x64xbf16>) {
  ^bb0(%x: f32, %z: f32, %o: bf16):
    %0 = arith.divf %x, %z : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<64x64xbf16>
  util.return %y : tensor<64x64xbf16>
}

// The sum is returned as well: fusing what follows would leave two results.

// CHECK-LABEL: util.func public @second_result(
// CHECK: linalg.generic {{.*}} attrs = {mxcomp.epilogue} {
// CHECK: arith.addf
// CHECK: %[[SUM:.+]] = iree_encoding.unset_encoding
// CHECK: %[[Y:.+]] = linalg.generic {indexing_maps = [#[[ID]], #[[ID]]], iterator_types = ["parallel", "parallel"]} ins(%[[SUM]]
// CHECK: util.return %[[SUM]], %[[Y]]
util.func public @second_result(%re: tensor<64x64xf32, #acc>, %residual: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %r = iree_encoding.unset_encoding %re : tensor<64x64xf32, #acc> -> tensor<64x64xf32>
  %e = tensor.empty() : tensor<64x64xf32>
  %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%r, %residual : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%x: f32, %z: f32, %o: f32):
    %0 = arith.addf %x, %z : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%s : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = math.absf %x : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  util.return %s, %y : tensor<64x64xf32>, tensor<64x64xf32>
}

// Not elementwise, not at the same place, not only a calculation: nothing is fused.

// CHECK-LABEL: util.func public @transposed(
// CHECK-NOT: mxcomp.epilogue
// CHECK: util.return
util.func public @transposed(%re: tensor<64x64xf32, #acc>) -> tensor<64x64xf32> {
  %r = iree_encoding.unset_encoding %re : tensor<64x64xf32, #acc> -> tensor<64x64xf32>
  %e = tensor.empty() : tensor<64x64xf32>
  %y = linalg.generic {indexing_maps = [#flipped, #id], iterator_types = ["parallel", "parallel"]}
    ins(%r : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = arith.negf %x : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  util.return %y : tensor<64x64xf32>
}

// CHECK-LABEL: util.func public @row_sums(
// CHECK-NOT: mxcomp.epilogue
// CHECK: util.return
util.func public @row_sums(%re: tensor<64x64xf32, #acc>, %init: tensor<64xf32>) -> tensor<64xf32> {
  %r = iree_encoding.unset_encoding %re : tensor<64x64xf32, #acc> -> tensor<64x64xf32>
  %y = linalg.generic {indexing_maps = [#id, affine_map<(m, n) -> (m)>], iterator_types = ["parallel", "reduction"]}
    ins(%r : tensor<64x64xf32>) outs(%init : tensor<64xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = arith.addf %x, %o : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  util.return %y : tensor<64xf32>
}

// CHECK-LABEL: util.func public @accumulates(
// CHECK-NOT: mxcomp.epilogue
// CHECK: util.return
util.func public @accumulates(%re: tensor<64x64xf32, #acc>, %init: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %r = iree_encoding.unset_encoding %re : tensor<64x64xf32, #acc> -> tensor<64x64xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%r : tensor<64x64xf32>) outs(%init : tensor<64x64xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = arith.addf %x, %o : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  util.return %y : tensor<64x64xf32>
}

// CHECK-LABEL: util.func public @position(
// CHECK-NOT: mxcomp.epilogue
// CHECK: util.return
util.func public @position(%re: tensor<64x64xf32, #acc>) -> tensor<64x64xf32> {
  %r = iree_encoding.unset_encoding %re : tensor<64x64xf32, #acc> -> tensor<64x64xf32>
  %e = tensor.empty() : tensor<64x64xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%r : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%x: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = arith.index_cast %i : index to i32
    %0 = arith.sitofp %j : i32 to f32
    %1 = arith.mulf %x, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<64x64xf32>
  util.return %y : tensor<64x64xf32>
}
