// RUN: mxcomp-compile %s --split-input-file --compile-to=input --report=%t.json | filecheck %s
// RUN: filecheck %s --check-prefix=REPORT < %t.json

// Text only; and for one module, what is for one module.
// RUN: not mxcomp-compile %s --split-input-file -o %t.no 2>&1 | filecheck %s --check-prefix=BINARY
// RUN: not mxcomp-compile %s --split-input-file --compile-to=flow --emit-mlir-bytecode -o %t.no 2>&1 | filecheck %s --check-prefix=BINARY
// BINARY: {{^}}mxcomp-compile: error: --split-input-file: several binaries do not make one file: expected --output-format=vm-asm
// RUN: not mxcomp-compile %s --split-input-file --compile-to=flow --emit-plugin %t.no 2>&1 | filecheck %s --check-prefix=ONE
// ONE: {{^}}mxcomp-compile: error: --split-input-file: --emit-plugin and --packed-parameters are for one module: split the file

// What is wrong in any of them, where it is in the file; nothing is written.
// RUN: not mxcomp-compile %S/inputs/pieces.mlir --split-input-file --compile-to=input -o %t.no 2>&1 | filecheck %s --check-prefix=ERRORS
// ERRORS: {{^}}mxcomp-compile: error: {{.*}}pieces.mlir is not valid MLIR
// ERRORS-NEXT: error: {{.*}}pieces.mlir:1:{{[0-9]+}}: use of undeclared SSA value name
// ERRORS-NEXT: {{.*}}pieces.mlir is not valid MLIR
// ERRORS-NEXT: error: {{.*}}pieces.mlir:5:{{[0-9]+}}: use of undeclared SSA value name
// RUN: not ls %t.no

// CHECK: util.func public @first
// CHECK: {{^}}// -----{{$}}
// CHECK: util.func public @second
// CHECK-NOT: // -----

// REPORT: "location": "{{.+}}compile_split.mlir:[[# @LINE + 19]]:8",
// REPORT-NOT: "location":
util.func public @first(%a: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %y = math.exp %a : tensor<64x128xf32>
  util.return %y : tensor<64x128xf32>
}

// ----- and behind it

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
util.func public @second(%a8: tensor<64x128xi8>, %as: tensor<64x8xf8E8M0FNU>, %b8: tensor<128x128xi8>,
                         %bs: tensor<128x8xf8E8M0FNU>) -> tensor<64x128xf32> {
  %a = iree_tensor_ext.bitcast %a8 : tensor<64x128xi8> -> tensor<64x8x32xf4E2M1FN>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>
  %zero = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>, tensor<64x8xf8E8M0FNU>,
                             tensor<128x8xf8E8M0FNU>)
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
