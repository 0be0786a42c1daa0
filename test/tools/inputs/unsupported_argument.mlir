// IREE has no ABI for elements of this type.
util.func public @f(%x: tensor<64xf8E3M4>) -> tensor<64xf32> {
  %y = arith.extf %x : tensor<64xf8E3M4> to tensor<64xf32>
  util.return %y : tensor<64xf32>
}
