// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-import-torch)' | filecheck %s

// CHECK-DAG: #[[WHOLE:.+]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-DAG: #[[BLOCK:.+]] = affine_map<(d0, d1, d2) -> (d0, d1)>

// Mode even for E2M1: half a unit in the last place of one mantissa bit is 2**21; the largest exponent is 2.
// CHECK-LABEL: func.func @static(
// CHECK-SAME: %[[X:[a-z0-9_]+]]: !torch.vtensor<[64,256],f32>, %[[W:[a-z0-9_]+]]: !torch.vtensor<[128,128],ui8>, %[[S:[a-z0-9_]+]]: !torch.vtensor<[128,8],ui8>)
// CHECK-NOT: torch.operator
// CHECK: %[[XB:.+]] = torch_c.to_builtin_tensor %[[X]] : !torch.vtensor<[64,256],f32> -> tensor<64x256xf32>
// CHECK: %[[WB:.+]] = torch_c.to_builtin_tensor %[[W]] : !torch.vtensor<[128,128],ui8> -> tensor<128x128xi8>
// CHECK: %[[SB:.+]] = torch_c.to_builtin_tensor %[[S]] : !torch.vtensor<[128,8],ui8> -> tensor<128x8xi8>
// CHECK: %[[BLOCKS:.+]] = tensor.expand_shape %[[XB]] {{\[\[}}0], [1, 2]] output_shape [64, 8, 32]
// CHECK: %[[AMAX:.+]] = linalg.generic {indexing_maps = [#[[WHOLE]], #[[BLOCK]]], iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[BLOCKS]] :
// CHECK: math.absf
// CHECK: arith.bitcast %{{.+}} : f32 to i32
// CHECK: arith.maxui
// CHECK: %[[A:.+]] = linalg.generic {indexing_maps = [#[[WHOLE]], #[[BLOCK]], #[[WHOLE]]], {{.*}} ins(%[[BLOCKS]], %[[AMAX]] :
// CHECK: arith.constant 2097152 : i32
// CHECK-NEXT: arith.addi
// CHECK: arith.constant 23 : i32
// CHECK: arith.constant 2 : i32
// CHECK-NOT: arith.minimumf
// CHECK: arith.scaling_truncf %{{.+}}, %{{.+}} : f32, f8E8M0FNU to f4E2M1FN
// CHECK: %[[AS:.+]] = linalg.generic {{.*}} ins(%[[AMAX]] : tensor<64x8xi32>)
// CHECK: arith.constant 255 : i32
// CHECK: arith.bitcast %{{.+}} : i8 to f8E8M0FNU
// CHECK: %[[B:.+]] = iree_tensor_ext.bitcast %[[WB]] : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>
// CHECK: %[[BS:.+]] = iree_tensor_ext.bitcast %[[SB]] : tensor<128x8xi8> -> tensor<128x8xf8E8M0FNU>
// CHECK: %[[R:.+]] = linalg.generic {{.*}} ins(%[[A]], %[[B]], %[[AS]], %[[BS]] :
// CHECK: torch_c.from_builtin_tensor %[[R]] : tensor<64x128xf32> -> !torch.vtensor<[64,128],f32>

func.func @static(%x: !torch.vtensor<[64,256],f32>, %w: !torch.vtensor<[128,128],ui8>, %s: !torch.vtensor<[128,8],ui8>)
    -> !torch.vtensor<[64,128],f32> {
  %fmt = torch.constant.str "E2M1"
  %mode = torch.constant.str "even"
  %y = torch.operator "torch.mxcomp.scaled_linear"(%x, %w, %s, %fmt, %fmt, %mode)
      : (!torch.vtensor<[64,256],f32>, !torch.vtensor<[128,128],ui8>, !torch.vtensor<[128,8],ui8>, !torch.str, !torch.str, !torch.str)
      -> !torch.vtensor<[64,128],f32>
  return %y : !torch.vtensor<[64,128],f32>
}

// A dynamic M, bf16 in and out, and 6-bit weights: 24 bytes a block.
// CHECK-LABEL: func.func @dynamic(
// CHECK: %[[M:.+]] = tensor.dim %{{.+}}, %{{.+}} : tensor<?x256xbf16>
// CHECK: tensor.expand_shape {{.*}} output_shape [%[[M]], 8, 32] : tensor<?x256xbf16> into tensor<?x8x32xbf16>
// CHECK: arith.extf %{{.+}} : bf16 to f32
// CHECK: iree_tensor_ext.bitcast %{{.+}} : tensor<128x192xi8> -> tensor<128x8x32xf6E2M3FN>
// CHECK: linalg.generic {{.*}} outs(%{{.+}} : tensor<?x128xf32>)
// CHECK: arith.truncf %{{.+}} : f32 to bf16
// CHECK: torch_c.from_builtin_tensor %{{.+}} : tensor<?x128xbf16> -> !torch.vtensor<[?,128],bf16>
func.func @dynamic(%x: !torch.vtensor<[?,256],bf16>, %w: !torch.vtensor<[128,192],ui8>, %s: !torch.vtensor<[128,8],ui8>)
    -> !torch.vtensor<[?,128],bf16> {
  %weight = torch.constant.str "E2M3"
  %input = torch.constant.str "E2M1"
  %mode = torch.constant.str "floor"
  %y = torch.operator "torch.mxcomp.scaled_linear"(%x, %w, %s, %weight, %input, %mode)
      : (!torch.vtensor<[?,256],bf16>, !torch.vtensor<[128,192],ui8>, !torch.vtensor<[128,8],ui8>, !torch.str, !torch.str, !torch.str)
      -> !torch.vtensor<[?,128],bf16>
  return %y : !torch.vtensor<[?,128],bf16>
}

// Conversions to fp8 do not saturate: clamped to the scale times 448 = 1.75 * 2**8.
// CHECK-LABEL: func.func @clamped(
// CHECK: arith.constant 8 : i32
// CHECK: arith.constant 6291456 : i32
// CHECK: arith.minimumf
// CHECK: arith.maximumf
// CHECK: arith.scaling_truncf %{{.+}}, %{{.+}} : f32, f8E8M0FNU to f8E4M3FN
func.func @clamped(%x: !torch.vtensor<[64,256],f32>, %w: !torch.vtensor<[128,128],ui8>, %s: !torch.vtensor<[128,8],ui8>)
    -> !torch.vtensor<[64,128],f32> {
  %weight = torch.constant.str "E2M1"
  %input = torch.constant.str "E4M3"
  %mode = torch.constant.str "floor"
  %y = torch.operator "torch.mxcomp.scaled_linear"(%x, %w, %s, %weight, %input, %mode)
      : (!torch.vtensor<[64,256],f32>, !torch.vtensor<[128,128],ui8>, !torch.vtensor<[128,8],ui8>, !torch.str, !torch.str, !torch.str)
      -> !torch.vtensor<[64,128],f32>
  return %y : !torch.vtensor<[64,128],f32>
}

// Someone else's operator is left alone.
// CHECK-LABEL: func.func private @other(
// CHECK: torch.operator "torch.other.scaled_linear"
func.func private @other(%x: !torch.vtensor<[64,256],f32>) -> !torch.vtensor<[64,256],f32> {
  %y = torch.operator "torch.other.scaled_linear"(%x) : (!torch.vtensor<[64,256],f32>) -> !torch.vtensor<[64,256],f32>
  return %y : !torch.vtensor<[64,256],f32>
}
