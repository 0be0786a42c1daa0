util.func public @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+2 {{use of undeclared SSA value name}}
  %y = arith.addf %x, %undefined : tensor<4xf32>
  util.return %y : tensor<4xf32>
}
