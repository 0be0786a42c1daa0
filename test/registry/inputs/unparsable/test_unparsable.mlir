// Not MLIR.
util.func private @test_unparsable(%lhs: tensor<1x?x) {
