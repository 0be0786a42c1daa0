util.func public @model(%a: tensor<128x128xf16>, %b: tensor<128x128xf16>) -> tensor<128x128xf32> {
  %zero = arith.constant dense<0.0> : tensor<128x128xf32>
  %r = linalg.matmul ins(%a, %b : tensor<128x128xf16>, tensor<128x128xf16>) outs(%zero : tensor<128x128xf32>)
      -> tensor<128x128xf32>
  util.return %r : tensor<128x128xf32>
}
