// What is left to IREE is said on stderr, unless a user asked for it or wants to hear nothing.

// RUN: mxcomp-compile %s --compile-to=flow -o %t.mlir 2>&1 | filecheck %s --check-prefix=LEFT
// LEFT: {{^.+}}compile_remarks.mlir:[[# @LINE + 39]]:8: remark: scaled matmul left to IREE: block size 16: expected a multiple of 32
// LEFT-NEXT: {{^}}mxcomp-compile: 1 scaled matmul: 1 left to IREE; 1 dispatch{{$}}
// LEFT-NOT: {{.}}
// RUN: mxcomp-compile %s --compile-to=flow -o %t.mlir -w 2>&1 | filecheck %s --check-prefix=QUIET --allow-empty
// RUN: mxcomp-compile %s --compile-to=flow -o %t.mlir --no-warnings 2>&1 | filecheck %s --check-prefix=QUIET --allow-empty
// QUIET-NOT: {{.}}

// One line says what became of the matmuls, and nothing else where all is as asked for.
// RUN: mxcomp-compile %S/compile.mlir --compile-to=flow -o %t.mlir --data-tiling=off --ukernels=none 2>&1 \
// RUN:   | filecheck %s --check-prefixes=PLAIN
// PLAIN: {{^}}mxcomp-compile: 1 scaled matmul: 1 left to IREE; 1 dispatch{{$}}
// RUN: mxcomp-compile %S/compile.mlir --compile-to=flow -o %t.mlir --data-tiling=off 2>&1 | filecheck %s --check-prefix=ONE-LINE
// ONE-LINE: {{^}}mxcomp-compile: 1 scaled matmul: {{.*}}
// ONE-LINE-NOT: {{.}}

// A ukernel by name that fits nothing; -w also for these.
// RUN: mxcomp-compile %S/compile.mlir --ukernels=mx_f4_f4_f32_m128_n256_k256 --compile-to=flow -o %t.mlir 2>&1 \
// RUN:   | filecheck %s --check-prefix=UNUSED
// UNUSED: {{^}}warning: --ukernels=mx_f4_f4_f32_m128_n256_k256 is used for no scaled matmul of the module: mx_f4_f4_f32_m128_n256_k256: M = 64 is below 65{{$}}
// RUN: mxcomp-compile %S/compile_plain.mlir --ukernels=mx_f4_f4_f32_m128_n256_k256 --compile-to=flow -o %t.mlir 2>&1 \
// RUN:   | filecheck %s --check-prefix=NOTHING
// NOTHING: {{^}}warning: --ukernels=mx_f4_f4_f32_m128_n256_k256 is used for no scaled matmul of the module: there is none
// RUN: mxcomp-compile %S/compile_plain.mlir --ukernels=mx_f4_f4_f32_m128_n256_k256 --compile-to=flow -o %t.mlir -w 2>&1 \
// RUN:   | filecheck %s --check-prefix=QUIET --allow-empty
// RUN: mxcomp-compile %S/compile.mlir --ukernels=mx_f4_f4_f32_m64_n128_k512 --compile-to=flow -o %t.mlir 2>&1 \
// RUN:   | filecheck %s --check-prefix=USED
// USED: {{^}}mxcomp-compile: 1 scaled matmul: 1 by ukernels (mx_f4_f4_f32_m64_n128_k512); 5 dispatches{{$}}
// USED-NOT: {{.}}

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
util.func public @model(%a8: tensor<64x128xi8>, %as: tensor<64x16xf8E8M0FNU>, %b8: tensor<128x128xi8>,
                        %bs: tensor<128x16xf8E8M0FNU>) -> tensor<64x128xf32> {
  %a = iree_tensor_ext.bitcast %a8 : tensor<64x128xi8> -> tensor<64x16x16xf4E2M1FN>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x128xi8> -> tensor<128x16x16xf4E2M1FN>
  %zero = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x16x16xf4E2M1FN>, tensor<128x16x16xf4E2M1FN>, tensor<64x16xf8E8M0FNU>,
                             tensor<128x16xf8E8M0FNU>)
      outs(%zero : tensor<64x128xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %is: f8E8M0FNU, %js: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %i, %is : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %j, %js : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}
