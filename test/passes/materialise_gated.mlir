// RUN: %python %S/inputs/gated_layer.py | mxcomp-opt - \
// RUN:   --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-defer-constants,mxcomp-encode{fuse-quantisers=on})' \
// RUN:   | filecheck %s --check-prefix=ENCODE
// RUN: %python %S/inputs/gated_layer.py | mxcomp-opt - \
// RUN:   --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-defer-constants,mxcomp-encode{fuse-quantisers=on},mxcomp-fuse-consumers,mxcomp-materialise)' \
// RUN:   | filecheck %s
// RUN: %python %S/inputs/gated_layer.py | mxcomp-opt - \
// RUN:   --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-defer-constants,mxcomp-encode{fuse-quantisers=off},mxcomp-fuse-consumers,mxcomp-materialise,canonicalize)' \
// RUN:   | filecheck %s --check-prefix=APART

// Gate and up of experts are one product, computed transposed in tiles that have as much of both, and what is made of
// them is quantised there, as the operand of down. Neither computes anything for blocks without an expert.

// ENCODE-LABEL: func.func @layer(
// ENCODE: mxcomp.scaled_matmul = {gathered = [1, 3]{{.*}}gated = true{{.*}}lane_rows = true{{.*}}plan = "grouped_experts", requantised_for = 1 : i64, skips = true
// ENCODE: mxcomp.scaled_matmul = {gathered = [1, 3], index = 1{{.*}}lane_rows = true{{.*}}plan = "grouped_experts", skips = true

// CHECK-LABEL: func.func @layer(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<4x64xf32>, %[[SLOTS:[a-z0-9]+]]: tensor<2x16xi32>, %[[IDS:[a-z0-9]+]]: tensor<2xi32>
// Weights of all experts, packed.
// CHECK: %[[WORDS:.+]] = flow.dispatch.region -> (tensor<2x1x1x2x8x4x4x4x4xi32>)
// CHECK: %[[W:.+]] = iree_tensor_ext.bitcast %[[WORDS]]
// Rows of tokens by their slots, quantised: elements and scales.
// CHECK: %[[TOKENS:.+]]:2 = flow.dispatch.region -> (tensor<2x4x16x32xf4E2M1FN>, tensor<2x4x16xf8E8M0FNU>)
// CHECK: tensor.extract %[[SLOTS]]
// CHECK: arith.scaling_truncf
// CHECK: flow.return
// CHECK: flow.dispatch.region -> (tensor<2x1x1x2x4x4x4x2xi32>)
// Hidden activations leave the dispatch of gate and up as the packed operand of down.
// CHECK: %[[HIDDEN:.+]]:2 = flow.dispatch.region -> (tensor<2x1x1x4x16x8x4xf4E2M1FN>, tensor<2x1x1x4x16xf8E8M0FNU>) {
// CHECK: %[[ALL:.+]] = iree_tensor_ext.bitcast %[[W]] : {{.*}} -> tensor<2x1x1x1x2x8x4x16x32xf4E2M1FN>
// CHECK: iree_linalg_ext.gather dimension_map = [0] ins(%[[ALL]], %[[IDS]] :
// CHECK: iree_codegen.inner_tiled
// CHECK-SAME: mxcomp.skips_negative
// CHECK: arith.cmpi sge
// CHECK: math.exp
// CHECK: arith.scaling_truncf
// CHECK: flow.return
// CHECK: iree_tensor_ext.bitcast %[[HIDDEN]]#0
// Down reads their scales as they are.
// CHECK: flow.dispatch.region -> (tensor<2x16x64xf32>) {
// CHECK-NOT: scaling_truncf
// CHECK: iree_codegen.inner_tiled ins(%{{.+}}, %{{.+}}, %{{.+}}, %[[HIDDEN]]#1)
// CHECK-SAME: mxcomp.skips_negative
// CHECK-NOT: scaling_truncf
// CHECK: return

// In a dispatch of their own, hidden activations are computed from pairs of gate and up, without slices.
// APART-LABEL: func.func @layer(
// APART-NOT: [1, 1, 2]
// APART: iree_tensor_ext.bitcast %{{.+}} : tensor<2x16x128xf32> -> tensor<2x16x64xi64>
// APART: %[[PAIR:.+]] = tensor.extract %{{.+}} : tensor<32x64xi64>
// APART: math.exp
