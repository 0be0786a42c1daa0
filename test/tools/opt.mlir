// RUN: mxcomp-opt %s --split-input-file | filecheck %s --check-prefix=SPLIT
// RUN: mxcomp-opt --split-input-file < %s | filecheck %s --check-prefix=SPLIT
// RUN: mxcomp-opt - --split-input-file -o - < %s | filecheck %s --check-prefix=SPLIT
// RUN: mxcomp-opt %s --split-input-file -o %t.mlir
// RUN: filecheck %s --check-prefix=SPLIT < %t.mlir
// RUN: not mxcomp-opt %s 2>&1 | filecheck %s --check-prefix=WHOLE

// IREE's passes before, between and after ours; a pipeline may nest.
// RUN: mxcomp-opt %s --split-input-file --mlir-print-ir-after-all \
// RUN:   --pass-pipeline='builtin.module(util.func(canonicalize,cse), mxcomp-recognise,symbol-dce,mxcomp-encode{ukernels=none})' \
// RUN:   -o %t.mlir 2> %t.err
// RUN: filecheck %s --check-prefix=FOLDED < %t.mlir
// RUN: filecheck %s --check-prefix=PRINT < %t.err
// RUN: mxcomp-opt %s --split-input-file --mlir-print-debuginfo | filecheck %s --check-prefix=LOC
// RUN: mxcomp-opt --version | filecheck %s --check-prefix=VERSION

// SPLIT: util.func public @first
// SPLIT: arith.addi
// SPLIT: // -----
// SPLIT: util.func public @first
// SPLIT-NOT: // -----

// One module cannot have both functions.
// WHOLE: {{^}}mxcomp-opt: error: {{.*}}opt.mlir is not valid MLIR
// WHOLE-NEXT: redefinition of symbol named 'first'

// FOLDED: util.func public @first
// FOLDED-NOT: arith.addi
// FOLDED: util.return %arg0
// FOLDED: // -----

// PRINT: // -----// IR Dump After util.func(canonicalize,cse) //----- //
// PRINT: // -----// IR Dump After mxcomp-recognise //----- //
// PRINT: // -----// IR Dump After symbol-dce //----- //
// PRINT: // -----// IR Dump After mxcomp-encode //----- //
// PRINT: // -----// IR Dump After util.func(canonicalize,cse) //----- //

// Locations count from the start of the file, also in later parts.
// LOC: #loc1 = loc("{{.*}}opt.mlir":[[# @LINE + 6]]:1)
// LOC: // -----
// LOC: #loc1 = loc("{{.*}}opt.mlir":[[# @LINE + 12]]:1)

// VERSION: mxcomp-opt {{[0-9]+\.[0-9]+\.[0-9]+}} (IREE 3.{{.+}})

util.func @first(%x: i32) -> i32 {
  %zero = arith.constant 0 : i32
  %y = arith.addi %x, %zero : i32
  util.return %y : i32
}

// -----

util.func @first() {
  util.return
}
