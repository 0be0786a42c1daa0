// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode)' | filecheck %s --check-prefix=ENCODED
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode,mxcomp-materialise,mxcomp-outline,mxcomp-skip-versions)' \
// RUN:   | filecheck %s

// The version for few rows quantises them itself; what does so for the others has no workgroups then.

// ENCODED-LABEL: util.func public @quantised(
// ENCODED: plan = "few_rows"
// ENCODED-SAME: versions = [{fused = "mx_fused_quant16_f4E2M1FN_f4E2M1FN_f32_m16_n
// ENCODED-SAME: max_m = 16 : i64, plan = "fused_quant", ukernel = "mx_f4E2M1FN_f4E2M1FN_f32_m16_n
// ENCODED-NOT: fused =

// CHECK-LABEL: util.func public @quantised(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x4096xbf16>
// CHECK: %[[M:.+]] = util.assume.int %{{.+}}<umin = 1, umax =
// CHECK: util.assume.int
// CHECK: %[[C16:.+]] = arith.constant 16 : index
// CHECK-NEXT: %[[FEW:.+]] = arith.cmpi ule, %[[M]], %[[C16]]
// CHECK: arith.select %[[FEW]], %[[C1:[a-z_0-9]+]], %[[C0:[a-z_0-9]+]] : index
// CHECK-NEXT: %[[REST:.+]] = arith.select %[[FEW]], %[[C0]], %[[C1]] : index
// CHECK: %[[TO_64:.+]] = arith.select %{{.+}}, %[[REST]], %[[C0]] : index
// CHECK: %[[TO_256:.+]] = arith.select %{{.+}}, %{{.+}}, %[[C0]] : index
// CHECK: %[[TO_512:.+]] = arith.select %{{.+}}, %{{.+}}, %[[C0]] : index
// CHECK: %[[TO_1024:.+]] = arith.select %{{.+}}, %{{.+}}, %[[C0]] : index
// CHECK: %[[BEYOND:.+]] = arith.select %{{.+}}, %[[C0]], %{{.+}} : index
// CHECK: %[[TO_FEW:.+]] = arith.maxui %[[TO_64]], %[[TO_256]]
// CHECK: %[[ANY:.+]] = arith.maxui %[[TO_FEW]], %[[TO_512]]
// CHECK: %[[MORE:.+]] = arith.maxui %[[ANY]], %[[TO_1024]]
// CHECK: %[[RUNS:.+]] = arith.maxui %[[MORE]], %[[BEYOND]]
// CHECK: flow.dispatch @mxcomp_quantised_dispatch_0::@{{[^[]+}}[{{.*}}, %[[RUNS]]](
// CHECK: %[[ROWS:.+]] = util.assume.int %{{.+}}<umin = 128, umax = 2048>
// CHECK: %[[WORDS:.+]] = iree_tensor_ext.bitcast %[[X]] : tensor<?x4096xbf16>{%{{.+}}} -> tensor<?x16xi32>{%[[ROWS]]}
// CHECK: flow.dispatch {{.*}}, %[[WORDS]],

#mkb = affine_map<(m, k, b) -> (m, k, b)>
#mk = affine_map<(m, k, b) -> (m, k)>
#block = affine_map<(m, k) -> (m, k)>
#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

util.func @quantised(%activations: tensor<?x4096xbf16>, %b: tensor<8192x128x32xf4E2M1FN>,
                     %bs: tensor<8192x128xf8E8M0FNU>) -> tensor<?x8192xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %activations, %c0 : tensor<?x4096xbf16>
  %x = tensor.expand_shape %activations [[0], [1, 2]] output_shape [%m, 128, 32]
      : tensor<?x4096xbf16> into tensor<?x128x32xbf16>
  %amax_empty = tensor.empty(%m) : tensor<?x128xf32>
  %amax_init = linalg.fill ins(%zero : f32) outs(%amax_empty : tensor<?x128xf32>) -> tensor<?x128xf32>
  %amax = linalg.generic {indexing_maps = [#mkb, #mk], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<?x128x32xbf16>) outs(%amax_init : tensor<?x128xf32>) {
  ^bb0(%in: bf16, %most: f32):
    %wide = arith.extf %in : bf16 to f32
    %size = math.absf %wide : f32
    %larger = arith.maximumf %size, %most : f32
    linalg.yield %larger : f32
  } -> tensor<?x128xf32>
  %as_empty = tensor.empty(%m) : tensor<?x128xf8E8M0FNU>
  %as = linalg.generic {indexing_maps = [#block, #block], iterator_types = ["parallel", "parallel"]}
      ins(%amax : tensor<?x128xf32>) outs(%as_empty : tensor<?x128xf8E8M0FNU>) {
  ^bb0(%most: f32, %o: f8E8M0FNU):
    %quarter = arith.constant 0.25 : f32
    %share = arith.mulf %most, %quarter : f32
    %scale = arith.truncf %share : f32 to f8E8M0FNU
    linalg.yield %scale : f8E8M0FNU
  } -> tensor<?x128xf8E8M0FNU>
  %a_empty = tensor.empty(%m) : tensor<?x128x32xf4E2M1FN>
  %a = linalg.generic {indexing_maps = [#mkb, #mk, #mkb], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %as : tensor<?x128x32xbf16>, tensor<?x128xf8E8M0FNU>) outs(%a_empty : tensor<?x128x32xf4E2M1FN>) {
  ^bb0(%in: bf16, %scale: f8E8M0FNU, %o: f4E2M1FN):
    %wide = arith.extf %in : bf16 to f32
    %element = arith.scaling_truncf %wide, %scale : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %element : f4E2M1FN
  } -> tensor<?x128x32xf4E2M1FN>
  %empty = tensor.empty(%m) : tensor<?x8192xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x8192xf32>) -> tensor<?x8192xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<?x128x32xf4E2M1FN>, tensor<8192x128x32xf4E2M1FN>,
                             tensor<?x128xf8E8M0FNU>, tensor<8192x128xf8E8M0FNU>)
      outs(%init : tensor<?x8192xf32>) {
  ^bb0(%ai: f4E2M1FN, %bi: f4E2M1FN, %asi: f8E8M0FNU, %bsi: f8E8M0FNU, %o: f32):
    %ax = arith.scaling_extf %ai, %asi : f4E2M1FN, f8E8M0FNU to f32
    %bx = arith.scaling_extf %bi, %bsi : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %ax, %bx : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<?x8192xf32>
  util.return %r : tensor<?x8192xf32>
}
