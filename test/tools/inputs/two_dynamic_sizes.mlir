func.func @f(%a: tensor<?x?xbf16>) -> tensor<?x?xbf16> {
  %0 = arith.addf %a, %a : tensor<?x?xbf16>
  return %0 : tensor<?x?xbf16>
}
