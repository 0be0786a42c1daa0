// Mistakes on mxcomp-opt's command line.

// RUN: not mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-fuse)' 2>&1 | filecheck %s --check-prefix=PASS
// PASS: {{^}}mxcomp-opt: error: unknown pass 'mxcomp-fuse': expected one of mxcomp-check-places, {{.+}}, mxcomp-write-rows, mxcomp-{{.+}}

// RUN: not mxcomp-opt %s --pass-pipeline='builtin.module(no-such-pass)' 2>&1 | filecheck %s --check-prefix=IREE-PASS
// IREE-PASS: {{^}}mxcomp-opt: error: the pass pipeline no-such-pass failed

// RUN: not mxcomp-opt %s --pass-pipeline='mxcomp-recognise' 2>&1 | filecheck %s --check-prefix=PIPELINE
// PIPELINE: {{^}}mxcomp-opt: error: --pass-pipeline=mxcomp-recognise: expected builtin.module(

// RUN: not mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-encode{tiles=3})' 2>&1 | filecheck %s --check-prefix=OPTION
// OPTION: {{^}}mxcomp-opt: error: pass mxcomp-encode has no option 'tiles': expected data-tiling, ukernels, ukernel-dir, reference, tuned

// An option belongs to its pass.
// RUN: not mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-outline{data-tiling=off})' 2>&1 | filecheck %s --check-prefix=OWN
// OWN: {{^}}mxcomp-opt: error: pass mxcomp-outline has no option 'data-tiling': it has none

// RUN: not mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-materialise{reference=maybe})' 2>&1 | filecheck %s --check-prefix=BOOLEAN
// BOOLEAN: {{^}}mxcomp-opt: error: pass option reference=maybe: expected true or false

// RUN: not mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-encode{data-tiling=no})' 2>&1 | filecheck %s --check-prefix=VALUE
// VALUE: {{^}}mxcomp-opt: error: --data-tiling=no: expected on or off

// RUN: not mxcomp-opt %s --no-such-flag 2>&1 | filecheck %s --check-prefix=FLAG
// FLAG: mxcomp-opt: error: unrecognized arguments: --no-such-flag

// RUN: not mxcomp-opt %S/no_such_file.mlir 2>&1 | filecheck %s --check-prefix=MISSING
// MISSING: {{^}}mxcomp-opt: error: cannot read {{.*}}no_such_file.mlir: No such file or directory

// RUN: not mxcomp-opt %S/inputs/latin1.mlir 2>&1 | filecheck %s --check-prefix=ENCODING
// RUN: not mxcomp-opt < %S/inputs/latin1.mlir 2>&1 | filecheck %s --check-prefix=ENCODING
// ENCODING: {{^}}mxcomp-opt: error: cannot read {{.+}}: not UTF-8 text

// RUN: not mxcomp-opt %S/inputs/invalid.mlir -o %t.mlir 2>&1 | filecheck %s --check-prefix=INVALID
// RUN: not ls %t.mlir
// INVALID: {{^}}mxcomp-opt: error: {{.*}}invalid.mlir is not valid MLIR
// INVALID-NEXT: error: {{.*}}invalid.mlir:2:23: use of undeclared SSA value name

// --verify-diagnostics fails where what is expected does not come, comes elsewhere or reads otherwise, and where an
// error is not expected.
// RUN: not mxcomp-opt %S/inputs/expects_too_much.mlir --verify-diagnostics 2>&1 | filecheck %s --check-prefix=TOO-MUCH
// TOO-MUCH: {{^}}mxcomp-opt: error: line 3: expected error 'use of undeclared SSA value name', got 'none'
// RUN: not mxcomp-opt %S/inputs/expects_other_line.mlir --verify-diagnostics 2>&1 | filecheck %s --check-prefix=LINE
// LINE: {{^}}mxcomp-opt: error: line 4: expected error 'use of undeclared SSA value name', got '
// RUN: not mxcomp-opt %S/inputs/expects_other_text.mlir --verify-diagnostics 2>&1 | filecheck %s --check-prefix=TEXT
// TEXT: {{^}}mxcomp-opt: error: line 3: expected error 'division by zero', got '
// RUN: not mxcomp-opt %S/inputs/invalid.mlir --verify-diagnostics 2>&1 | filecheck %s --check-prefix=INVALID
