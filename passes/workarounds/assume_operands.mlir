// What is assumed of a size is unknown in the dispatch, in functions that branch on data. util.assume.int says that
// there are 1 to 100 rows. The dispatch of a function with straight code is told so, in front of workload.ordinal; that
// of one with a branch on data is not, and kernels that need a bound do not compile. Seen with --compile-to=executable-
// sources.
//
//     iree-compile assume_operands.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 --compile-to=executable-sources
//
// stock: omits at executable-sources: assume\.int[^\n]*\n[^\n]*workload\.ordinal

func.func @main(%x: tensor<?x64xf32>, %flag: tensor<i1>) -> tensor<?x64xf32> {
  %c0 = arith.constant 0 : index
  %d = tensor.dim %x, %c0 : tensor<?x64xf32>
  %m = util.assume.int %d<umin = 1, umax = 100> : index
  %t = flow.tensor.tie_shape %x : tensor<?x64xf32>{%m}
  %first = tensor.extract %flag[] : tensor<i1>
  %r = scf.if %first -> (tensor<?x64xf32>) {
    %y = math.exp %t : tensor<?x64xf32>
    scf.yield %y : tensor<?x64xf32>
  } else {
    scf.yield %x : tensor<?x64xf32>
  }
  return %r : tensor<?x64xf32>
}
