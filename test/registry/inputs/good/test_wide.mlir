// Tile 64 x 64 x 64 of the 32 x 32 x 64 instruction, for M from 256; preferred to @test_tile.
util.func private @test_wide(
    %lhs: tensor<1x?x1x2x2x32x32xf4E2M1FN>,
    %rhs: tensor<1x?x1x2x2x32x32xf4E2M1FN>,
    %lhs_scale: tensor<1x?x2x2x32xf8E8M0FNU>,
    %rhs_scale: tensor<1x?x2x2x32xf8E8M0FNU>,
    %acc: tensor<1x1x2x2x4x2x32x4xf32>) -> tensor<1x1x2x2x4x2x32x4xf32> attributes {
  mxcomp.ukernel = {
    archs = ["gfx950"],
    types = [f4E2M1FN, f4E2M1FN, f8E8M0FNU, f8E8M0FNU, f32],
    benefit = 200,
    constraints = {m = {min = 256, div = 64}, n = {div = 64}, k = {div = 64}},
    layout = {intrinsic = "MFMA_SCALE_F32_32x32x64_B32", intrinsics_m = 2, subgroups_n = 2},
    llvm_func_attrs = {"amdgpu-waves-per-eu" = "2"},
    workgroup_size = [128, 1, 1]
  }
} {
  util.return %acc : tensor<1x1x2x2x4x2x32x4xf32>
}
