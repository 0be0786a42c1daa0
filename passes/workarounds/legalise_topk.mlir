// All threads of a workgroup insert into one table of the largest elements. Each thread of a workgroup inserts each
// element into the same table, which then has the largest several times, or reads what no thread wrote.
//
//     iree-compile legalise_topk.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o legalise_topk.vmfb
//     iree-run-module --device=hip --module=legalise_topk.vmfb --input=2x4xf32=1,2,3,4,5,6,7,8 --expected_output=2x2xf32=4,3,8,7 --expected_output=2x2xi32=3,2,3,2
//
// stock: computes: memory never written
// upstream: iree-org/iree#21202

func.func @main(%x: tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>) {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0 : i32
  %ev = tensor.empty() : tensor<2x2xf32>
  %ei = tensor.empty() : tensor<2x2xi32>
  %v = linalg.fill ins(%least : f32) outs(%ev : tensor<2x2xf32>) -> tensor<2x2xf32>
  %i = linalg.fill ins(%zero : i32) outs(%ei : tensor<2x2xi32>) -> tensor<2x2xi32>
  %r:2 = iree_linalg_ext.topk dimension(1) ins(%x : tensor<2x4xf32>) outs(%v, %i : tensor<2x2xf32>, tensor<2x2xi32>) {
  ^bb0(%a: f32, %b: f32):
    %before = arith.cmpf ogt, %a, %b : f32
    iree_linalg_ext.yield %before : i1
  } -> tensor<2x2xf32>, tensor<2x2xi32>
  return %r#0, %r#1 : tensor<2x2xf32>, tensor<2x2xi32>
}
