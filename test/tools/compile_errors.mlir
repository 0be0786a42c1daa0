// Every mistake gives one clear message and leaves nothing behind: %t is empty in the end.

// RUN: mkdir %t
// RUN: not mxcomp-compile %S/no_such_file.mlir -o %t/out.vmfb 2>&1 | filecheck %s --check-prefix=MISSING
// MISSING: {{^}}mxcomp-compile: error: cannot read {{.*}}no_such_file.mlir: No such file or directory

// RUN: not mxcomp-compile %S/inputs -o %t/out.vmfb 2>&1 | filecheck %s --check-prefix=DIRECTORY
// DIRECTORY: {{^}}mxcomp-compile: error: cannot read {{.*}}inputs: Is a directory

// RUN: not mxcomp-compile %S/inputs/invalid.mlir -o %t/out.vmfb 2>&1 | filecheck %s --check-prefix=INVALID
// INVALID: {{^}}mxcomp-compile: error: {{.*}}invalid.mlir is not valid MLIR
// INVALID-NEXT: error: {{.*}}invalid.mlir:2:23: use of undeclared SSA value name

// RUN: not mxcomp-compile %S/compile.mlir --target=gfx942 -o %t/out.vmfb 2>&1 | filecheck %s --check-prefix=TARGET
// TARGET: {{^}}mxcomp-compile: error: unknown target 'gfx942': expected one of gfx950

// RUN: not mxcomp-compile %S/compile.mlir --ukernels=no_such -o %t/out.vmfb 2>&1 | filecheck %s --check-prefix=UKERNEL
// UKERNEL: {{^}}mxcomp-compile: error: unknown ukernel 'no_such': known are mx_f4_f4_f32_{{.+}}, mx_<lhs>_<rhs>_f32_m128_n256_k128, {{.+}}, where <lhs> and <rhs> are each one of f4E2M1FN, {{.+}}: for example mx_f4E2M1FN_f6E2M3FN_f32_m128_n256_k128{{$}}
// RUN: mxcomp-compile %S/compile.mlir --ukernels=mx_f4E2M1FN_f6E2M3FN_f32_m128_n256_k128 --compile-to=input -o /dev/null

// RUN: not mxcomp-compile %S/compile.mlir --ukernels= -o %t/out.vmfb 2>&1 | filecheck %s --check-prefix=NO-UKERNEL
// NO-UKERNEL: {{^}}mxcomp-compile: error: --ukernels is empty: expected fastest, benefit, none or a ukernel's name

// RUN: not mxcomp-compile %S/compile.mlir --ukernel-dir=%S/../registry/inputs/unparsable -o %t/out.vmfb 2>&1 \
// RUN:   | filecheck %s --check-prefix=UNPARSABLE
// UNPARSABLE: {{^}}mxcomp-compile: error: {{.*}}test_unparsable.mlir:2: the ukernel file does not parse: expected non-function type

// RUN: not mxcomp-compile %S/compile.mlir --data-tiling=maybe -o %t/out.vmfb 2>&1 | filecheck %s --check-prefix=TILING
// TILING: {{^}}mxcomp-compile: error: --data-tiling=maybe: expected on or off

// RUN: not mxcomp-compile %S/compile.mlir --compile-to=nowhere -o %t/out.vmfb 2>&1 | filecheck %s --check-prefix=PHASE
// PHASE: {{^}}mxcomp-compile: error: unknown compilation phase 'nowhere': expected one of start, input,

// RUN: not mxcomp-compile %S/inputs/k_48.mlir -o %t/out.vmfb --report=%t/report.json 2>&1 | filecheck %s --check-prefix=K
// K: {{^}}mxcomp-compile: error: {{.*}}k_48.mlir{{.*}}: K = 48 is not a multiple of the block size 32: pad K to a multiple of 32

// RUN: not mxcomp-compile %S/inputs/unsupported_argument.mlir -o %t/out.vmfb 2>&1 | filecheck %s --check-prefix=IREE
// IREE: {{^}}mxcomp-compile: error: IREE could not compile the module
// IREE-NEXT: error: {{.*}}unsupported_argument.mlir:2:1: 'hal.element_type' op unsupported element type

// A result that cannot be written takes the other one with it.
// RUN: not mxcomp-compile %S/compile.mlir --compile-to=input -o %t/out.mlir --report=%t/no/such/report.json 2>&1 \
// RUN:   | filecheck %s --check-prefix=UNWRITABLE
// UNWRITABLE: {{^}}mxcomp-compile: error: cannot write {{.*}}/no/such/report.json: No such file or directory

// RUN: not mxcomp-compile %S/compile.mlir --compile-to=input -o %t 2>&1 | filecheck %s --check-prefix=ONTO-DIRECTORY
// ONTO-DIRECTORY: {{^}}mxcomp-compile: error: cannot write {{.*}}: Is a directory

// RUN: not mxcomp-compile %S/compile.mlir --compile-to=input --report=- 2>&1 | filecheck %s --check-prefix=BOTH
// RUN: not mxcomp-compile %S/compile.mlir --compile-to=input -o %t/both --report=%t/both 2>&1 | filecheck %s --check-prefix=BOTH
// BOTH-NOT: util.func
// BOTH: {{^}}mxcomp-compile: error: -o and --report are both {{.+}}: give one of them a file of its own

// RUN: rmdir %t

// What had become of the matmuls is in the report all the same, and a report that cannot be written is not the error.
// RUN: not mxcomp-compile %S/inputs/fails_later.mlir --report=%t.json -o %t.no 2>&1 | filecheck %s --check-prefix=LATER
// RUN: not mxcomp-compile %S/inputs/fails_later.mlir --report=%t.no/report.json -o %t.no 2>&1 | filecheck %s --check-prefix=LATER
// LATER: {{^}}mxcomp-compile: error: IREE could not compile the module
// RUN: filecheck %s --check-prefix=REPORT < %t.json
// REPORT: "reason": "block size 16: expected a multiple of 32"
// RUN: not mxcomp-compile %S/compile_remarks.mlir --report=%t.plugin.json --emit-plugin %t.no 2>&1 | filecheck %s --check-prefix=PLUGIN
// PLUGIN: {{^}}mxcomp-compile: error: {{.+}}: no scaled matmul to emit a plugin for: --report says why
// RUN: filecheck %s --check-prefix=REPORT < %t.plugin.json
// RUN: not ls %t.no

// What was there before stays.
// RUN: echo precious > %t
// RUN: not mxcomp-compile %S/inputs/invalid.mlir -o %t
// RUN: filecheck %s --check-prefix=KEPT < %t
// KEPT: precious
