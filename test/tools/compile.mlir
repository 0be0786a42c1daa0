// RUN: mxcomp-compile %s --ukernels=none -o %t.vmfb --report=%t.json
// RUN: filecheck %s --check-prefix=REPORT < %t.json
// RUN: iree-dump-module %t.vmfb | filecheck %s --check-prefix=VMFB

// From stdin, the report on stdout; the program on stdout, byte for byte the same.
// RUN: mxcomp-compile - --ukernels=none -o %t.stdin.vmfb --report=- < %s | filecheck %s --check-prefix=REPORT
// RUN: iree-dump-module %t.stdin.vmfb | filecheck %s --check-prefix=VMFB
// RUN: mxcomp-compile %s --compile-to=flow --emit-mlir-bytecode -o %t.mlirbc
// RUN: mxcomp-compile %s --compile-to=flow --emit-mlir-bytecode > %t.stdout.mlirbc
// RUN: cmp %t.mlirbc %t.stdout.mlirbc

// RUN: mxcomp-compile %s --compile-to=flow --ukernels=none | filecheck %s --check-prefix=FLOW
// RUN: mxcomp-compile --compile-to=input -o - < %s | filecheck %s --check-prefix=INPUT
// RUN: mxcomp-compile %s --compile-to=start | filecheck %s --check-prefix=START

// Flags of iree-compile: of sessions, global ones, and ones that nobody knows.
// RUN: mxcomp-compile %s --iree-hal-dump-executable-sources-to=%t.dump --mlir-print-ir-after=canonicalize \
// RUN:   --mlir-elide-elementsattrs-if-larger=1 --compile-to=executable-sources -o %t.mlir 2> %t.err
// RUN: ls %t.dump | filecheck %s --check-prefix=DUMP
// RUN: filecheck %s --check-prefix=PRINT < %t.err
// RUN: filecheck %s --check-prefix=SOURCES < %t.mlir
// RUN: not mxcomp-compile %s --no-such-flag -o %t.no 2>&1 | filecheck %s --check-prefix=FLAG
// RUN: not ls %t.no

// RUN: mxcomp-compile --version | filecheck %s --check-prefix=VERSION

// REPORT: "target": "gfx950",
// REPORT-NEXT: "matmuls": [
// REPORT: "location": "{{.+}}:[[# @LINE + 66]]:8"
// REPORT: "m": 64,
// REPORT-NEXT: "n": 128,
// REPORT-NEXT: "k": 256,
// REPORT-NEXT: "types": [
// REPORT-NEXT: "f4E2M1FN",
// REPORT: "operands": "data_tiled",
// REPORT: "ukernel": null,
// REPORT-NEXT: "reason": "--ukernels=none",
// REPORT-NEXT: "warning": null,
// REPORT-NEXT: "unfused": [],
// REPORT-NEXT: "dispatches": [
// REPORT-NEXT: "pack_lhs",
// REPORT-NEXT: "pack_rhs",
// REPORT-NEXT: "pack_lhs_scale",
// REPORT-NEXT: "pack_rhs_scale",
// REPORT-NEXT: "matmul"
// REPORT-NOT: "location"
// REPORT: "launches": [
// REPORT: "part": "pack_lhs",
// REPORT: "location": "{{.+}}:[[# @LINE + 46]]:8"
// REPORT-NEXT: "function": "model"

// VMFB: model(

// What is not ours becomes executables of IREE's own, beside ours.
// FLOW-COUNT-5: flow.executable private @mxcomp_model_dispatch_
// FLOW: flow.executable private @model_dispatch_0
// FLOW: util.func public @model
// FLOW-COUNT-5: flow.dispatch @mxcomp_model_dispatch_
// FLOW: flow.dispatch @model_dispatch_0

// INPUT-COUNT-5: flow.executable private @mxcomp_model_dispatch_
// INPUT: util.func public @model
// INPUT: math.exp

// Before any phase: as it was, read and printed.
// START-NOT: flow.executable
// START: linalg.generic
// START-NOT: mxcomp.scaled_matmul
// START: math.exp

// DUMP: module_mxcomp_model_dispatch_0{{.*}}.mlir
// PRINT: // -----// IR Dump After CanonicalizerPass
// The linked ukernel, and what makes IREE look for it.
// SOURCES: #[[TARGET:.+]] = #hal.executable.target<"rocm", {{.*}}iree_codegen.ukernel_provider = #rocm.tensor_ukernel_provider
// SOURCES-NOT: attributes {hal.executable.target
// SOURCES: util.func private @mx_
// SOURCES: func.func @mxcomp_model_dispatch_4{{.*}} attributes {hal.executable.target = #[[TARGET]]} {
// SOURCES: iree_codegen.inner_tiled
// SOURCES-NOT: attributes {hal.executable.target
// FLAG: mxcomp-compile: {{.*}}--no-such-flag
// VERSION: mxcomp-compile {{[0-9]+\.[0-9]+\.[0-9]+}} (IREE 3.{{.+}})

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
util.func public @model(%a8: tensor<64x128xi8>, %as8: tensor<64x8xi8>, %b8: tensor<128x128xi8>, %bs8: tensor<128x8xi8>,
                        %x: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %a = iree_tensor_ext.bitcast %a8 : tensor<64x128xi8> -> tensor<64x8x32xf4E2M1FN>
  %as = iree_tensor_ext.bitcast %as8 : tensor<64x8xi8> -> tensor<64x8xf8E8M0FNU>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>
  %bs = iree_tensor_ext.bitcast %bs8 : tensor<128x8xi8> -> tensor<128x8xf8E8M0FNU>
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
  %y = math.exp %x : tensor<64x128xf32>
  %z = arith.mulf %r, %y : tensor<64x128xf32>
  util.return %z : tensor<64x128xf32>
}
