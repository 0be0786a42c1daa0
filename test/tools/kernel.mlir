// Lists: all that have a name and types, in words when each is chosen; measured ones, and as JSON.

// RUN: mxcomp-kernel 'mx_*_m256_n256_k512*' --types=f8E4M3FN,f4* | filecheck %s
// CHECK: name {{.*}}tile {{.*}}LHS {{.*}}RHS {{.*}}MFMA {{.*}}chosen
// CHECK: mx_f8E4M3FN_f4E2M1FN_f32_m256_n256_k512_intrawave {{.*}}256×256×512 │ f8E4M3FN │ f4E2M1FN │ {{ +[0-9]+ │ +[0-9]+%}} │ K a multiple of 32; where
// CHECK-NOT: mx_f4
// CHECK: cycles of a K tile, and the part of them that MFMA take: modelled

// RUN: mxcomp-kernel list mx_f4E2M1FN_f4E2M1FN_f32_m16_n32_k512_single_wave mx_f4_f4_f32_row_major* --json | filecheck %s --check-prefix=JSON
// JSON: "name": "mx_f4E2M1FN_f4E2M1FN_f32_m16_n32_k512_single_wave",
// JSON: "vgprs": null,
// JSON: "cycles_per_k_tile": {{[0-9]+}},
// JSON: "mfma_share": 0.{{[0-9]+}},
// JSON: "name": "mx_f4_f4_f32_row_major_m128_n256_k256",
// JSON: "chosen": "row-major operands; K a multiple of 128; N a multiple of 4; by name, or --ukernels=benefit (its own is 20)"

// A name prints, with what it is, and the same is taken back under another name; a kernel of one's own in Python too.

// RUN: mkdir %t
// RUN: mxcomp-kernel mx_f4E2M1FN_f4E2M1FN_f32_m16_n32_k512_single_wave --as=mine -o %t/mine.mlir && filecheck %s --check-prefix=MINE < %t/mine.mlir
// MINE: // mine: f4E2M1FN × f4E2M1FN → f32, in tiles of 16×32, 512 along K at a time.
// MINE: // Printed by mxcomp-kernel from mx_f4E2M1FN_f4E2M1FN_f32_m16_n32_k512_single_wave
// MINE: // Workgroup: 64 threads in 1 wave.
// MINE: // Chosen: K a multiple of 32; where modelled fastest.
// MINE: // Registers: {{[0-9]+}} VGPRs, {{[0-9]+}} SGPRs, none spilled; 0 bytes of LDS.
// MINE: //     rhs_scale: tensor<1x2x?x4x16x4xf8E8M0FNU>
// MINE: //     mxcomp-compile model.mlir -o model.vmfb --ukernel-dir=DIR
// MINE: util.func private @mine({{.*}}benefit = 100

// RUN: mxcomp-compile %S/inputs/fp4.mlir --ukernel-dir=%t --compile-to=input -o %t.mlir 2>&1 | filecheck %s --check-prefix=TAKEN
// TAKEN: 1 scaled matmul: 1 by ukernels (mine)

// RUN: mxcomp-kernel own* --ukernel-dir=%S/../../examples/ukernels | filecheck %s --check-prefix=OWN
// OWN: own_f4_f4_f32_m128_n224_k512 {{.*}}M = 2048; N = 3584; K ≥ 1024; K a multiple of 32; before all of lower

// A hand-written file is printed as it is written, comments and all.

// RUN: mxcomp-kernel print mx_f4_f4_f32_m64_n128_k512 | filecheck %s --check-prefix=FILE
// FILE: // mx_f4_f4_f32_m64_n128_k512: f4E2M1FN × f4E2M1FN → f32, in tiles of 64×128
// FILE: // workgroup has two tiles (102 KiB) on their way

// A kernel that spills registers is refused, unless it is asked for by name.

// RUN: mkdir %t/spills
// RUN: mxcomp-kernel mx_f4E2M1FN_f4E2M1FN_f32_m64_n64_k512_single_wave --as=spills -o %t.one
// RUN: sed -e 's/"amdgpu-waves-per-eu" = "1"/"amdgpu-waves-per-eu" = "8"/' %t.one > %t/spills/spills.mlir
// RUN: not mxcomp-compile %S/inputs/fp4.mlir --ukernel-dir=%t/spills -o %t/no.vmfb 2>&1 | filecheck %s --check-prefix=SPILLS
// SPILLS: {{^}}mxcomp-compile: error: {{.*}}spills.mlir:{{[0-9]+}}: @spills spills {{[0-9]+}} registers, in addition to {{[0-9]+}} VGPRs and {{[0-9]+}} SGPRs
// SPILLS-SAME: expected none; --ukernels=spills takes it all the same
// RUN: not ls %t/no.vmfb
// RUN: mxcomp-compile %S/inputs/fp4.mlir --ukernel-dir=%t/spills --ukernels=spills -o %t.vmfb 2>&1 | filecheck %s --check-prefix=ASKED
// ASKED: 1 by ukernels (spills)

// What cannot be.

// RUN: not mxcomp-kernel mx_f4E2M1FN_f4E2M1FN_f32_m16_n32_k521 2>&1 | filecheck %s --check-prefix=UNKNOWN
// UNKNOWN: mxcomp-kernel: error: unknown ukernel 'mx_f4E2M1FN_f4E2M1FN_f32_m16_n32_k521': is mx_f4E2M1FN_f4E2M1FN_f32_m16_n32_k512 or
// RUN: not mxcomp-kernel 'mx_f3*' 2>&1 | filecheck %s --check-prefix=NONE
// NONE: mxcomp-kernel: error: no kernel is mx_f3*: mxcomp-kernel lists all
// RUN: not mxcomp-kernel --types=f5 2>&1 | filecheck %s --check-prefix=TYPE
// TYPE: mxcomp-kernel: error: --types=f5: no type is f5: expected one of f4E2M1FN,
// RUN: not mxcomp-kernel print mx_f4_f4_f32_m64_n128_k512 --as=mx_f4_f4_f32_m128_n256_k256 2>&1 | filecheck %s --check-prefix=EXISTS
// EXISTS: mxcomp-kernel: error: --as=mx_f4_f4_f32_m128_n256_k256: that kernel exists already
// RUN: not mxcomp-kernel mx_f4_f4_f32_m64_n128_k512 -o %t/no/such.mlir 2>&1 | filecheck %s --check-prefix=UNWRITABLE
// UNWRITABLE: mxcomp-kernel: error: cannot write {{.*}}such.mlir: No such file or directory
