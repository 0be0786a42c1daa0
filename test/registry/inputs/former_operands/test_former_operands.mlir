// The rule has a former value of operands.
util.func private @test_former_operands(
    %lhs: tensor<1x?x1x2x2x4x16x32xf8E4M3FN>,
    %rhs: tensor<1x?x1x2x4x2x4x16x32xf4E2M1FN>,
    %lhs_scale: tensor<1x?x4x16x2x2xf8E8M0FNU>,
    %rhs_scale: tensor<1x?x2x4x16x4x2xf8E8M0FNU>,
    %acc: tensor<1x1x2x2x4x4x16x4xf32>) -> tensor<1x1x2x2x4x4x16x4xf32> attributes {
  mxcomp.ukernel = {
    archs = ["gfx950"],
    types = [f4E2M1FN, f4E2M1FN, f8E8M0FNU, f8E8M0FNU, f32],
    benefit = 100,
    operands = "lhs_in_rows",
    layout = {intrinsic = "MFMA_SCALE_F32_16x16x128_B32", intrinsics_m = 2, intrinsics_n = 4, intrinsics_k = 2,
              subgroups_n = 2, operands_interleaving_intrinsics_m = [2],
              operands_interleaving_intrinsics_n = [3], operands_interleaving_intrinsics_k = [2, 3]},
    workgroup_size = [128, 1, 1]
  }
} {
  util.return %acc : tensor<1x1x2x2x4x4x16x4xf32>
}
