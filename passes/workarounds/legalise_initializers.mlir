// What is computed from constants by way of 8-bit floats cannot be evaluated. %s, %b and %p become globals, each with an
// initializer that reads the one before. Evaluated at compile time are those that read and store no f8E8M0FNU, so
// neither %s nor %b; but %p is, and %b has no value then.
//
//     error: internal error: jit global source initialization order invalid: global "__hoisted_tensor_4xi8" has no value
//
//     iree-compile legalise_initializers.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o legalise_initializers.vmfb
//
// stock: refuses: jit global source initialization order invalid

#map = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<1x4xi8>) -> (tensor<1x4xi8>, tensor<1x4xi8>, tensor<1x2xi8>) {
  %c = arith.constant dense<[[1.0, 2.0, 4.0, 8.0]]> : tensor<1x4xf32>
  %floats = tensor.empty() : tensor<1x4xf8E8M0FNU>
  %s = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<1x4xf32>) outs(%floats : tensor<1x4xf8E8M0FNU>) {
  ^bb0(%in: f32, %out: f8E8M0FNU):
    %0 = arith.truncf %in : f32 to f8E8M0FNU
    linalg.yield %0 : f8E8M0FNU
  } -> tensor<1x4xf8E8M0FNU>
  %bytes = tensor.empty() : tensor<1x4xi8>
  %b = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<1x4xf8E8M0FNU>) outs(%bytes : tensor<1x4xi8>) {
  ^bb0(%in: f8E8M0FNU, %out: i8):
    %0 = arith.bitcast %in : f8E8M0FNU to i8
    linalg.yield %0 : i8
  } -> tensor<1x4xi8>
  %even = tensor.extract_slice %b[0, 0] [1, 2] [1, 2] : tensor<1x4xi8> to tensor<1x2xi8>
  %odd = tensor.extract_slice %b[0, 1] [1, 2] [1, 2] : tensor<1x4xi8> to tensor<1x2xi8>
  %p = arith.addi %even, %odd : tensor<1x2xi8>
  %sb = iree_tensor_ext.bitcast %s : tensor<1x4xf8E8M0FNU> -> tensor<1x4xi8>
  %r = arith.addi %sb, %x : tensor<1x4xi8>
  %t = arith.addi %b, %x : tensor<1x4xi8>
  return %r, %t, %p : tensor<1x4xi8>, tensor<1x4xi8>, tensor<1x2xi8>
}
