// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{data-tiling=off ukernels=none},mxcomp-fall-back,mxcomp-unpack-elements)' | filecheck %s

// What IREE cannot read is decoded from its bytes: operands in another order, and 6-bit elements anywhere.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK-LABEL: util.func public @turned(
// CHECK-NOT: mxcomp.gather
// CHECK: %[[D:.+]] = linalg.generic {{.*}} outs(%{{.+}} : tensor<128x256xf32>)
// CHECK: tensor.extract {{.*}} : tensor<16384xi8>
// CHECK: linalg.generic {{.*}} ins(%{{.+}}, %[[D]] : tensor<32x256xf32>, tensor<128x256xf32>)
// CHECK-NOT: mxcomp.gather
// CHECK: util.return
util.func @turned(%a: tensor<32x8x32xf4E2M1FN>, %b: tensor<8x32x128xf4E2M1FN>, %as: tensor<32x8xf8E8M0FNU>,
    %bs: tensor<8x128xf8E8M0FNU>) -> tensor<32x128xf32> {
  %init = arith.constant dense<0.0> : tensor<32x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, affine_map<(m, n, ko, kb) -> (ko, kb, n)>, #lhs_scale,
                                        affine_map<(m, n, ko, kb) -> (ko, n)>, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<32x8x32xf4E2M1FN>, tensor<8x32x128xf4E2M1FN>,
                             tensor<32x8xf8E8M0FNU>, tensor<8x128xf8E8M0FNU>)
      outs(%init : tensor<32x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<32x128xf32>
  util.return %r : tensor<32x128xf32>
}
