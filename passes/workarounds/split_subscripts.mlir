// What a wave reduces does not compile where it is read by the sum of two loops. A quantiser reads element i of block b
// at b * 32 + i of a row, and is computed together with a matrix times one row, whose reduction the lanes of a wave
// share.
//
//     error: failed to pack reduction dimensions for partial reduction
//
//     iree-compile split_subscripts.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o split_subscripts.vmfb
//
// stock: refuses: failed to pack reduction dimensions

#blocks = affine_map<(m, b, i) -> (m, b, i)>
func.func @product(%x: tensor<33x128xbf16>, %sb: tensor<33x4xi8>, %wb: tensor<1x4x16xi8>,
                   %wsb: tensor<1x4xi8>) -> tensor<1x33xf32> {
  %s = iree_tensor_ext.bitcast %sb : tensor<33x4xi8> -> tensor<33x4xf8E8M0FNU>
  %w = iree_tensor_ext.bitcast %wb : tensor<1x4x16xi8> -> tensor<1x4x32xf4E2M1FN>
  %ws = iree_tensor_ext.bitcast %wsb : tensor<1x4xi8> -> tensor<1x4xf8E8M0FNU>
  %qe = tensor.empty() : tensor<33x4x32xf4E2M1FN>
  %q = linalg.generic {indexing_maps = [affine_map<(m, b, i) -> (m, b * 32 + i)>,
                                         affine_map<(m, b, i) -> (m, b)>, #blocks],
                        iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s : tensor<33x128xbf16>, tensor<33x4xf8E8M0FNU>)
      outs(%qe : tensor<33x4x32xf4E2M1FN>) {
  ^bb0(%a: bf16, %b: f8E8M0FNU, %o: f4E2M1FN):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.scaling_truncf %0, %b : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %1 : f4E2M1FN
  } -> tensor<33x4x32xf4E2M1FN>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x33xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1x33xf32>) -> tensor<1x33xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1, b, i) -> (d1, b, i)>, affine_map<(d0, d1, b, i) -> (d0, b, i)>, affine_map<(d0, d1, b, i) -> (d1, b)>, affine_map<(d0, d1, b, i) -> (d0, b)>, affine_map<(d0, d1, b, i) -> (d0, d1)>],
                        iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%q, %w, %s, %ws : tensor<33x4x32xf4E2M1FN>, tensor<1x4x32xf4E2M1FN>, tensor<33x4xf8E8M0FNU>, tensor<1x4xf8E8M0FNU>) outs(%z : tensor<1x33xf32>) {
  ^bb0(%a: f4E2M1FN, %b: f4E2M1FN, %as: f8E8M0FNU, %bs: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %a, %as : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1x33xf32>
  return %r : tensor<1x33xf32>
}
