// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-pass-bytes)' | filecheck %s

// CHECK-LABEL: util.func public @loop(
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x24xi8>
// CHECK: %[[R:.+]]:2 = scf.for {{.+}} iter_args(%[[P:.+]] = %{{.+}}, %[[Q:.+]] = %{{.+}}) -> (tensor<?x24xi8>, tensor<?x32xf4E2M1FN>)
// CHECK: scf.yield %{{.+}}, %{{.+}} : tensor<?x24xi8>, tensor<?x32xf4E2M1FN>
// CHECK: iree_tensor_ext.bitcast %[[R]]#0 : tensor<?x24xi8>{%{{.+}}} -> tensor<?x32xf6E2M3FN>
util.func public @loop(%x: tensor<?x24xi8>, %y: tensor<?x32xf4E2M1FN>, %n: index, %rows: index) -> tensor<?x32xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = iree_tensor_ext.bitcast %x : tensor<?x24xi8>{%rows} -> tensor<?x32xf6E2M3FN>{%rows}
  %r:2 = scf.for %s = %c0 to %n step %c1 iter_args(%p = %a, %q = %y) -> (tensor<?x32xf6E2M3FN>, tensor<?x32xf4E2M1FN>) {
    %o = util.optimization_barrier %p : tensor<?x32xf6E2M3FN>
    scf.yield %o, %q : tensor<?x32xf6E2M3FN>, tensor<?x32xf4E2M1FN>
  }
  %e = arith.extf %r#0 : tensor<?x32xf6E2M3FN> to tensor<?x32xf32>
  util.return %e : tensor<?x32xf32>
}

// CHECK-LABEL: util.func private @inside(%{{.+}}: tensor<4x24xi8>) -> tensor<4x24xi8>
// CHECK: cf.cond_br %{{.+}}, ^[[B:.+]](%{{.+}} : tensor<4x24xi8>), ^[[B]](%{{.+}} : tensor<4x24xi8>)
// CHECK: ^[[B]](%{{.+}}: tensor<4x24xi8>)
util.func private @inside(%x: tensor<4x32xf6E3M2FN>) -> tensor<4x32xf6E3M2FN> attributes {inlining_policy = #util.inline.never} {
  %zero = arith.constant dense<0.0> : tensor<4x32xf6E3M2FN>
  %c = util.optimization_barrier %x : tensor<4x32xf6E3M2FN>
  %true = arith.constant true
  cf.cond_br %true, ^bb1(%x : tensor<4x32xf6E3M2FN>), ^bb1(%c : tensor<4x32xf6E3M2FN>)
^bb1(%y: tensor<4x32xf6E3M2FN>):
  util.return %y : tensor<4x32xf6E3M2FN>
}

// CHECK-LABEL: util.func public @call(
// CHECK: util.call @inside(%{{.+}}) : (tensor<4x24xi8>) -> tensor<4x24xi8>
// CHECK: util.call @outside(%{{.+}}) : (tensor<4x32xf6E3M2FN>) -> ()
util.func public @call(%x: tensor<4x24xi8>) {
  %a = iree_tensor_ext.bitcast %x : tensor<4x24xi8> -> tensor<4x32xf6E3M2FN>
  %r = util.call @inside(%a) : (tensor<4x32xf6E3M2FN>) -> tensor<4x32xf6E3M2FN>
  util.call @outside(%r) : (tensor<4x32xf6E3M2FN>) -> ()
  util.return
}
util.func private @outside(%x: tensor<4x32xf6E3M2FN>)
