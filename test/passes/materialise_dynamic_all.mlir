// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-encode,mxcomp-materialise)' | filecheck %s

// Dynamic N and K are guarded as M is: sizes that agree, and limits by which operands fit into 2 GiB. With a dynamic M or
// N, K is at most 65536. The result is checked as a whole.

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

// CHECK-LABEL: util.func public @all(
// CHECK: cf.assert %{{.+}}, "mxcomp: M must be between 1 and 65408"
// CHECK: cf.assert %{{.+}}, "mxcomp: LHS and LHS scales must have the same M"
// CHECK: %[[M:.+]] = util.assume.int %{{.+}}<umin = 1, umax = 65408> : index
// CHECK: cf.assert %{{.+}}, "mxcomp: N must be between 1 and 65280"
// CHECK: cf.assert %{{.+}}, "mxcomp: RHS and RHS scales must have the same N"
// CHECK: %[[N:.+]] = util.assume.int %{{.+}}<umin = 1, umax = 65280> : index
// CHECK: cf.assert %{{.+}}, "mxcomp: K must be between 32 and 65536"
// CHECK: cf.assert %{{.+}}, "mxcomp: LHS and RHS must have the same K"
// CHECK: cf.assert %{{.+}}, "mxcomp: LHS and LHS scales must have the same K"
// CHECK: cf.assert %{{.+}}, "mxcomp: LHS and RHS scales must have the same K"
// CHECK: %[[K:.+]] = util.assume.int %{{.+}}<umin = 1, umax = 2048> : index
// CHECK: cf.assert %{{.+}}, "mxcomp: the result must be at most 2147483647 bytes"
// CHECK: iree_tensor_ext.bitcast %{{.+}} : tensor<?x?x32xf4E2M1FN>{{.*}} -> tensor<?x?x4xi32>{%[[M]], %[[K]]}
// CHECK: flow.dispatch.region -> (tensor<?x?x8x2x4x16x4xi32>{
// CHECK: flow.dispatch.region -> (tensor<?x?xf32>{%[[M]], %[[N]]}) {
// CHECK: iree_codegen.inner_tiled
util.func @all(%a: tensor<?x?x32xf4E2M1FN>, %b: tensor<?x?x32xf4E2M1FN>, %as: tensor<?x?xf8E8M0FNU>,
    %bs: tensor<?x?xf8E8M0FNU>, %m: index, %n: index) -> tensor<?x?xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"],
                       mxcomp.scaled_matmul = {}}
      ins(%a, %b, %as, %bs : tensor<?x?x32xf4E2M1FN>, tensor<?x?x32xf4E2M1FN>,
                             tensor<?x?xf8E8M0FNU>, tensor<?x?xf8E8M0FNU>)
      outs(%init : tensor<?x?xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?x?xf32>
  util.return %r : tensor<?x?xf32>
}
