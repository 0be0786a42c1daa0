// Flags of iree-compile's main program: what it writes with them we write; what has no meaning here is refused.

// DEFINE: %{stock} = iree-compile %s --iree-hal-target-device=hip --iree-rocm-target=gfx950

// RUN: mxcomp-compile %s --output-format=vm-bytecode --compile-mode=std --compile-from=start -o %t.vmfb
// RUN: %{stock} -o %t.stock.vmfb
// RUN: cmp %t.vmfb %t.stock.vmfb
// RUN: mxcomp-compile %s -output-format vm-c -o %t.c
// RUN: %{stock} --output-format=vm-c -o %t.stock.c
// RUN: cmp %t.c %t.stock.c
// RUN: mxcomp-compile %s --output-format=vm-asm | filecheck %s --check-prefix=ASM
// ASM: vm.module public @module
// RUN: not mxcomp-compile %s --output-format=elf 2>&1 | filecheck %s --check-prefix=FORMAT
// FORMAT: {{^}}mxcomp-compile: error: --output-format=elf: expected one of vm-bytecode, vm-asm, vm-c

// MLIR's bytecode, which a compilation goes on from.
// RUN: mxcomp-compile %s --compile-to=input --emit-mlir-bytecode -o %t.mlirbc
// RUN: %python -c "import sys; assert open(sys.argv[1], 'rb').read(4) == b'ML\xefR'" %t.mlirbc
// RUN: mxcomp-compile %t.mlirbc --compile-from=input --compile-to=input | filecheck %s --check-prefix=RESUMED
// RESUMED: util.func public @model
// RUN: mxcomp-compile %s --compile-to=input --emit-mlir-bytecode --emit-mlir-bytecode-version=3 -o %t.3.mlirbc
// RUN: not cmp %t.mlirbc %t.3.mlirbc
// RUN: not mxcomp-compile %s --emit-mlir-bytecode-version=new 2>&1 | filecheck %s --check-prefix=VERSION
// VERSION: {{^}}mxcomp-compile: error: --emit-mlir-bytecode-version=new: expected an integer
// RUN: not mxcomp-compile %s --compile-to 2>&1 | filecheck %s --check-prefix=VALUE
// VALUE: --compile-to: expected one argument

// Phase input is not run again, what comes at its end is.
// RUN: iree-compile %S/compile.mlir --iree-hal-target-device=hip --compile-to=input -o %t.input.mlir
// RUN: mxcomp-compile %t.input.mlir --compile-from=input --report=- -o %t.resumed | filecheck %s --check-prefix=REPORT
// REPORT: "ukernel": "mx_
// RUN: not mxcomp-compile %t.input.mlir --compile-from=input --compile-to=start 2>&1 | filecheck %s --check-prefix=BACKWARDS
// BACKWARDS: {{^}}mxcomp-compile: error: --compile-to=start: expected input or later, as --compile-from says

// What we leave to iree-compile, it takes: the ukernel is in what we write.
// RUN: not mxcomp-compile %s --compile-from=executable-sources 2>&1 | filecheck %s --check-prefix=FROM
// FROM: {{^}}mxcomp-compile: error: --compile-from=executable-sources: expected start or input, since scaled matmuls are recognised after phase input: mxcomp-compile --compile-to=executable-sources writes what iree-compile --compile-from=executable-sources takes
// RUN: mxcomp-compile %S/compile.mlir --compile-to=executable-sources -o %t.sources.mlir
// RUN: iree-compile %t.sources.mlir --compile-from=executable-sources --compile-to=executable-configurations \
// RUN:   | filecheck %s --check-prefix=LATER
// LATER: mx_

// RUN: not mxcomp-compile %s --compile-mode=hal-executable 2>&1 | filecheck %s --check-prefix=MODE
// MODE: {{^}}mxcomp-compile: error: --compile-mode=hal-executable: expected std, {{.+}}: iree-compile --compile-mode=hal-executable does the rest
// RUN: not mxcomp-compile %s --compile-mode=fast 2>&1 | filecheck %s --check-prefix=UNKNOWN
// UNKNOWN: {{^}}mxcomp-compile: error: --compile-mode=fast: expected one of std, vm, hal-executable, precompile

// Remarks of IREE's passes.
// RUN: mxcomp-compile %S/inputs/half.mlir --remarks-filter=.* --remarks-output-file=%t.yaml -o %t.vmfb
// RUN: iree-compile %S/inputs/half.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 \
// RUN:   --remarks-filter=.* --remarks-output-file=%t.stock.yaml -o %t.stock.vmfb
// RUN: cmp %t.yaml %t.stock.yaml
// RUN: filecheck %s --check-prefix=REMARKS --input-file=%t.yaml
// REMARKS: Name: {{ +}}SharedMemoryUsage
// RUN: not mxcomp-compile %s --remarks-filter=.* --remarks-output-file=%t.absent/r.yaml 2>&1 | filecheck %s --check-prefix=NOWHERE
// NOWHERE: {{^}}mxcomp-compile: error: --remarks-output-file={{.+}}r.yaml: {{.*}}cannot write
// RUN: not mxcomp-compile %s --split-input-file --output-format=vm-asm --remarks-filter=.* 2>&1 | filecheck %s --check-prefix=PIECES
// PIECES: {{^}}mxcomp-compile: error: --split-input-file and --remarks-filter: a file of remarks is of one module: split the file

// RUN: mxcomp-compile %s --dump-compilation-phases-to=%t.phases --verify=false -o %t.vmfb
// RUN: ls %t.phases | filecheck %s --check-prefix=PHASES
// PHASES: compile_driver.1.input.mlir
// RUN: not mxcomp-compile %s --verify=perhaps 2>&1 | filecheck %s --check-prefix=BOOLEAN
// BOOLEAN: {{^}}mxcomp-compile: error: --verify=perhaps: expected true or false
// RUN: mxcomp-compile --iree-list-plugins | filecheck %s --check-prefix=PLUGINS
// PLUGINS: Loaded plugins:
// RUN: mxcomp-compile --iree-hal-list-target-backends | filecheck %s --check-prefix=BACKENDS
// BACKENDS: rocm

util.func public @model(%a: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %y = math.exp %a : tensor<64x128xf32>
  util.return %y : tensor<64x128xf32>
}
