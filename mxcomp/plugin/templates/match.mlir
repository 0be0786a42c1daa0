// What `mxcomp-compile --emit-plugin` starts from: a transform spec for iree-compile's preprocessing.
// One pair @match, @call is made of these for each distinct scaled matmul of a model.
module attributes {transform.with_named_sequence} {
  transform.named_sequence @match(%root: !transform.any_op {transform.readonly})
      -> (!transform.any_value, !transform.any_value) {
    transform.match.operation_name %root ["linalg.generic"] : !transform.any_op
    %ins, %outs = transform.iree.match.cast_compatible_dag_from_root %root {
      // Stands for the operations that make up the matmul; what they take from outside becomes the block's arguments.
      %root_of_dag = tensor.empty() : tensor<f32>
    } : (!transform.any_op) -> (!transform.any_value, !transform.any_value)
    transform.yield %ins, %outs : !transform.any_value, !transform.any_value
  }

  util.func private @matmul()

  transform.named_sequence @call(%ins: !transform.any_value {transform.readonly},
                                 %outs: !transform.any_value {transform.readonly}) {
    %root = transform.get_defining_op %outs : (!transform.any_value) -> !transform.any_op
    %module = transform.util.get_nearest_symbol_table %root : (!transform.any_op) -> !transform.any_op
    // Once more for each executable that the function dispatches to.
    %function = transform.util.import_symbol @matmul into %module if undefined : (!transform.any_op) -> !transform.any_op
    transform.util.cast_and_call %function(%ins) -> %outs after %root {
      transform.type_conversion.tensor.cast_shape_dynamic_dims
    } : (!transform.any_op, !transform.any_value, !transform.any_value, !transform.any_op) -> !transform.any_op
    transform.yield
  }

  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    %functions = transform.structured.match ops{["util.func"]} in %module : (!transform.any_op) -> !transform.any_op
    transform.foreach %functions : !transform.any_op {
    ^bb0(%function: !transform.any_op):
      transform.foreach_match in %function @match -> @call : (!transform.any_op) -> (!transform.any_op)
    }
    transform.apply_dce to %module : !transform.any_op
    // A call that IREE's stream phase still sees costs a copy of every operand.
    %inlined = transform.apply_registered_pass "inline" to %module : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
