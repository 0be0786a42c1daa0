// Response files, as LLVM reads them: quotes, backslashes, files that name files.

// RUN: mkdir -p "%t folder"
// RUN: echo '--compile-to=flow' > "%t folder/inner.rsp"
// RUN: echo '--data-tiling=off  "--ukernels=none"' > %t.rsp
// RUN: echo '-o "%t folder/a \"quoted\" name.mlir"' >> %t.rsp
// RUN: echo '@'"'"'%t folder/inner.rsp'"'"'' >> %t.rsp
// RUN: mxcomp-compile @%t.rsp %s
// RUN: filecheck %s < '%t folder/a "quoted" name.mlir'
// CHECK: flow.executable
// CHECK: util.func public @model

// RUN: not mxcomp-compile %s @%t.absent 2>&1 | filecheck %s --check-prefix=ABSENT
// ABSENT: {{^}}mxcomp-compile: error: cannot read response file @{{.+}}.absent: No such file or directory
// RUN: echo '@%t.loop' > %t.loop
// RUN: not mxcomp-compile %s @%t.loop 2>&1 | filecheck %s --check-prefix=LOOP
// LOOP: {{^}}mxcomp-compile: error: response file {{.+}}.loop names itself

util.func public @model(%a: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %y = math.exp %a : tensor<64x128xf32>
  util.return %y : tensor<64x128xf32>
}
