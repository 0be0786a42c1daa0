// Puts a function into every executable, and marks the kernels.
module attributes {transform.with_named_sequence} {
  util.func private @linked() {
    util.return
  }

  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    %seen = transform.param.constant "at this stage" -> !transform.any_param
    %kernels = transform.structured.match ops{["func.func"]} in %module : (!transform.any_op) -> !transform.any_op
    transform.foreach %kernels : !transform.any_op {
    ^bb0(%kernel: !transform.any_op):
      %table = transform.util.get_nearest_symbol_table %kernel : (!transform.any_op) -> !transform.any_op
      %linked = transform.util.import_symbol @linked into %table if undefined : (!transform.any_op) -> !transform.any_op
      transform.annotate %kernel "seen" = %seen : !transform.any_op, !transform.any_param
    }
    transform.yield
  }
}
