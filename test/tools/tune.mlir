// RUN: mxcomp-tune %s 128x256x512 -o %t.csv 2>&1 | filecheck %s --check-prefix=FIRST
// RUN: mxcomp-tune %s 128x256x512 256x256x512 -o %t.csv 2>&1 | filecheck %s --check-prefix=AGAIN
// RUN: filecheck %s --check-prefix=TABLE < %t.csv
// RUN: mxcomp-compile %s --compile-to=input -o %t.mlir --tuned=%t.csv --report=%t.json
// RUN: filecheck %s --check-prefix=REPORT < %t.json
// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-recognise,mxcomp-encode{tuned=%t.csv})' \
// RUN:   | filecheck %s --check-prefix=PASS

// What the table says is what is compiled. A line for another problem, and one that makes no sense, are left out.

// FIRST: mxcomp-tune: 2 tuned, 0 in the table before
// AGAIN: mxcomp-tune: 1 tuned, 2 in the table before
// TABLE: version,arch,lhs,rhs,lhs_scale,rhs_scale,acc,batch,m,n,k,result,kernel,split_k,order,source,us,margin,use
// TABLE-NEXT: ,gfx950,f4E2M1FN,f4E2M1FN,f8E8M0FNU,f8E8M0FNU,f32,,64,128,256,f32,mx_f4E2M1FN_f4E2M1FN_f32_{{.*}},1,,modelled,{{[0-9.]+}},{{[0-9.]+}},1
// TABLE-NEXT: ,128,256,512,bf16,
// TABLE-NEXT: ,256,256,512,bf16,
// REPORT: "ukernel": "mx_f4E2M1FN_f4E2M1FN_f32_
// REPORT: "note": "tuned table line 2: modelled {{[0-9.]+}} \u00b5s; the second best takes {{[0-9.]+}}% longer"

// PASS: mxcomp.scaled_matmul = {{.*}}note = "tuned table line 2: modelled {{.*}}", {{.*}}plan = "data_tiled", ukernel = "mx_f4E2M1FN_

// RUN: sed 's/,1,,modelled/,4,,modelled/' %t.csv > %t.split.csv
// RUN: mxcomp-compile %s --compile-to=input -o %t.mlir --tuned=%t.split.csv 2>&1 | filecheck %s --check-prefix=SPLIT
// SPLIT: warning: {{.*}}split.csv:2: split_k is 4: {{.*}}: the line is left out
// RUN: sed 's/^[0-9.]*,/0.0.1,/' %t.csv > %t.old.csv
// RUN: not mxcomp-tune %s -o %t.old.csv 2>&1 | filecheck %s --check-prefix=KEPT
// KEPT: mxcomp-tune: error: {{.*}}old.csv:2: made by mxcomp 0.0.1, {{.*}}: remove the line, or --force, which drops such lines
// RUN: mxcomp-tune %s -o %t.old.csv --force 2>&1 | filecheck %s --check-prefix=FORCED
// FORCED: mxcomp-tune: 1 tuned, 0 in the table before

// RUN: not mxcomp-compile %s --emit-plugin=%t.plugin --tuned=%t.csv 2>&1 | filecheck %s --check-prefix=PLUGIN
// PLUGIN: mxcomp-compile: error: --tuned={{.*}} and --emit-plugin: {{.*}}: compile in process
// RUN: not mxcomp-compile %s -o %t.vmfb --tuned=%t.no_such 2>&1 | filecheck %s --check-prefix=NO-TABLE
// NO-TABLE: mxcomp-compile: error: tuned table {{.*}}no_such: cannot be read: No such file or directory

// RUN: not mxcomp-tune %S/compile_remarks.mlir 64x64x33 2>&1 | filecheck %s --check-prefix=LEFT
// LEFT: mxcomp-tune: not tuned: {{.*}}compile_remarks.mlir:{{[0-9:]+}}: block size 16: expected a multiple of 32
// LEFT: mxcomp-tune: not tuned: 64 × 64 × 33: no ukernel with known times fits: expected K to be a multiple of 32
// RUN: not mxcomp-tune 64x0x32 2>&1 | filecheck %s --check-prefix=SHAPE
// SHAPE: mxcomp-tune: error: 64x0x32: expected sizes as MxNxK

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>
util.func public @model(%a8: tensor<64x128xi8>, %as8: tensor<64x8xi8>, %b8: tensor<128x128xi8>, %bs8: tensor<128x8xi8>,
                        %x: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %a = iree_tensor_ext.bitcast %a8 : tensor<64x128xi8> -> tensor<64x8x32xf4E2M1FN>
  %as = iree_tensor_ext.bitcast %as8 : tensor<64x8xi8> -> tensor<64x8xf8E8M0FNU>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>
  %bs = iree_tensor_ext.bitcast %bs8 : tensor<128x8xi8> -> tensor<128x8xf8E8M0FNU>
  %zero = arith.constant dense<0.0> : tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>, tensor<64x8xf8E8M0FNU>,
                             tensor<128x8xf8E8M0FNU>)
      outs(%zero : tensor<64x128xf32>) {
  ^bb0(%i: f4E2M1FN, %j: f4E2M1FN, %is: f8E8M0FNU, %js: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %i, %is : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %j, %js : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  %y = math.exp %x : tensor<64x128xf32>
  %z = arith.mulf %r, %y : tensor<64x128xf32>
  util.return %z : tensor<64x128xf32>
}
