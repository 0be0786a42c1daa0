// RUN: mxcomp-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(mxcomp-recognise)'

// K that is no multiple of 32 is a mistake of the model, not a case for somebody else.

#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>
#lhs_scale = affine_map<(m, n, k) -> (m, k floordiv 32)>
#rhs_scale = affine_map<(m, n, k) -> (n, k floordiv 32)>
#out = affine_map<(m, n, k) -> (m, n)>
util.func @fused(%a: tensor<64x48xf4E2M1FN>, %b: tensor<128x48xf4E2M1FN>, %as: tensor<64x2xf8E8M0FNU>,
                 %bs: tensor<128x2xf8E8M0FNU>) -> tensor<64x128xf32> {
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  // expected-error @+1 {{linalg.generic: K = 48 is not a multiple of the block size 32: pad K to a multiple of 32 with zero elements}}
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x48xf4E2M1FN>, tensor<128x48xf4E2M1FN>, tensor<64x2xf8E8M0FNU>,
                             tensor<128x2xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}

// -----

#id = affine_map<(r, k) -> (r, k)>
#divided = affine_map<(r, k) -> (r, k floordiv 32)>
#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (n, k)>
#out = affine_map<(m, n, k) -> (m, n)>
util.func @unfused(%a: tensor<64x100xf4E2M1FN>, %b: tensor<128x100xf4E2M1FN>, %as: tensor<64x4xf8E8M0FNU>,
                   %bs: tensor<128x4xf8E8M0FNU>) -> tensor<64x128xf32> {
  %ea = tensor.empty() : tensor<64x100xf32>
  %da = linalg.generic {indexing_maps = [#id, #divided, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %as : tensor<64x100xf4E2M1FN>, tensor<64x4xf8E8M0FNU>) outs(%ea : tensor<64x100xf32>) {
  ^bb0(%x: f4E2M1FN, %s: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %x, %s : f4E2M1FN, f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> tensor<64x100xf32>
  %eb = tensor.empty() : tensor<128x100xf32>
  %db = linalg.generic {indexing_maps = [#id, #divided, #id], iterator_types = ["parallel", "parallel"]}
      ins(%b, %bs : tensor<128x100xf4E2M1FN>, tensor<128x4xf8E8M0FNU>) outs(%eb : tensor<128x100xf32>) {
  ^bb0(%x: f4E2M1FN, %s: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %x, %s : f4E2M1FN, f8E8M0FNU to f32
    linalg.yield %0 : f32
  } -> tensor<128x100xf32>
  %init = arith.constant dense<0.0> : tensor<64x128xf32>
  // expected-error @+1 {{linalg.matmul: K = 100 is not a multiple of the block size 32}}
  %r = linalg.matmul indexing_maps = [#lhs, #rhs, #out]
      ins(%da, %db : tensor<64x100xf32>, tensor<128x100xf32>) outs(%init : tensor<64x128xf32>) -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}
