// A matmul of dynamic M and N, and what reads as many: fused behind it, behind that, and in front of it.
#mkb = affine_map<(m, n, k, b) -> (m, k, b)>
#nkb = affine_map<(m, n, k, b) -> (n, k, b)>
#mk = affine_map<(m, n, k, b) -> (m, k)>
#nk = affine_map<(m, n, k, b) -> (n, k)>
#mn = affine_map<(m, n, k, b) -> (m, n)>
#id = affine_map<(r, c) -> (r, c)>
#row = affine_map<(r, c) -> (r)>
#column = affine_map<(r, c) -> (c)>
#id3 = affine_map<(r, k, b) -> (r, k, b)>
#block = affine_map<(r, k, b) -> (r, k)>

func.func @main(%x: tensor<?x96xf32>, %xs: tensor<?x3xf8E8M0FNU>, %w: tensor<?x3x32xf8E4M3FN>,
                %ws: tensor<?x3xf8E8M0FNU>, %residual: tensor<?x?xf32>, %gate: tensor<?x2x?xf32>,
                %factor: tensor<?xf32>, %bias: tensor<?xf32>, %more: tensor<?x?xf32>)
    -> (tensor<?x?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x96xf32>
  %n = tensor.dim %w, %c0 : tensor<?x3x32xf8E4M3FN>
  %x3 = tensor.expand_shape %x [[0], [1, 2]] output_shape [%m, 3, 32] : tensor<?x96xf32> into tensor<?x3x32xf32>
  %q0 = tensor.empty(%m) : tensor<?x3x32xf8E4M3FN>
  %q = linalg.generic {indexing_maps = [#id3, #block, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x3, %xs : tensor<?x3x32xf32>, tensor<?x3xf8E8M0FNU>) outs(%q0 : tensor<?x3x32xf8E4M3FN>) {
  ^bb0(%i: f32, %s: f8E8M0FNU, %o: f8E4M3FN):
    %0 = arith.scaling_truncf %i, %s : f32, f8E8M0FNU to f8E4M3FN
    linalg.yield %0 : f8E4M3FN
  } -> tensor<?x3x32xf8E4M3FN>
  %y0 = tensor.empty(%m, %n) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%y0 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %y = linalg.generic {indexing_maps = [#mkb, #nkb, #mk, #nk, #mn],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%q, %w, %xs, %ws : tensor<?x3x32xf8E4M3FN>, tensor<?x3x32xf8E4M3FN>, tensor<?x3xf8E8M0FNU>,
                             tensor<?x3xf8E8M0FNU>)
      outs(%zeros : tensor<?x?xf32>) {
  ^bb0(%i: f8E4M3FN, %j: f8E4M3FN, %i_scale: f8E8M0FNU, %j_scale: f8E8M0FNU, %sum: f32):
    %0 = arith.scaling_extf %i, %i_scale : f8E4M3FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %j, %j_scale : f8E4M3FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %sum, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?x?xf32>
  %gate2 = tensor.collapse_shape %gate [[0], [1, 2]] : tensor<?x2x?xf32> into tensor<?x?xf32>
  %z = linalg.generic {indexing_maps = [#id, #id, #id, #row, #column, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %residual, %gate2, %factor, %bias : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?xf32>,
                                                  tensor<?xf32>)
      outs(%y0 : tensor<?x?xf32>) {
  ^bb0(%i: f32, %r: f32, %g: f32, %f: f32, %b: f32, %o: f32):
    %0 = arith.addf %i, %b : f32
    %1 = arith.mulf %0, %g : f32
    %2 = arith.mulf %1, %f : f32
    %3 = arith.addf %2, %r : f32
    linalg.yield %3 : f32
  } -> tensor<?x?xf32>
  %t = arith.mulf %z, %more : tensor<?x?xf32>
  %s0 = tensor.empty(%m) : tensor<?xf32>
  %s1 = linalg.fill ins(%zero : f32) outs(%s0 : tensor<?xf32>) -> tensor<?xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%t : tensor<?x?xf32>) outs(%s1 : tensor<?xf32>) {
  ^bb0(%i: f32, %o: f32):
    %0 = arith.addf %i, %o : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>
  return %z, %s : tensor<?x?xf32>, tensor<?xf32>
}
