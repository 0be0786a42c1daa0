// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode)' | filecheck %s --check-prefix=ENCODED
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{versions=off})' \
// RUN:   | filecheck %s --check-prefix=OFF
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode,mxcomp-materialise)' \
// RUN:   | filecheck %s --check-prefix=CHOICE
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode,mxcomp-materialise,mxcomp-outline,mxcomp-skip-versions)' \
// RUN:   | filecheck %s
// RUN: not mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-encode{versions=some})' 2>&1 | filecheck %s --check-prefix=BAD
// BAD: mxcomp-opt: error: --versions=some: expected on or off

// ENCODED: max_m = 16
// ENCODED-SAME: max_m = 64
// ENCODED-SAME: max_m = 256
// ENCODED-SAME: max_m = 512
// ENCODED-SAME: max_m = 1024
// OFF-NOT: max_m = 16 : i64
// OFF: ukernel = "mx_
// OFF-NOT: versions

// Rows are padded to what the version that takes them wants, once for all of them.
// CHOICE: %[[FEW:.+]] = arith.cmpi ule, %[[M:.+]], %c16
// CHOICE: %[[ROWS:.+]] = arith.select %[[FEW]], %{{.+}}, %{{.+}} : index
// CHOICE: util.assume.int %[[ROWS]]
// CHOICE-COUNT-5: arith.select {{.*}} {mxcomp.versions} : tensor<?x8192xf32>
// CHOICE-NOT: mxcomp.versions

// Only one has workgroups, and all write to one result.
// CHECK: workgroups(%arg0: index, {{.*}}, %arg5: index) -> (index, index, index) {
// CHECK: %[[N:.+]] = arith.muli %x, %arg5 : index
// CHECK-NEXT: flow.return %[[N]], %y, %z
// CHECK: func.func @{{.*}}!iree_tensor_ext.dispatch.tensor<readwrite:tensor<?x8192xf32>>
// CHECK: util.func public @model(
// CHECK-NOT: mxcomp.versions
// CHECK: %[[R:.+]] = flow.dispatch @mxcomp_model_dispatch_{{[^:]+}}::{{[^(]+}}({{.*}}) : ({{.*}}) -> tensor<?x8192xf32>{%{{.+}}}
// CHECK: %[[R5:.+]] = flow.dispatch {{.*}}, %[[R]]) : ({{.*}}) -> %[[R]]{
// CHECK: %[[R4:.+]] = flow.dispatch {{.*}}, %[[R5]]) : ({{.*}}) -> %[[R5]]{
// CHECK: %[[R3:.+]] = flow.dispatch {{.*}}, %[[R4]]) : ({{.*}}) -> %[[R4]]{
// CHECK: %[[R2:.+]] = flow.dispatch {{.*}}, %[[R3]]) : ({{.*}}) -> %[[R3]]{
// CHECK: %[[R1:.+]] = flow.dispatch {{.*}}, %[[R2]]) : ({{.*}}) -> %[[R2]]{
// CHECK: util.return %[[R1]]

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

util.func @model(%a: tensor<?x256x32xf4E2M1FN>, %b: tensor<8192x256x32xf4E2M1FN>,
                 %as: tensor<?x256xf8E8M0FNU>, %bs: tensor<8192x256xf8E8M0FNU>) -> tensor<?x8192xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %m = tensor.dim %a, %c0 : tensor<?x256x32xf4E2M1FN>
  %empty = tensor.empty(%m) : tensor<?x8192xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x8192xf32>) -> tensor<?x8192xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<?x256x32xf4E2M1FN>, tensor<8192x256x32xf4E2M1FN>,
                             tensor<?x256xf8E8M0FNU>, tensor<8192x256xf8E8M0FNU>)
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
