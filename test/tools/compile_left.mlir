// RUN: mxcomp-compile %s --data-tiling=off --compile-to=input -o %t.mlir --report=- 2> %t.err | filecheck %s --check-prefix=REPORT
// RUN: filecheck %s --check-prefix=WARNING < %t.err
// RUN: filecheck %s < %t.mlir

// A matmul that is left to IREE: the report says why, and the user is warned where it matters.

// WARNING: {{.+}}compile_left.mlir:[[# @LINE + 26]]:8: warning: 8-bit operands are dequantised to f32 first
// REPORT: "index": 0,
// REPORT-NEXT: "m": 64,
// REPORT-NEXT: "n": 128,
// REPORT-NEXT: "k": 256,
// REPORT: "operands": "plain",
// REPORT: "reason": "left to IREE: --data-tiling=off and mx_f4_f4_f32_row_major{{.+}} not f8E4M3FN {{.+}} f4E2M1FN",
// REPORT-NEXT: "warning": "8-bit operands
// CHECK-NOT: flow.executable
// CHECK-NOT: mxcomp.scaled_matmul
// CHECK: arith.scaling_extf %{{.+}}, %{{.+}} : f8E4M3FN, f8E8M0FNU to f32
// CHECK-NOT: flow.executable
// CHECK-NOT: mxcomp.scaled_matmul

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
util.func public @model(%a8: tensor<64x256xi8>, %as8: tensor<64x8xi8>, %b8: tensor<128x128xi8>, %bs8: tensor<128x8xi8>,
                        %x: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %a = iree_tensor_ext.bitcast %a8 : tensor<64x256xi8> -> tensor<64x8x32xf8E4M3FN>
  %as = iree_tensor_ext.bitcast %as8 : tensor<64x8xi8> -> tensor<64x8xf8E8M0FNU>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>
  %bs = iree_tensor_ext.bitcast %bs8 : tensor<128x8xi8> -> tensor<128x8xf8E8M0FNU>
  %zero = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf8E4M3FN>, tensor<128x8x32xf4E2M1FN>, tensor<64x8xf8E8M0FNU>,
                             tensor<128x8xf8E8M0FNU>)
      outs(%zero : tensor<64x128xf32>) {
  ^bb0(%i: f8E4M3FN, %j: f4E2M1FN, %is: f8E8M0FNU, %js: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %i, %is : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %j, %js : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  %y = math.exp %x : tensor<64x128xf32>
  %z = arith.mulf %r, %y : tensor<64x128xf32>
  util.return %z : tensor<64x128xf32>
}

// The same over one K loop: the report does not say more of it than it can.
// REPORT: "location": "{{.+}}:[[# @LINE + 14]]:8",
// REPORT-NEXT: "index": 1,
// REPORT-NEXT: "m": 64,
// REPORT: "reason": "left to IREE: --data-tiling=off
#flat_lhs = affine_map<(m, n, k) -> (m, k)>
#flat_rhs = affine_map<(m, n, k) -> (n, k)>
#flat_lhs_scale = affine_map<(m, n, k) -> (m, k floordiv 32)>
#flat_rhs_scale = affine_map<(m, n, k) -> (n, k floordiv 32)>
#flat_out = affine_map<(m, n, k) -> (m, n)>
util.func public @flat(%a8: tensor<64x256xi8>, %as: tensor<64x8xf8E8M0FNU>, %b8: tensor<128x128xi8>,
                       %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %a = iree_tensor_ext.bitcast %a8 : tensor<64x256xi8> -> tensor<64x256xf8E4M3FN>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x128xi8> -> tensor<128x256xf4E2M1FN>
  %zero = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#flat_lhs, #flat_rhs, #flat_lhs_scale, #flat_rhs_scale, #flat_out],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x256xf8E4M3FN>, tensor<128x256xf4E2M1FN>, tensor<64x8xf8E8M0FNU>,
                             tensor<128x8xf8E8M0FNU>)
      outs(%zero : tensor<64x128xf32>) {
  ^bb0(%i: f8E4M3FN, %j: f4E2M1FN, %is: f8E8M0FNU, %js: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %i, %is : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %j, %js : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}
