// The older order of scales, which no attribute of IREE's can express; used only by name.
util.func private @test_old_scales(
    %lhs: tensor<1x?x1x2x2x4x16x32xf4E2M1FN>,
    %rhs: tensor<1x?x1x2x2x4x16x32xf4E2M1FN>,
    %lhs_scale: tensor<1x?x4x2x16x2xf8E8M0FNU>,
    %rhs_scale: tensor<1x?x4x2x16x2xf8E8M0FNU>,
    %acc: tensor<1x1x2x2x4x16x4xf32>) -> tensor<1x1x2x2x4x16x4xf32> attributes {
  mxcomp.ukernel = {
    archs = ["gfx950"],
    types = [f4E2M1FN, f4E2M1FN, f8E8M0FNU, f8E8M0FNU, f32],
    benefit = -1,
    layout = {intrinsic = "MFMA_SCALE_F32_16x16x128_B32", intrinsics_m = 2, intrinsics_n = 2, intrinsics_k = 2,
              scale_permutation = [3, 0, 1, 2]},
    workgroup_size = [64, 1, 1]
  }
} {
  util.return %acc : tensor<1x1x2x2x4x16x4xf32>
}
