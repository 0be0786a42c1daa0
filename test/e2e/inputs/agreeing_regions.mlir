func.func @cat(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x8xf32> {
  %r = tensor.concat dim(1) %x, %y : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}
func.func @branch(%c: i1, %x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %r = scf.if %c -> tensor<?x4xf32> {
    %a = arith.mulf %x, %x : tensor<?x4xf32>
    scf.yield %a : tensor<?x4xf32>
  } else {
    scf.yield %x : tensor<?x4xf32>
  }
  %s = arith.addf %r, %y : tensor<?x4xf32>
  return %s : tensor<?x4xf32>
}
func.func @loop(%n: index, %x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%v = %x) -> tensor<?x4xf32> {
    %a = arith.addf %v, %y : tensor<?x4xf32>
    scf.yield %a : tensor<?x4xf32>
  }
  return %r : tensor<?x4xf32>
}
func.func private @add(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xf32> attributes {noinline} {
  %a = arith.addf %x, %y : tensor<?x4xf32>
  return %a : tensor<?x4xf32>
}
func.func @calls(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>, %z: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %a = call @add(%x, %y) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %b = arith.mulf %a, %a : tensor<?x4xf32>
  %s = arith.mulf %b, %z : tensor<?x4xf32>
  return %s : tensor<?x4xf32>
}
