// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-declare-types)' | filecheck %s

module attributes {mxcomp.unsigned_results = {bytes = [1]}} {

// As IREE's importer of PyTorch's programs writes them: an argument that nothing reads stays a view.
// CHECK: util.func public @main$async(
// CHECK-NOT: iree.reflection
// CHECK-LABEL: util.func public @main(
// CHECK-SAME: iree.reflection = {iree.abi.declaration = "sync func @main(%input0: tensor<?x6xbf16>, %input1: i64, %input2: !hal.buffer_view) -> (%output0: tensor<6xbf16>, %output1: i64)"}
util.func public @main$async(%x: !hal.buffer_view, %n: i64, %unread: !hal.buffer_view, %wait: !hal.fence, %done: !hal.fence)
    -> (!hal.buffer_view, i64) attributes {iree.abi.model = "coarse-fences", iree.abi.stub} {
  %rows = hal.buffer_view.dim<%x : !hal.buffer_view>[0] : index
  %0 = hal.tensor.import wait(%wait) => %x : !hal.buffer_view -> tensor<?x6xbf16>{%rows}
  %at = arith.index_cast %n : i64 to index
  %row = tensor.extract_slice %0[%at, 0] [1, 6] [1, 1] : tensor<?x6xbf16> to tensor<6xbf16>
  %1 = hal.tensor.barrier join(%row : tensor<6xbf16>) => %done : !hal.fence
  %2 = hal.tensor.export %1 : tensor<6xbf16> -> !hal.buffer_view
  util.return %2, %n : !hal.buffer_view, i64
}
util.func public @main(%x: !hal.buffer_view, %n: i64, %unread: !hal.buffer_view) -> (!hal.buffer_view, i64) attributes {iree.abi.stub} {
  %null = util.null : !hal.fence
  %r:2 = util.call @main$async(%x, %n, %unread, %null, %null) : (!hal.buffer_view, i64, !hal.buffer_view, !hal.fence, !hal.fence) -> (!hal.buffer_view, i64)
  util.return %r#0, %r#1 : !hal.buffer_view, i64
}

// What has a declaration, and what IREE will write one for.
// CHECK-LABEL: util.func public @declared(
// CHECK-SAME: iree.reflection = {iree.abi.declaration = "its own"}
util.func public @declared() attributes {iree.abi.stub, iree.reflection = {iree.abi.declaration = "its own"}} {
  util.return
}
// CHECK-LABEL: util.func public @of_tensors(
// CHECK-NOT: iree.reflection
// CHECK: util.return
util.func public @of_tensors(%x: tensor<4xf32>) -> tensor<4xf32> {
  util.return %x : tensor<4xf32>
}

// One result of two is unsigned.
// CHECK-LABEL: util.func public @bytes$async(
// CHECK: hal.tensor.export %{{.+}} : tensor<?xi8>{
// CHECK: hal.tensor.export %{{.+}} : tensor<?xui8> as tensor<?xi8>{
// CHECK-LABEL: util.func public @bytes(
// CHECK-SAME: -> (%output0: tensor<?xi8>, %output1: tensor<?xui8>)"
util.func public @bytes$async(%x: !hal.buffer_view) -> (!hal.buffer_view, !hal.buffer_view) attributes {iree.abi.model = "coarse-fences", iree.abi.stub} {
  %rows = hal.buffer_view.dim<%x : !hal.buffer_view>[0] : index
  %0 = hal.tensor.import %x : !hal.buffer_view -> tensor<?xi8>{%rows}
  %1 = hal.tensor.export %0 : tensor<?xi8>{%rows} -> !hal.buffer_view
  %2 = hal.tensor.export %0 : tensor<?xi8>{%rows} -> !hal.buffer_view
  util.return %1, %2 : !hal.buffer_view, !hal.buffer_view
}
util.func public @bytes(%x: !hal.buffer_view) -> (!hal.buffer_view, !hal.buffer_view) attributes {iree.abi.stub} {
  %r:2 = util.call @bytes$async(%x) : (!hal.buffer_view) -> (!hal.buffer_view, !hal.buffer_view)
  util.return %r#0, %r#1 : !hal.buffer_view, !hal.buffer_view
}

}
