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

// One file within the other, and one that doubles what is read with each.
// RUN: %python %S/inputs/response_files.py %t.deep %t.wide
// RUN: not mxcomp-compile %s @%t.deep0 2>&1 | filecheck %s --check-prefix=DEEP
// DEEP: {{^}}mxcomp-compile: error: response file {{.+}}.deep31 names {{.+}}.deep32: expected at most 32 files within each other
// RUN: not mxcomp-compile %s @%t.wide0 2>&1 | filecheck %s --check-prefix=WIDE
// WIDE: {{^}}mxcomp-compile: error: response file {{.+}}: with it, files have more than 16777216 characters
// RUN: not mxcomp-compile %s @/dev/zero 2>&1 | filecheck %s --check-prefix=ENDLESS
// ENDLESS: {{^}}mxcomp-compile: error: response file /dev/zero: no argument may have a NUL, as this file does

util.func public @model(%a: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %y = math.exp %a : tensor<64x128xf32>
  util.return %y : tensor<64x128xf32>
}
