// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-join-norms)' | filecheck %s
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-join-norms{reference=true})' | filecheck %s --check-prefix=OFF

#all = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#kept = affine_map<(d0, d1) -> (d0, 0)>
#column = affine_map<(d0, d1) -> (d1)>
#one = affine_map<(d0) -> (d0)>

// RMSNorm: all of it, and the tensors that it starts from, in one region; weights come from outside.

// CHECK-LABEL: util.func public @rms(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<3x64xbf16>, %[[W:[a-z0-9]+]]: tensor<64xbf16>
// CHECK-NOT: linalg.generic
// CHECK: %[[Y:.+]] = flow.dispatch.region -> (tensor<3x64xbf16>)
// CHECK: %[[WIDE:.+]] = linalg.generic {{.*}} ins(%[[X]] : tensor<3x64xbf16>)
// CHECK: %[[ZERO:.+]] = linalg.fill
// CHECK: %[[SUM:.+]] = linalg.generic {{.*}} ins(%[[WIDE]] : tensor<3x64xf32>) outs(%[[ZERO]] : tensor<3xf32>)
// CHECK: %[[ROOT:.+]] = linalg.generic {{.*}} ins(%[[SUM]] : tensor<3xf32>)
// CHECK: %[[NORM:.+]] = linalg.generic {{.*}} ins(%[[WIDE]], %[[ROOT]], %[[W]] :
// CHECK: flow.return %[[NORM]]
// CHECK: }
// CHECK-NOT: linalg.generic
// CHECK: util.return %[[Y]]
// OFF-LABEL: util.func public @rms(
// OFF-NOT: flow.dispatch.region
util.func public @rms(%x: tensor<3x64xbf16>, %w: tensor<64xbf16>) -> tensor<3x64xbf16> {
  %zero = arith.constant 0.0 : f32
  %none = tensor.empty() : tensor<3x64xf32>
  %wide = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<3x64xbf16>) outs(%none : tensor<3x64xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %0 = arith.extf %in : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<3x64xf32>
  %sums = tensor.empty() : tensor<3xf32>
  %start = linalg.fill ins(%zero : f32) outs(%sums : tensor<3xf32>) -> tensor<3xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%wide : tensor<3x64xf32>) outs(%start : tensor<3xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %in : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3xf32>
  %root = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
      ins(%sum : tensor<3xf32>) outs(%sums : tensor<3xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.rsqrt %in : f32
    linalg.yield %0 : f32
  } -> tensor<3xf32>
  %narrow = tensor.empty() : tensor<3x64xbf16>
  %y = linalg.generic {indexing_maps = [#all, #row, #column, #all], iterator_types = ["parallel", "parallel"]}
      ins(%wide, %root, %w : tensor<3x64xf32>, tensor<3xf32>, tensor<64xbf16>) outs(%narrow : tensor<3x64xbf16>) {
  ^bb0(%a: f32, %r: f32, %b: bf16, %out: bf16):
    %0 = arith.mulf %a, %r : f32
    %1 = arith.truncf %0 : f32 to bf16
    %2 = arith.mulf %1, %b : bf16
    linalg.yield %2 : bf16
  } -> tensor<3x64xbf16>
  util.return %y : tensor<3x64xbf16>
}

// LayerNorm has two sums, and views of a number of each row; rows may be any number.

// CHECK-LABEL: util.func public @layer(
// CHECK: %[[Y:.+]] = flow.dispatch.region -> (tensor<?x192xf32>{%{{.+}}})
// CHECK-COUNT-6: linalg.generic
// CHECK: flow.return
// CHECK-NOT: linalg.generic
// CHECK: util.return %[[Y]]
util.func public @layer(%x: tensor<?x192xf32>) -> tensor<?x192xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %rows = tensor.dim %x, %c0 : tensor<?x192xf32>
  %sums = tensor.empty(%rows) : tensor<?x1xf32>
  %start = linalg.fill ins(%zero : f32) outs(%sums : tensor<?x1xf32>) -> tensor<?x1xf32>
  %sum = linalg.generic {indexing_maps = [#all, #kept], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x192xf32>) outs(%start : tensor<?x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<?x1xf32>
  %flat = tensor.collapse_shape %sum [[0, 1]] : tensor<?x1xf32> into tensor<?xf32>
  %none = tensor.empty(%rows) : tensor<?x192xf32>
  %spread = linalg.generic {indexing_maps = [#row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%flat : tensor<?xf32>) outs(%none : tensor<?x192xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<?x192xf32>
  %centred = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %spread : tensor<?x192xf32>, tensor<?x192xf32>) outs(%none : tensor<?x192xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.subf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x192xf32>
  %variance = linalg.generic {indexing_maps = [#all, #kept], iterator_types = ["parallel", "reduction"]}
      ins(%centred : tensor<?x192xf32>) outs(%start : tensor<?x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %in : f32
    %1 = arith.addf %0, %out : f32
    linalg.yield %1 : f32
  } -> tensor<?x1xf32>
  %root = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%variance : tensor<?x1xf32>) outs(%sums : tensor<?x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.sqrt %in : f32
    linalg.yield %0 : f32
  } -> tensor<?x1xf32>
  %y = linalg.generic {indexing_maps = [#all, #kept, #all], iterator_types = ["parallel", "parallel"]}
      ins(%centred, %root : tensor<?x192xf32>, tensor<?x1xf32>) outs(%none : tensor<?x192xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<?x192xf32>
  util.return %y : tensor<?x192xf32>
}

// The sum is read by something else, too; columns are summed; no root is taken; a block is no row.

// CHECK-LABEL: util.func public @read_elsewhere(
// CHECK-NOT: flow.dispatch.region
util.func public @read_elsewhere(%x: tensor<3x64xf32>) -> (tensor<3x64xf32>, tensor<3xf32>) {
  %zero = arith.constant 0.0 : f32
  %sums = tensor.empty() : tensor<3xf32>
  %start = linalg.fill ins(%zero : f32) outs(%sums : tensor<3xf32>) -> tensor<3xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<3x64xf32>) outs(%start : tensor<3xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  } -> tensor<3xf32>
  %none = tensor.empty() : tensor<3x64xf32>
  %y = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum : tensor<3x64xf32>, tensor<3xf32>) outs(%none : tensor<3x64xf32>) {
  ^bb0(%a: f32, %r: f32, %out: f32):
    %0 = math.sqrt %r : f32
    %1 = arith.divf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x64xf32>
  util.return %y, %sum : tensor<3x64xf32>, tensor<3xf32>
}

// CHECK-LABEL: util.func public @columns(
// CHECK-NOT: flow.dispatch.region
util.func public @columns(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %sums = tensor.empty() : tensor<64xf32>
  %start = linalg.fill ins(%zero : f32) outs(%sums : tensor<64xf32>) -> tensor<64xf32>
  %sum = linalg.generic {indexing_maps = [#all, #column], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<64x64xf32>) outs(%start : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %none = tensor.empty() : tensor<64x64xf32>
  %y = linalg.generic {indexing_maps = [#all, #column, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum : tensor<64x64xf32>, tensor<64xf32>) outs(%none : tensor<64x64xf32>) {
  ^bb0(%a: f32, %r: f32, %out: f32):
    %0 = math.sqrt %r : f32
    %1 = arith.divf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<64x64xf32>
  util.return %y : tensor<64x64xf32>
}

// CHECK-LABEL: util.func public @mean(
// CHECK-NOT: flow.dispatch.region
util.func public @mean(%x: tensor<3x64xf32>) -> tensor<3x64xf32> {
  %zero = arith.constant 0.0 : f32
  %sums = tensor.empty() : tensor<3xf32>
  %start = linalg.fill ins(%zero : f32) outs(%sums : tensor<3xf32>) -> tensor<3xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<3x64xf32>) outs(%start : tensor<3xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  } -> tensor<3xf32>
  %none = tensor.empty() : tensor<3x64xf32>
  %y = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum : tensor<3x64xf32>, tensor<3xf32>) outs(%none : tensor<3x64xf32>) {
  ^bb0(%a: f32, %r: f32, %out: f32):
    %0 = arith.divf %a, %r : f32
    linalg.yield %0 : f32
  } -> tensor<3x64xf32>
  util.return %y : tensor<3x64xf32>
}

// CHECK-LABEL: util.func public @block(
// CHECK-NOT: flow.dispatch.region
util.func public @block(%x: tensor<3x32xf32>) -> tensor<3x32xf32> {
  %zero = arith.constant 0.0 : f32
  %sums = tensor.empty() : tensor<3xf32>
  %start = linalg.fill ins(%zero : f32) outs(%sums : tensor<3xf32>) -> tensor<3xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<3x32xf32>) outs(%start : tensor<3xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %out, %in : f32
    linalg.yield %0 : f32
  } -> tensor<3xf32>
  %none = tensor.empty() : tensor<3x32xf32>
  %y = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum : tensor<3x32xf32>, tensor<3xf32>) outs(%none : tensor<3x32xf32>) {
  ^bb0(%a: f32, %r: f32, %out: f32):
    %0 = math.sqrt %r : f32
    %1 = arith.divf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x32xf32>
  util.return %y : tensor<3x32xf32>
}

// Heads that are columns of a matrix of several rows are read from it; those of a single row are so anyway, as is what
// has no whole heads in front.

#heads = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#head = affine_map<(d0, d1, d2) -> (d0, d1)>

// CHECK-LABEL: util.func public @heads(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<3x320xf32>, %[[ODD:[a-z0-9]+]]: tensor<3x300xf32>
// CHECK: %[[ROWS:.+]] = tensor.expand_shape %[[X]] {{\[}}[0], [1, 2]] output_shape [3, 5, 64]
// CHECK: flow.dispatch.region -> (tensor<3x2x64xf32>)
// CHECK: %[[PART:.+]] = tensor.extract_slice %[[ROWS]][0, 3, 0] [3, 2, 64] [1, 1, 1]
// CHECK: linalg.generic {{.*}} ins(%[[PART]] : tensor<3x2x64xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[PART]], %{{.+}} : tensor<3x2x64xf32>, tensor<3x2xf32>)
// CHECK: %[[CUT:.+]] = tensor.extract_slice %[[ODD]]
// CHECK: %[[APART:.+]] = tensor.expand_shape %[[CUT]]
// CHECK: flow.dispatch.region -> (tensor<3x2x64xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[APART]] : tensor<3x2x64xf32>)
util.func public @heads(%x: tensor<3x320xf32>, %odd: tensor<3x300xf32>) -> (tensor<3x2x64xf32>, tensor<3x2x64xf32>) {
  %zero = arith.constant 0.0 : f32
  %none = tensor.empty() : tensor<3x2x64xf32>
  %sums = tensor.empty() : tensor<3x2xf32>
  %start = linalg.fill ins(%zero : f32) outs(%sums : tensor<3x2xf32>) -> tensor<3x2xf32>
  %cut0 = tensor.extract_slice %x[0, 192] [3, 128] [1, 1] : tensor<3x320xf32> to tensor<3x128xf32>
  %heads0 = tensor.expand_shape %cut0 [[0], [1, 2]] output_shape [3, 2, 64] : tensor<3x128xf32> into tensor<3x2x64xf32>
  %sum0 = linalg.generic {indexing_maps = [#heads, #head], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%heads0 : tensor<3x2x64xf32>) outs(%start : tensor<3x2xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %in : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x2xf32>
  %norm0 = linalg.generic {indexing_maps = [#heads, #head, #heads], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%heads0, %sum0 : tensor<3x2x64xf32>, tensor<3x2xf32>) outs(%none : tensor<3x2x64xf32>) {
  ^bb0(%in: f32, %sum: f32, %out: f32):
    %0 = math.rsqrt %sum : f32
    %1 = arith.mulf %in, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x2x64xf32>
  %cut1 = tensor.extract_slice %odd[0, 64] [3, 128] [1, 1] : tensor<3x300xf32> to tensor<3x128xf32>
  %heads1 = tensor.expand_shape %cut1 [[0], [1, 2]] output_shape [3, 2, 64] : tensor<3x128xf32> into tensor<3x2x64xf32>
  %sum1 = linalg.generic {indexing_maps = [#heads, #head], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%heads1 : tensor<3x2x64xf32>) outs(%start : tensor<3x2xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %in : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x2xf32>
  %norm1 = linalg.generic {indexing_maps = [#heads, #head, #heads], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%heads1, %sum1 : tensor<3x2x64xf32>, tensor<3x2xf32>) outs(%none : tensor<3x2x64xf32>) {
  ^bb0(%in: f32, %sum: f32, %out: f32):
    %0 = math.rsqrt %sum : f32
    %1 = arith.mulf %in, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x2x64xf32>
  util.return %norm0, %norm1 : tensor<3x2x64xf32>, tensor<3x2x64xf32>
}

// What extends a norm's result for a matmul stays outside: a kernel of few rows takes narrow ones.

// CHECK-LABEL: util.func public @factor(
// CHECK: %[[Y:.+]] = flow.dispatch.region -> (tensor<1x64xbf16>)
// CHECK: flow.return
// CHECK: %[[WIDER:.+]] = linalg.generic {{.*}} ins(%[[Y]] : tensor<1x64xbf16>)
// CHECK: linalg.matmul ins(%[[WIDER]],
util.func public @factor(%x: tensor<1x64xf32>, %w: tensor<64x32xf32>, %zeros: tensor<1x32xf32>) -> tensor<1x32xf32> {
  %zero = arith.constant 0.0 : f32
  %none = tensor.empty() : tensor<1x64xf32>
  %sums = tensor.empty() : tensor<1xf32>
  %start = linalg.fill ins(%zero : f32) outs(%sums : tensor<1xf32>) -> tensor<1xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<1x64xf32>) outs(%start : tensor<1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.mulf %in, %in : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<1xf32>
  %narrow = tensor.empty() : tensor<1x64xbf16>
  %norm = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum : tensor<1x64xf32>, tensor<1xf32>) outs(%narrow : tensor<1x64xbf16>) {
  ^bb0(%in: f32, %s: f32, %out: bf16):
    %0 = math.rsqrt %s : f32
    %1 = arith.mulf %in, %0 : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<1x64xbf16>
  %wide = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%norm : tensor<1x64xbf16>) outs(%none : tensor<1x64xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %0 = arith.extf %in : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<1x64xf32>
  %y = linalg.matmul ins(%wide, %w : tensor<1x64xf32>, tensor<64x32xf32>) outs(%zeros : tensor<1x32xf32>)
      -> tensor<1x32xf32>
  util.return %y : tensor<1x32xf32>
}
