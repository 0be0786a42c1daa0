// Row-major operands; tiles have to divide M and N.
util.func private @test_row_major(
    %lhs: tensor<32x?x32xf4E2M1FN>,
    %rhs: tensor<128x?x32xf4E2M1FN>,
    %lhs_scale: tensor<32x?xf8E8M0FNU>,
    %rhs_scale: tensor<128x?xf8E8M0FNU>,
    %acc: tensor<32x128xf32>) -> tensor<32x128xf32> attributes {
  mxcomp.ukernel = {
    archs = ["gfx950"],
    types = [f4E2M1FN, f4E2M1FN, f8E8M0FNU, f8E8M0FNU, f32],
    benefit = 100,
    constraints = {m = {div = 32}, n = {div = 128}, k = {div = 256}},
    operands = "row_major",
    tile = [32, 128, 256],
    workgroup_size = [128, 1, 1]
  }
} {
  util.return %acc : tensor<32x128xf32>
}
