// Results that .npy has no type for: their codes, in their shape.

// RUN: iree-compile %s --iree-hal-target-device=local --iree-hal-local-target-device-backends=llvm-cpu \
// RUN:   --iree-llvmcpu-target-cpu=host -o %t.vmfb
// DEFINE: %{run} = mxcomp-run --device=cpu %t.vmfb --input=2x3xbf16=1.5 --input=5xi8=56
// DEFINE: %{show} = %python -c "import sys, numpy, ml_dtypes; a = numpy.load(sys.argv[1]); print(a.dtype, a.shape, a.view(sys.argv[2]).tolist())"

// RUN: %{run} --function=model --output=@%t.0.npy --output=@%t.1.npy --output=@%t.2.npy --output=@%t.3.npy
// RUN: %{show} %t.0.npy bfloat16 | filecheck %s --check-prefix=STATIC
// STATIC: uint16 (2, 3) {{.*}}3.0, 3.0, 3.0], [3.0, 3.0, 3.0
// RUN: %{show} %t.1.npy bfloat16 | filecheck %s --check-prefix=DYNAMIC
// DYNAMIC: uint16 (3, 2) {{.*}}3.0, 3.0], [3.0, 3.0], [3.0, 3.0
// RUN: %{show} %t.2.npy float32 | filecheck %s --check-prefix=KNOWN
// KNOWN: float32 (2, 3)
// RUN: %{show} %t.3.npy float8_e4m3fn | filecheck %s --check-prefix=FP8
// FP8: uint8 (5,) [1.0, 1.0, 1.0, 1.0, 1.0]

// The only function needs no name; numbers, beside them, as ever.
// RUN: %{run} --output=@%t.only.npy --output= --output=- --output= | filecheck %s --check-prefix=ONLY
// ONLY: 2x3xf32=[3 3 3][3 3 3]
// RUN: cmp %t.0.npy %t.only.npy

// What can be known is said before anything runs.
// RUN: not %{run} --output= --output=@%t.absent/y.npy --output= --output= 2>&1 | filecheck %s --check-prefix=ABSENT
// ABSENT-NOT: EXEC
// ABSENT: {{^}}mxcomp-run: error: --output=@{{.+}}y.npy: cannot write {{.+}}y.npy: No such file or directory
// RUN: not %{run} --output=f4E2M1FN@%S --output= --output= --output= 2>&1 | filecheck %s --check-prefix=DIRECTORY
// DIRECTORY: {{^}}mxcomp-run: error: --output=f4E2M1FN@{{.+}}: cannot write {{.+}}: Is a directory
// RUN: not %{run} --output=+%t.0.npy --output= --output= --output= 2>&1 | filecheck %s --check-prefix=APPEND
// APPEND-NOT: EXEC
// APPEND: {{^}}mxcomp-run: error: --output=+{{.+}}: result 0 is tensor<2x3xbf16>: expected --output=@{{.+}}.0.npy, a file of its own
// RUN: iree-compile %S/inputs/two_dynamic_sizes.mlir --iree-hal-target-device=local \
// RUN:   --iree-hal-local-target-device-backends=llvm-cpu --iree-llvmcpu-target-cpu=host -o %t.two.vmfb
// DEFINE: %{two} = mxcomp-run --device=cpu %t.two.vmfb --input=2x3xbf16=1.5
// RUN: not %{two} --output=@%t.two.npy 2>&1 | filecheck %s --check-prefix=TWO
// TWO-NOT: EXEC
// TWO: {{^}}mxcomp-run: error: {{.+}}: result 0 is tensor<?x?xbf16>, whose bytes do not tell its shape: expected a file that does not end in .npy, which gets the bytes
// RUN: %{two} --output=@%t.two.bin
// RUN: %python -c "import sys, os; assert os.path.getsize(sys.argv[1]) == 12" %t.two.bin

// What iree-run-module says of other mistakes stays.
// RUN: not mxcomp-run --device=cpu %t.vmfb --function=other --output=@%t.0.npy 2>&1 | filecheck %s --check-prefix=FUNCTION
// FUNCTION: NOT_FOUND
// RUN: not mxcomp-run --device=cpu %t.no.vmfb --output=@%t.0.npy 2>&1 | filecheck %s --check-prefix=MODULE
// MODULE: NOT_FOUND; failed to open file

func.func @model(%a: tensor<2x3xbf16>, %b: tensor<5xi8>)
    -> (tensor<2x3xbf16>, tensor<?x2xbf16>, tensor<2x3xf32>, tensor<5xf8E4M3FN>) {
  %0 = arith.addf %a, %a : tensor<2x3xbf16>
  %1 = tensor.collapse_shape %0 [[0, 1]] : tensor<2x3xbf16> into tensor<6xbf16>
  %2 = tensor.expand_shape %1 [[0, 1]] output_shape [3, 2] : tensor<6xbf16> into tensor<3x2xbf16>
  %3 = tensor.cast %2 : tensor<3x2xbf16> to tensor<?x2xbf16>
  %4 = arith.extf %0 : tensor<2x3xbf16> to tensor<2x3xf32>
  %5 = arith.bitcast %b : tensor<5xi8> to tensor<5xf8E4M3FN>
  return %0, %3, %4, %5 : tensor<2x3xbf16>, tensor<?x2xbf16>, tensor<2x3xf32>, tensor<5xf8E4M3FN>
}

// What IREE's runtime says has a first line.
// RUN: not mxcomp-run --device=cpu %t.vmfb --input=5xi8=56 2>&1 | filecheck %s --check-prefix=FEW
// FEW: {{^}}mxcomp-run: error: 1 arguments are given, expected 2
// FEW-NEXT: c/runtime/src/iree/{{.*}}INVALID_ARGUMENT
