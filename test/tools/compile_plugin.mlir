// The command that comes next is printed, and works.
// RUN: rm -rf %t && mkdir -p %t
// RUN: mxcomp-compile %S/compile.mlir --emit-plugin=%t/plugin -o %t/model.vmfb 2> %t/err
// RUN: filecheck %s < %t/err
// RUN: mxcomp-compile %S/compile.mlir --emit-plugin=%t/quiet -w 2>&1 | filecheck %s --check-prefix=QUIET --allow-empty

// CHECK: {{^}}mxcomp-compile: 1 scaled matmul: 1 by ukernels (mx_f4{{.+}}); 5 dispatches{{$}}
// CHECK-NEXT: {{^}}mxcomp-compile: next: iree-compile @{{.+}}/plugin/mxcomp.rsp {{.+}}compile.mlir -o {{.+}}model.vmfb{{$}}
// QUIET-NOT: {{.}}
