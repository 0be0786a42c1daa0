// Workgroups are counted by another operand where a workload has one twice. deduplicateWorkloads (FoldUniformOperands)
// gives no new ordinal to a workload that it drops (since iree-org/iree#22187: newOrdinals has no entry for it), so
// workload.ordinal is 0 where it was that of the second %n: %k workgroups are launched for each row where there are %n
// columns. Here ordinals 1 and 2 are both %n: 1 is expected of both at executable-sources, and 0 is found for the
// second. Nor does workgroup_count_from_slice lose its operand, so that numbers of workloads behind a dropped one refer
// to what stands in front of them. What a kernel stores is right, as its workgroups loop over tiles; it is slow where
// they are too few, as here with %k = 1.
//
//     iree-compile deduplicate_workloads.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 --compile-to=executable-sources
//
// stock: omits at executable-sources: workload\.ordinal \S+, 1 (?s:.+)workload\.ordinal \S+, 1 

#mn = affine_map<(m, n) -> (m, n)>
flow.executable private @ex {
  flow.executable.export public @add workgroups(%0: index, %1: index, %2: index) -> (index, index, index) {
    %x, %y, %z = iree_tensor_ext.dispatch.workgroup_count_from_slice(%0, %1, %2)
    flow.return %x, %y, %z : index, index, index
  }
  builtin.module {
    func.func @add(%l: index, %i: index, %j: index, %xt: !iree_tensor_ext.dispatch.tensor<readonly:tensor<?x?xf32>>, 
        %yt: !iree_tensor_ext.dispatch.tensor<readonly:tensor<?xf32>>,
       %zt: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<?x?xf32>>) {
      %k = iree_tensor_ext.dispatch.workload.ordinal %l, 0 : index
      %m = iree_tensor_ext.dispatch.workload.ordinal %i, 1 : index
      %n = iree_tensor_ext.dispatch.workload.ordinal %j, 2 : index
      %xs = flow.dispatch.tie_shape %xt : !iree_tensor_ext.dispatch.tensor<readonly:tensor<?x?xf32>>{%m, %n}
      %ys = flow.dispatch.tie_shape %yt : !iree_tensor_ext.dispatch.tensor<readonly:tensor<?xf32>>{%k}
      %zs = flow.dispatch.tie_shape %zt : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<?x?xf32>>{%m, %n}
      %x = iree_tensor_ext.dispatch.tensor.load %xs, offsets = [0, 0], sizes = [%m, %n], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<?x?xf32>>{%m, %n} -> tensor<?x?xf32>
      %y = iree_tensor_ext.dispatch.tensor.load %ys, offsets = [0], sizes = [%k], strides = [1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<?xf32>>{%k} -> tensor<?xf32>
      %e = tensor.empty(%m, %n) : tensor<?x?xf32>
      %c0 = arith.constant 0 : index
      %first = tensor.extract %y[%c0] : tensor<?xf32>
      %r = linalg.generic {indexing_maps = [#mn, #mn], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
      ^bb0(%a: f32, %o: f32):
        %0 = arith.addf %a, %first : f32
        linalg.yield %0 : f32
      } -> tensor<?x?xf32>
      iree_tensor_ext.dispatch.tensor.store %r, %zs, offsets = [0, 0], sizes = [%m, %n], strides = [1, 1] : tensor<?x?xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<?x?xf32>>{%m, %n}
      return
    }
  }
}

func.func @main(%y: tensor<?xf32>, %x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %k = tensor.dim %y, %c0 : tensor<?xf32>
  %n = tensor.dim %x, %c0 : tensor<?x?xf32>
  %0 = flow.dispatch @ex::@add[%k, %n, %n](%k, %n, %n, %x, %y) : (index, index, index, tensor<?x?xf32>{%n, %n}, tensor<?xf32>{%k}) -> tensor<?x?xf32>{%n, %n}
  return %0 : tensor<?x?xf32>
}
