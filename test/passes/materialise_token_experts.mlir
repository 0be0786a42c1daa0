// RUN: %python %S/inputs/gated_layer.py 1 | mxcomp-opt - \
// RUN:   --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-defer-constants,mxcomp-encode,mxcomp-fuse-consumers,mxcomp-materialise)' \
// RUN:   | filecheck %s
// RUN: %python %S/inputs/gated_layer.py 1 shared | mxcomp-opt - \
// RUN:   --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-defer-constants,mxcomp-encode,mxcomp-fuse-consumers,mxcomp-materialise)' \
// RUN:   | filecheck %s --check-prefix=SHARED

// Both products of a single token's experts are two dispatches: hidden activations are all that is between them, and the
// sum over experts, its rounding and the residual are computed behind down.

// CHECK-LABEL: func.func @token(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<1x64xbf16>
// CHECK-SAME: tensor<2x1xi32>, %[[IDS:[a-z0-9]+]]: tensor<2xi32>
// CHECK: %{{[0-9]+}} = iree_tensor_ext.bitcast %[[X]] : tensor<1x64xbf16> -> tensor<2x16xi32>
// CHECK: %[[HIDDEN:[0-9]+]] = flow.dispatch.region -> (tensor<2x4x4x4xf32>) {
// CHECK: ins({{%[0-9]+}}, {{%[0-9]+}}, {{%[0-9]+}}, %[[IDS]]
// CHECK-SAME: iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_token_gate_up_{{[0-9a-f]+}}", tensor>
// CHECK: flow.return
// CHECK: iree_tensor_ext.bitcast %[[HIDDEN]] : tensor<2x4x4x4xf32> -> tensor<128xi32>
// CHECK: %{{[0-9]+}} = flow.dispatch.region -> (tensor<4x16xbf16>) {
// CHECK: iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_token_down_{{[0-9a-f]+}}", tensor>
// CHECK: flow.return
// CHECK-NOT: linalg.generic
// CHECK: return

// What follows in the encoding of another product's result is that one's: the sum over experts, rounded, is the last of down's.

// SHARED-LABEL: func.func @shared(
// SHARED: "mx_token_gate_up_
// SHARED: "mx_token_down_
// SHARED: return
