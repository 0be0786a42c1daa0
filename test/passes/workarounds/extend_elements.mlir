// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-extend-elements)' | filecheck %s

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// Elements as f32, and of a scale of f16 the exponent, as everywhere.
// CHECK-LABEL: util.func public @exponents(
// CHECK: linalg.generic {{.+}} ins(%{{.+}}, %{{.+}}, %{{.+}}, %{{.+}} : tensor<64x8x32xf32>, tensor<128x8x32xf32>, tensor<64x8xf16>, tensor<128x8xf32>)
// CHECK-NEXT: ^bb0(%{{.+}}: f32, %{{.+}}: f32, %[[S:.+]]: f16, %[[T:.+]]: f32, %{{.+}}: f32):
// CHECK-NEXT: %[[WIDE:.+]] = arith.extf %[[S]] : f16 to f32
// CHECK-NEXT: %[[BITS:.+]] = arith.bitcast %[[WIDE]] : f32 to i32
// CHECK: arith.shrui %[[BITS]], %{{.+}}
// CHECK-NOT: scaling_extf
util.func public @exponents(%a: tensor<64x8x32xf8E5M2>, %b: tensor<128x8x32xf4E2M1FN>, %as: tensor<64x8xf16>,
    %bs: tensor<128x8xf8E8M0FNU>, %zero: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf8E5M2>, tensor<128x8x32xf4E2M1FN>, tensor<64x8xf16>, tensor<128x8xf8E8M0FNU>)
      outs(%zero : tensor<64x128xf32>) attrs = {mxcomp.scaled_matmul = {reason = "why"}} {
  ^bb0(%x: f8E5M2, %y: f4E2M1FN, %xs: f16, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E5M2, f16 to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// A number that is an operand stays one.
// CHECK-LABEL: util.func public @number(
// CHECK: linalg.generic {{.+}} ins(%{{.+}}, %{{.+}}, %{{.+}}, %{{.+}}, %arg4 : tensor<64x8x32xf32>, tensor<128x8x32xf32>, tensor<64x8xf32>, tensor<128x8xf32>, f32)
util.func public @number(%a: tensor<64x8x32xf8E5M2>, %b: tensor<128x8x32xf8E5M2>, %as: tensor<64x8xf8E8M0FNU>,
    %bs: tensor<128x8xf8E8M0FNU>, %factor: f32, %zero: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, affine_map<(m, n, ko, kb) -> ()>, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs, %factor : tensor<64x8x32xf8E5M2>, tensor<128x8x32xf8E5M2>, tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>, f32)
      outs(%zero : tensor<64x128xf32>) attrs = {mxcomp.scaled_matmul = {reason = "why"}} {
  ^bb0(%x: f8E5M2, %y: f8E5M2, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %f: f32, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f8E5M2, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f8E5M2, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.mulf %2, %f : f32
    %4 = arith.addf %acc, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}
