// What is wrong with a ukernel file is said when the registry reads it, with the file's name and both sides.

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/mistyped --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=MISTYPED
// MISTYPED: {{^}}mxcomp-opt: error: {{.*}}test_mistyped.mlir:3: @test_mistyped: argument 0 (lhs) is
// MISTYPED-SAME: tensor<1x?x1x2x2x4x16x32xf8E4M3FN>, expected tensor<1x?x1x2x2x4x16x32xf4E2M1FN>

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/misshaped --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=MISSHAPED
// MISSHAPED: {{^}}mxcomp-opt: error: {{.*}}test_misshaped.mlir:6: @test_misshaped: argument 3 (rhs_scale) is
// MISSHAPED-SAME: tensor<1x?x2x4x16x4x4xf8E8M0FNU>, expected tensor<1x?x2x4x16x4x2xf8E8M0FNU>

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/missing_argument --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=ARGUMENT
// ARGUMENT: {{^}}mxcomp-opt: error: {{.*}}test_missing_argument.mlir:2: @test_missing_argument: expected five tensor arguments:
// ARGUMENT-SAME: LHS, RHS, LHS scales, RHS scales, accumulator

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/no_rule --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=NO-RULE
// NO-RULE: {{^}}mxcomp-opt: error: {{.*}}test_no_rule.mlir:2: expected one util.func with a mxcomp.ukernel attribute, found 0

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/lacking_entry --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=LACKING
// LACKING: {{^}}mxcomp-opt: error: {{.*}}test_lacking_entry.mlir:2: @test_lacking_entry: mxcomp.ukernel lacks the entry 'workgroup_size'

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/unknown_entry --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=UNKNOWN
// UNKNOWN: {{^}}mxcomp-opt: error: {{.*}}test_unknown_entry.mlir:2: @test_unknown_entry: unknown entries benefits

// UNKNOWN-SAME: : expected archs, types, operands, benefit, constraints, layout, tile, workgroup_size, llvm_func_attrs

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/unknown_bound --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=BOUND
// BOUND: {{^}}mxcomp-opt: error: {{.*}}test_unknown_bound.mlir:2: @test_unknown_bound: constraints of m: unknown minimum: expected min, max, div, odd

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/unknown_size --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=SIZE
// SIZE: {{^}}mxcomp-opt: error: {{.*}}test_unknown_size.mlir:2: @test_unknown_size: constraints of 'rows': expected m, n or k

// RUN: not mxcomp-opt %s --ukernels=mx_f4E2M1FN_f4E2M1FN_f32_m32_n32_k521 --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=NEAREST
// NEAREST: {{^}}mxcomp-opt: error: unknown ukernel 'mx_f4E2M1FN_f4E2M1FN_f32_m32_n32_k521': is mx_f4E2M1FN_f4E2M1FN_f32_m32_n32_k512 or {{.+}} meant? known are

// RUN: not mxcomp-opt %s --ukernels=mx_quantising16_pair_f4E2M1FN_f4E2M1FN_f32_m16_n16_k512 --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=RENAMED
// RENAMED: {{^}}mxcomp-opt: error: unknown ukernel 'mx_quantising16_pair_{{.+}}': it is called mx_fused_quant16_dual_f4E2M1FN_f4E2M1FN_f32_m16_n16_k512 now; known are

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/former_operands --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=FORMER
// FORMER: {{^}}mxcomp-opt: error: {{.*}}test_former_operands.mlir:2: @test_former_operands: operands 'lhs_in_rows' is now 'lhs_row_major'

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/wrong_kind --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=KIND
// KIND: {{^}}mxcomp-opt: error: {{.*}}test_wrong_kind.mlir:2: @test_wrong_kind: archs must be a list of str, got 'gfx950'

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/zero_divisor --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=ZERO
// ZERO: {{^}}mxcomp-opt: error: {{.*}}test_zero_divisor.mlir:2: @test_zero_divisor: a constraint must be a positive integer, got 0

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/unparsable --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=UNPARSABLE
// UNPARSABLE: {{^}}mxcomp-opt: error: {{.*}}test_unparsable.mlir:2: the ukernel file does not parse: expected non-function type{{$}}

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/other_result --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=RESULT
// RESULT: {{^}}mxcomp-opt: error: {{.*}}test_other_result.mlir:2: @test_other_result: the result is tensor<1x1x2x2x4x4x16x4xf16>,
// RESULT-SAME: expected tensor<1x1x2x2x4x4x16x4xf32>, as the accumulator

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/much_lds --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=LDS
// LDS: {{^}}mxcomp-opt: error: {{.*}}test_much_lds.mlir:2: @test_much_lds: it takes 196608 bytes of LDS,
// LDS-SAME: expected at most 163840 on gfx950

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/python --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=PYTHON
// PYTHON: {{^}}mxcomp-opt: error: {{.*}}raises.py:4: ZeroDivisionError: division by zero{{$}}

// RUN: not mxcomp-opt %s --ukernel-dir=%S/inputs/good --ukernel-dir=%S/inputs/duplicate \
// RUN:   --pass-pipeline='builtin.module(mxcomp-encode)' 2>&1 | filecheck %s --check-prefix=DUPLICATE
// DUPLICATE: {{^}}mxcomp-opt: error: {{.*}}duplicate/test_tile.mlir: ukernel @test_tile exists already in {{.*}}good/test_tile.mlir

// The files that the other tests use are right.
// RUN: mxcomp-opt %s --ukernel-dir=%S/inputs/good --pass-pipeline='builtin.module(mxcomp-encode)' | filecheck %s
// CHECK: util.func private @nothing
util.func private @nothing()
