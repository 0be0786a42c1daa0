// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-separate-variables)' | filecheck %s

// The first keeps its initial value. What does not change, or begins with what a file has, is left alone.
// CHECK: util.global private mutable @keys = dense<0.000000e+00> : tensor<8x4xf32>
// CHECK: util.global private @table = dense<0.000000e+00> : tensor<8x4xf32>
// CHECK: util.global private mutable @weights = #flow.parameter.named<"model"::"w"> : tensor<8x4xf32>
// CHECK: util.global private mutable @count = 0 : index
util.global private mutable @keys = dense<0.0> : tensor<8x4xf32>
util.global private @table = dense<0.0> : tensor<8x4xf32>
util.global private mutable @weights = #flow.parameter.named<"model"::"w"> : tensor<8x4xf32>
util.global private mutable @count = 0 : index

// CHECK: util.global private mutable @values : tensor<8x4xf32>
// CHECK-NEXT: util.initializer {
// CHECK-NEXT: %[[ZERO:.+]] = arith.constant 0.000000e+00 : f32
// CHECK-NEXT: %[[INTEGER:.+]] = arith.bitcast %[[ZERO]] : f32 to i32
// CHECK-NEXT: %[[HIDDEN:.+]] = util.optimization_barrier %[[INTEGER]] : i32
// CHECK-NEXT: %[[BITS:.+]] = flow.tensor.splat %[[HIDDEN]] : tensor<8x4xi32>
// CHECK-NEXT: %[[BEGIN:.+]] = flow.tensor.bitcast %[[BITS]] : tensor<8x4xi32> -> tensor<8x4xf32>
// CHECK-NEXT: util.global.store %[[BEGIN]], @values : tensor<8x4xf32>
// CHECK-NEXT: util.return
util.global private mutable @values = dense<0.0> : tensor<8x4xf32>

// A value that is not the same everywhere.
// CHECK: util.global private mutable @bytes : tensor<2xi8>
// CHECK-NEXT: util.initializer {
// CHECK-NEXT: %[[WHOLE:.+]] = arith.constant dense<[1, 2]> : tensor<2xi8>
// CHECK: %[[FIRST:.+]] = flow.tensor.load %[[WHOLE]][%{{.+}}] : tensor<2xi8>
// CHECK-NEXT: %[[SAME:.+]] = util.optimization_barrier %[[FIRST]] : i8
// CHECK-NEXT: %[[BEGIN:.+]] = flow.tensor.store %[[SAME]], %[[WHOLE]][%{{.+}}] : tensor<2xi8>
// CHECK-NEXT: util.global.store %[[BEGIN]], @bytes : tensor<2xi8>
util.global private mutable @bytes = dense<[1, 2]> : tensor<2xi8>

// Of several dimensions.
// CHECK: util.global private mutable @rows : tensor<2x2xf16>
// CHECK-NEXT: util.initializer {
// CHECK-NEXT: %[[ROWS:.+]] = arith.constant dense<{{.+}}> : tensor<2x2xf16>
// CHECK-NEXT: %[[LINE:.+]] = flow.tensor.bitcast %[[ROWS]] : tensor<2x2xf16> -> tensor<4xi16>
// CHECK: %[[ONE:.+]] = flow.tensor.load %[[LINE]][%{{.+}}] : tensor<4xi16>
// CHECK-NEXT: %[[HIDDEN:.+]] = util.optimization_barrier %[[ONE]] : i16
// CHECK-NEXT: %[[STORED:.+]] = flow.tensor.store %[[HIDDEN]], %[[LINE]][%{{.+}}] : tensor<4xi16>
// CHECK-NEXT: %[[BEGIN:.+]] = flow.tensor.bitcast %[[STORED]] : tensor<4xi16> -> tensor<2x2xf16>
// CHECK-NEXT: util.global.store %[[BEGIN]], @rows : tensor<2x2xf16>
util.global private mutable @rows = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf16>
