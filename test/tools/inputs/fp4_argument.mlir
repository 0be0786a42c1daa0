// IREE has no ABI for fp4: pass bytes and bitcast them.
util.func public @f(%x: tensor<64xf4E2M1FN>) -> tensor<64xf32> {
  %y = arith.extf %x : tensor<64xf4E2M1FN> to tensor<64xf32>
  util.return %y : tensor<64xf32>
}
