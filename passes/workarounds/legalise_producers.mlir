// What map_store writes over is made in its dispatch, which cannot be distributed. The fill is cloned into the dispatch
// of iree_linalg_ext.map_store. Places that are calculated cannot be tiled with it, so the whole tensor would be filled
// by every workgroup. The check for it (isUnfusableInit) asks for an interface that map_store does not have; scatter
// was mended in the pull request named below.
//
//     error: 'vector.transfer_write' op write affecting operations on global resources are restricted to workgroup distributed contexts.
//
//     iree-compile legalise_producers.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o legalise_producers.vmfb
//
// stock: refuses: restricted to workgroup distributed contexts
// upstream: iree-org/iree#24214

func.func @main(%x: tensor<17x64xf32>) -> tensor<17x64xf32> {
  %c = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<17x64xf32>
  %f = linalg.fill ins(%c : f32) outs(%e : tensor<17x64xf32>) -> tensor<17x64xf32>
  %r = iree_linalg_ext.map_store %x into %f {
  ^bb0(%i: index, %j: index):
    %c63 = arith.constant 63 : index
    %k = arith.subi %c63, %j : index
    %true = arith.constant true
    iree_linalg_ext.yield %i, %k, %true : index, index, i1
  } : tensor<17x64xf32> into tensor<17x64xf32> -> tensor<17x64xf32>
  return %r : tensor<17x64xf32>
}
