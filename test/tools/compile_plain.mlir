// RUN: mxcomp-compile %s -o %t.ours.vmfb --report=- | filecheck %s
// RUN: iree-compile %s --iree-hal-target-device=hip --iree-rocm-target=gfx950 -o %t.theirs.vmfb
// RUN: cmp %t.ours.vmfb %t.theirs.vmfb

// Without a scaled matmul, the program is the one that iree-compile makes.

// CHECK: "matmuls": []
util.func public @model(%a: tensor<64x256xf16>, %b: tensor<256x128xf16>) -> tensor<64x128xf32> {
  %zero = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.matmul ins(%a, %b : tensor<64x256xf16>, tensor<256x128xf16>) outs(%zero : tensor<64x128xf32>)
      -> tensor<64x128xf32>
  util.return %r : tensor<64x128xf32>
}
