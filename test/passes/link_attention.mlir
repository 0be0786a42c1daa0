// RUN: not mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-link-ukernels)' 2>&1 | filecheck %s

// A generic stands for a kernel, and computes something else: if IREE has dropped the kernel's name, wherever that is
// from, that is an error. Its body still says so.

// CHECK: IREE dropped the kernel of a dispatch at model.py:7:3

#in = affine_map<(w, a) -> (a)>
#out = affine_map<(w, a) -> (w)>
util.func @lost(%a: tensor<4xf32>, %b: tensor<2xf32>) -> tensor<2xf32> {
  %r = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<4xf32>) outs(%b : tensor<2xf32>) {
  ^bb0(%x: f32, %y: f32):
    %0 = arith.addf %x, %y {mxcomp.placeholder} : f32
    linalg.yield %0 : f32
  } -> tensor<2xf32> loc("model.py":7:3)
  util.return %r : tensor<2xf32>
}
