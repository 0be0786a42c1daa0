// A function without a rule.
util.func private @test_no_rule(
    %lhs: tensor<1x?x1x2x2x4x16x32xf4E2M1FN>,
    %rhs: tensor<1x?x1x2x4x2x4x16x32xf4E2M1FN>,
    %lhs_scale: tensor<1x?x4x16x2x2xf8E8M0FNU>,
    %rhs_scale: tensor<1x?x2x4x16x4x2xf8E8M0FNU>,
    %acc: tensor<1x1x2x2x4x4x16x4xf32>) -> tensor<1x1x2x2x4x4x16x4xf32> {
  util.return %acc : tensor<1x1x2x2x4x4x16x4xf32>
}
