// Arguments and results of 4 and 6 bits, which are passed as bytes.
func.func @main(%x: tensor<?x2x32xf4E2M1FN>, %xs: tensor<?x2xf8E8M0FNU>, %w: tensor<16x2x32xf6E2M3FN>, %s: tensor<16x2xf8E8M0FNU>) -> (tensor<?x16xf32>, tensor<?x2x32xf4E2M1FN>) {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x2x32xf4E2M1FN>
  %z0 = arith.constant 0.0 : f32
  %e = tensor.empty(%m) : tensor<?x16xf32>
  %z = linalg.fill ins(%z0 : f32) outs(%e : tensor<?x16xf32>) -> tensor<?x16xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(m, n, k, b) -> (m, k, b)>, affine_map<(m, n, k, b) -> (n, k, b)>, affine_map<(m, n, k, b) -> (m, k)>, affine_map<(m, n, k, b) -> (n, k)>, affine_map<(m, n, k, b) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
    ins(%x, %w, %xs, %s : tensor<?x2x32xf4E2M1FN>, tensor<16x2x32xf6E2M3FN>, tensor<?x2xf8E8M0FNU>, tensor<16x2xf8E8M0FNU>) outs(%z : tensor<?x16xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f6E2M3FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f6E2M3FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?x16xf32>
  return %y, %x : tensor<?x16xf32>, tensor<?x2x32xf4E2M1FN>
}
