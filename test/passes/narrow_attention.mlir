// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-narrow-attention)' | filecheck %s
// RUN: sed 's/mxcomp.longest_size = 100/mxcomp.longest_size = 65/' %s \
// RUN:   | mxcomp-opt - --pass-pipeline='builtin.module(mxcomp-narrow-attention)' | filecheck %s
// RUN: sed 's/mxcomp.longest_size = 100/mxcomp.longest_size = 3/' %s \
// RUN:   | mxcomp-opt - --pass-pipeline='builtin.module(mxcomp-narrow-attention)' | filecheck %s --check-prefix=ONE
// RUN: sed 's/mxcomp.longest_size = 100/mxcomp.longest_size = 257/' %s \
// RUN:   | mxcomp-opt - --pass-pipeline='builtin.module(mxcomp-narrow-attention)' | filecheck %s --check-prefix=ALL
// RUN: sed 's/mxcomp.longest_size = 100/mxcomp.other = 3/' %s \
// RUN:   | mxcomp-opt - --pass-pipeline='builtin.module(mxcomp-narrow-attention)' | filecheck %s --check-prefix=ALL

#query = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3)>
#key = affine_map<(d0, d1, d2, d3, d4) -> (d0, d4, d3)>
#value = affine_map<(d0, d1, d2, d3, d4) -> (d0, d4, d2)>
#scale = affine_map<(d0, d1, d2, d3, d4) -> ()>
#mask = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4)>
#result = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2)>
#row = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1)>
#qk = #iree_gpu.lowering_config<{lane_basis = [[1, 1, 1, 1, 64], [1, 0, 3, 4]], subgroup_basis = [[1, 1, 1, 1, 8], [0, 1, 2, 4]], thread = [0, 0, 4, 0]}>
#pv = #iree_gpu.lowering_config<{lane_basis = [[1, 1, 1, 1, 64], [1, 0, 3, 4]], subgroup_basis = [[1, 1, 1, 1, 8], [0, 1, 3, 4]], thread = [0, 0, 4, 0]}>
#config = #iree_gpu.lowering_config<{partial_reduction = [0, 0, 0, 0, 512], workgroup = [1, 1, 8, 0, 0]}>
#translation = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<VectorDistribute> workgroup_size = [512, 1, 1] subgroup_size = 64, {iree_codegen.denormal_fp_math_f32 = #iree_codegen.denormal_fp_math<"preserve-sign">}>

module attributes {mxcomp.longest_size = 100} {

// 65 to 128 keys are those of two waves; the rest of the configuration stays. Up to 64 are one wave's.
// CHECK: #translation = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<VectorDistribute> workgroup_size = [128, 1, 1] subgroup_size = 64, {iree_codegen.denormal_fp_math_f32
// CHECK-NEXT: #translation1 = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<VectorDistribute> workgroup_size = [512, 1, 1] subgroup_size = 64, {iree_codegen.denormal_fp_math_f32
// CHECK-LABEL: func.func @dynamic
// CHECK-SAME: translation_info = #translation}
// CHECK: iree_linalg_ext.online_attention
// CHECK-SAME: pv_attrs = {lowering_config = #iree_gpu.lowering_config<{lane_basis = {{\[}}[1, 1, 1, 1, 64], [1, 0, 3, 4]], subgroup_basis = {{\[}}[1, 1, 1, 1, 2], [0, 1, 3, 4]], thread = [0, 0, 4, 0]}>}
// CHECK-SAME: qk_attrs = {lowering_config = #iree_gpu.lowering_config<{lane_basis = {{\[}}[1, 1, 1, 1, 64], [1, 0, 3, 4]], subgroup_basis = {{\[}}[1, 1, 1, 1, 2], [0, 1, 2, 4]], thread = [0, 0, 4, 0]}>}
// CHECK-SAME: partial_reduction = [0, 0, 0, 0, 128], workgroup = [1, 1, 8, 0, 0]

// ONE: #translation = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<VectorDistribute> workgroup_size = [64, 1, 1] subgroup_size = 64, {iree_codegen.denormal_fp_math_f32
// ONE-NEXT: #translation1 = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<VectorDistribute> workgroup_size = [512, 1, 1] subgroup_size = 64, {iree_codegen.denormal_fp_math_f32
// ONE-LABEL: func.func @dynamic
// ONE-SAME: translation_info = #translation}
// ONE: iree_linalg_ext.online_attention
// ONE-SAME: subgroup_basis = {{\[}}[1, 1, 1, 1, 1], [0, 1, 3, 4]]
// ONE-SAME: subgroup_basis = {{\[}}[1, 1, 1, 1, 1], [0, 1, 2, 4]]
// ONE-SAME: partial_reduction = [0, 0, 0, 0, 64]

// More keys need all eight, and so they do where nobody has said how many there can be.
// ALL: #translation = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<VectorDistribute> workgroup_size = [512, 1, 1] subgroup_size = 64, {iree_codegen.denormal_fp_math_f32
// ALL-LABEL: func.func @dynamic
// ALL-SAME: translation_info = #translation}
// ALL: iree_linalg_ext.online_attention
// ALL-SAME: subgroup_basis = {{\[}}[1, 1, 1, 1, 8], [0, 1, 3, 4]]
// ALL-SAME: partial_reduction = [0, 0, 0, 0, 512]
func.func @dynamic(%q: tensor<4x?x16xf32>, %k: tensor<4x?x16xf32>, %v: tensor<4x?x16xf32>, %m: tensor<4x?x?xi8>,
                   %o: tensor<4x?x16xf32>, %max: tensor<4x?xf32>, %sum: tensor<4x?xf32>) -> tensor<4x?x16xf32> attributes {translation_info = #translation} {
  %scale = arith.constant 0.25 : f32
  %r:3 = iree_linalg_ext.online_attention <indexing_maps = [#query, #key, #value, #scale, #mask, #result, #row, #row], decomposition_config = {pv_attrs = {lowering_config = #pv}, qk_attrs = {lowering_config = #qk}}> {lowering_config = #config} ins(%q, %k, %v, %scale, %m : tensor<4x?x16xf32>, tensor<4x?x16xf32>, tensor<4x?x16xf32>, f32, tensor<4x?x?xi8>) outs(%o, %max, %sum : tensor<4x?x16xf32>, tensor<4x?xf32>, tensor<4x?xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x?x16xf32>, tensor<4x?xf32>, tensor<4x?xf32>
  return %r#0 : tensor<4x?x16xf32>
}

// Of a number that it knows IREE knows better.
// CHECK-LABEL: func.func @known_keys
// CHECK-SAME: translation_info = #translation1}
// CHECK: partial_reduction = [0, 0, 0, 0, 512]
// ONE-LABEL: func.func @known_keys
// ONE-SAME: translation_info = #translation1}
func.func @known_keys(%q: tensor<4x?x16xf32>, %k: tensor<4x600x16xf32>, %v: tensor<4x600x16xf32>, %m: tensor<4x?x600xi8>,
                      %o: tensor<4x?x16xf32>, %max: tensor<4x?xf32>, %sum: tensor<4x?xf32>) -> tensor<4x?x16xf32> attributes {translation_info = #translation} {
  %scale = arith.constant 0.25 : f32
  %r:3 = iree_linalg_ext.online_attention <indexing_maps = [#query, #key, #value, #scale, #mask, #result, #row, #row], decomposition_config = {pv_attrs = {lowering_config = #pv}, qk_attrs = {lowering_config = #qk}}> {lowering_config = #config} ins(%q, %k, %v, %scale, %m : tensor<4x?x16xf32>, tensor<4x600x16xf32>, tensor<4x600x16xf32>, f32, tensor<4x?x600xi8>) outs(%o, %max, %sum : tensor<4x?x16xf32>, tensor<4x?xf32>, tensor<4x?xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x?x16xf32>, tensor<4x?xf32>, tensor<4x?xf32>
  return %r#0 : tensor<4x?x16xf32>
}

// What else is configured for so many threads counts on them.
// CHECK-LABEL: func.func @another_operation
// CHECK-SAME: translation_info = #translation1}
// ONE-LABEL: func.func @another_operation
// ONE-SAME: translation_info = #translation1}
func.func @another_operation(%q: tensor<4x?x16xf32>, %k: tensor<4x?x16xf32>, %v: tensor<4x?x16xf32>, %m: tensor<4x?x?xi8>,
                             %o: tensor<4x?x16xf32>, %max: tensor<4x?xf32>, %sum: tensor<4x?xf32>) -> tensor<4x?x16xf32> attributes {translation_info = #translation} {
  %scale = arith.constant 0.25 : f32
  %zeros = linalg.fill {lowering_config = #iree_gpu.lowering_config<{thread = [1, 1]}>} ins(%scale : f32) outs(%sum : tensor<4x?xf32>) -> tensor<4x?xf32>
  %r:3 = iree_linalg_ext.online_attention <indexing_maps = [#query, #key, #value, #scale, #mask, #result, #row, #row], decomposition_config = {pv_attrs = {lowering_config = #pv}, qk_attrs = {lowering_config = #qk}}> {lowering_config = #config} ins(%q, %k, %v, %scale, %m : tensor<4x?x16xf32>, tensor<4x?x16xf32>, tensor<4x?x16xf32>, f32, tensor<4x?x?xi8>) outs(%o, %max, %zeros : tensor<4x?x16xf32>, tensor<4x?xf32>, tensor<4x?xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<4x?x16xf32>, tensor<4x?xf32>, tensor<4x?xf32>
  return %r#0 : tensor<4x?x16xf32>
}

}
