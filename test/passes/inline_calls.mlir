// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-inline-calls)' | filecheck %s
// RUN: mxcomp-compile %s -o %t.vmfb --report=- | filecheck %s --check-prefix=REPORT

// A constant behind a call is a constant for the quantiser, which is kept for run time; IREE would find it too late.
// REPORT: "ukernel": "mx_

#id = affine_map<(m, k) -> (m, k)>
#a = affine_map<(m, n, k, b) -> (m, k, b)>
#as = affine_map<(m, n, k, b) -> (m, k)>
#b = affine_map<(m, n, k, b) -> (n, k, b)>
#bs = affine_map<(m, n, k, b) -> (n, k)>
#c = affine_map<(m, n, k, b) -> (m, n)>
#block = affine_map<(m, k, b) -> (m, k, b)>
#row = affine_map<(m, k, b) -> (m, k)>

// CHECK-LABEL: func.func @constant_activation(
// CHECK-NOT: call @
// CHECK: math.absf
// CHECK: arith.maxui
// CHECK: arith.scaling_truncf
// CHECK: arith.scaling_extf
// CHECK-NOT: call @
func.func @constant_activation(%w0: tensor<32x4x16xi8>, %ws0: tensor<32x4xi8>) -> tensor<16x32xf32> {
  %w = iree_tensor_ext.bitcast %w0 : tensor<32x4x16xi8> -> tensor<32x4x32xf4E2M1FN>
  %ws = iree_tensor_ext.bitcast %ws0 : tensor<32x4xi8> -> tensor<32x4xf8E8M0FNU>
  %constant = arith.constant dense<-3.0> : tensor<16x128xf32>
  %x = call @absolute(%constant) : (tensor<16x128xf32>) -> tensor<16x128xf32>
  %a, %as = call @quantise(%x) : (tensor<16x128xf32>) -> (tensor<16x4x32xf4E2M1FN>, tensor<16x4xf8E8M0FNU>)
  %e = tensor.empty() : tensor<16x32xf32>
  %zero = arith.constant 0.0 : f32
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<16x32xf32>) -> tensor<16x32xf32>
  %r = linalg.generic {indexing_maps = [#a, #b, #as, #bs, #c],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %w, %as, %ws : tensor<16x4x32xf4E2M1FN>, tensor<32x4x32xf4E2M1FN>,
                             tensor<16x4xf8E8M0FNU>, tensor<32x4xf8E8M0FNU>) outs(%f : tensor<16x32xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %is: f8E8M0FNU, %js: f8E8M0FNU, %o: f32):
    %l = arith.scaling_extf %i, %is : f4E2M1FN, f8E8M0FNU to f32
    %m = arith.scaling_extf %j, %js : f4E2M1FN, f8E8M0FNU to f32
    %p = arith.mulf %l, %m : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<16x32xf32>
  return %r : tensor<16x32xf32>
}

// CHECK-NOT: func.func private
func.func private @absolute(%x: tensor<16x128xf32>) -> tensor<16x128xf32> {
  %e = tensor.empty() : tensor<16x128xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<16x128xf32>) outs(%e : tensor<16x128xf32>) {
  ^bb0(%i: f32, %o: f32):
    %p = math.absf %i : f32
    linalg.yield %p : f32
  } -> tensor<16x128xf32>
  return %r : tensor<16x128xf32>
}

func.func private @quantise(%x: tensor<16x128xf32>) -> (tensor<16x4x32xf4E2M1FN>, tensor<16x4xf8E8M0FNU>) {
  %v = tensor.expand_shape %x [[0], [1, 2]] output_shape [16, 4, 32] : tensor<16x128xf32> into tensor<16x4x32xf32>
  %zero = arith.constant 0 : i32
  %m0 = tensor.empty() : tensor<16x4xi32>
  %m1 = linalg.fill ins(%zero : i32) outs(%m0 : tensor<16x4xi32>) -> tensor<16x4xi32>
  %max = linalg.generic {indexing_maps = [#block, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%v : tensor<16x4x32xf32>) outs(%m1 : tensor<16x4xi32>) {
  ^bb0(%i: f32, %o: i32):
    %p = math.absf %i : f32
    %b = arith.bitcast %p : f32 to i32
    %n = arith.maxui %b, %o : i32
    linalg.yield %n : i32
  } -> tensor<16x4xi32>
  %s0 = tensor.empty() : tensor<16x4xf8E8M0FNU>
  %scales = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%max : tensor<16x4xi32>) outs(%s0 : tensor<16x4xf8E8M0FNU>) {
  ^bb0(%i: i32, %o: f8E8M0FNU):
    %c23 = arith.constant 23 : i32
    %c2 = arith.constant 2 : i32
    %p = arith.shrui %i, %c23 : i32
    %q = arith.subi %p, %c2 : i32
    %t = arith.trunci %q : i32 to i8
    %u = arith.bitcast %t : i8 to f8E8M0FNU
    linalg.yield %u : f8E8M0FNU
  } -> tensor<16x4xf8E8M0FNU>
  %e0 = tensor.empty() : tensor<16x4x32xf4E2M1FN>
  %elements = linalg.generic {indexing_maps = [#block, #row, #block], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v, %scales : tensor<16x4x32xf32>, tensor<16x4xf8E8M0FNU>) outs(%e0 : tensor<16x4x32xf4E2M1FN>) {
  ^bb0(%i: f32, %s: f8E8M0FNU, %o: f4E2M1FN):
    %q = arith.scaling_truncf %i, %s : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %q : f4E2M1FN
  } -> tensor<16x4x32xf4E2M1FN>
  return %elements, %scales : tensor<16x4x32xf4E2M1FN>, tensor<16x4xf8E8M0FNU>
}

// What calls itself stays.
// CHECK-LABEL: func.func private @recursive(
// CHECK: call @recursive
func.func private @recursive(%x: tensor<4xf32>, %again: i1) -> tensor<4xf32> {
  %r = scf.if %again -> tensor<4xf32> {
    %no = arith.constant false
    %y = func.call @recursive(%x, %no) : (tensor<4xf32>, i1) -> tensor<4xf32>
    scf.yield %y : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
