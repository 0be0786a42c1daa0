// What `mxcomp-compile --emit-plugin` starts from: a transform spec for the inner module of each executable.
// The operations from `match` on are repeated for each ukernel.
module attributes {transform.with_named_sequence} {
  util.func private @ukernel()

  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    %target = transform.param.constant "executable target with a ukernel provider" -> !transform.any_param
    %users = transform.structured.match attributes{iree_codegen.ukernel = "descriptor"} in %module
        : (!transform.any_op) -> !transform.any_op
    transform.foreach %users : !transform.any_op {
    ^bb0(%user: !transform.any_op):
      %table = transform.util.get_nearest_symbol_table %user : (!transform.any_op) -> !transform.any_op
      %ukernel = transform.util.import_symbol @ukernel into %table if undefined : (!transform.any_op) -> !transform.any_op
      %function = transform.get_parent_op %user <{op_name = "func.func"}> : (!transform.any_op) -> !transform.any_op
      transform.annotate %function "hal.executable.target" = %target : !transform.any_op, !transform.any_param
    }
    transform.yield
  }
}
