// RUN: %python %S/inputs/gated_layer.py 2 | mxcomp-opt - \
// RUN:   --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-defer-constants,mxcomp-encode)' \
// RUN:   | filecheck %s --check-prefix=ENCODE
// RUN: %python %S/inputs/gated_layer.py 2 | mxcomp-opt - \
// RUN:   --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-defer-constants,mxcomp-encode,mxcomp-fuse-consumers,mxcomp-materialise)' \
// RUN:   | filecheck %s

// Of blocks of two rows gate and up are an ordinary product in f32, and nothing is quantised between it and down, whose
// ukernel takes words of both, and what computes and quantises hidden activations as text.

// ENCODE-LABEL: func.func @layer(
// ENCODE: mxcomp.scaled_matmul = {gathered = [1, 3], index = 0
// ENCODE-SAME: plan = "data_tiled"
// ENCODE: mxcomp.scaled_matmul = {fused = "mx_fused_swiglu_f4E2M1FN_f4E2M1FN_f32_m16_
// ENCODE-SAME: gathered = [1, 3], index = 1
// ENCODE-SAME: plan = "fused_swiglu"
// ENCODE-SAME: skips = true

// CHECK-LABEL: func.func @layer(
// CHECK: %[[BOTH:.+]] = flow.dispatch.region -> (tensor<2x2x128xf32>) {
// CHECK: iree_codegen.inner_tiled
// CHECK-SAME: mxcomp.skips_negative
// CHECK: flow.return
// CHECK-NOT: scaling_truncf
// CHECK: %[[WORDS:.+]] = iree_tensor_ext.bitcast %[[BOTH]] : tensor<2x2x128xf32> -> tensor<2x4x64xi32>
// CHECK: flow.dispatch.region -> (tensor<2x2x64xf32>) {
// CHECK: iree_linalg_ext.gather
// CHECK: linalg.generic {{.*}} ins(%[[WORDS]], %{{.+}}, %{{.+}} : tensor<2x4x64xi32>
// CHECK-SAME: #iree_codegen.ukernel_descriptor<"mx_fused_swiglu_f4E2M1FN_f4E2M1FN_f32_m16_{{.*}}_batched", tensor>
// CHECK-SAME: func.func @activate(%arg0: vector<16xi32>) -> vector<8xi32>
// CHECK-SAME: func.func @quantise(%arg0: vector<32xi32>) -> (vector<16xi8>, i8)
// CHECK-SAME: mxcomp.skips_negative
// CHECK-NOT: scaling_truncf
// CHECK: return
