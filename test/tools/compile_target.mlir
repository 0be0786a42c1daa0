// Flags of iree-compile that say what to compile for: those of gfx950 as ever, those of others are refused.

// RUN: mxcomp-compile %s -o %t.vmfb
// RUN: mxcomp-compile %s -o %t.same.vmfb --iree-hal-target-device=hip --iree-rocm-target=gfx950
// RUN: cmp %t.vmfb %t.same.vmfb
// RUN: mxcomp-compile -o %t.same.vmfb %s -iree-rocm-target MI355X
// RUN: mxcomp-compile %s -o %t.same.vmfb --iree-hal-target-backends=rocm
// RUN: cmp %t.vmfb %t.same.vmfb
// RUN: mxcomp-compile %s --iree-hal-target-device=hip[1] --compile-to=executable-sources | filecheck %s --check-prefix=ORDINAL
// ORDINAL: #hal.device.target<"hip", {ordinal = 1 : index}
// RUN: mxcomp-compile %s --iree-hal-target-device=mine=hip --compile-to=executable-sources | filecheck %s --check-prefix=NAMED
// NAMED-NOT: @__device
// NAMED: @mine = #device_target_hip

// RUN: not mxcomp-compile %s --iree-hal-target-device=local -o %t.no 2>&1 | filecheck %s --check-prefix=DEVICE
// RUN: not mxcomp-compile %s --iree-hal-target-device=hip --iree-hal-target-device=local \
// RUN:   --iree-hal-local-target-device-backends=llvm-cpu -o %t.no 2>&1 | filecheck %s --check-prefix=DEVICE
// DEVICE: {{^}}mxcomp-compile: error: --iree-hal-target-device=local: expected hip, since the target is gfx950: leave the flag out, or compile for local with iree-compile
// RUN: not mxcomp-compile %s --iree-hal-target-backends=llvm-cpu -o %t.no 2>&1 | filecheck %s --check-prefix=BACKEND
// BACKEND: {{^}}mxcomp-compile: error: --iree-hal-target-backends=llvm-cpu: expected rocm, since the target is gfx950: leave the flag out, or compile for llvm-cpu with iree-compile
// RUN: not mxcomp-compile %s --iree-rocm-target=gfx942 -o %t.no 2>&1 | filecheck %s --check-prefix=GPU
// RUN: echo '--iree-rocm-target=gfx942' > %t.rsp
// RUN: not mxcomp-compile %s @%t.rsp -o %t.no 2>&1 | filecheck %s --check-prefix=GPU
// GPU: {{^}}mxcomp-compile: error: --iree-rocm-target=gfx942: expected gfx950, since the target is gfx950: leave the flag out, or compile for gfx942 with iree-compile
// RUN: not ls %t.no

util.func public @model(%a: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %y = math.exp %a : tensor<64x128xf32>
  util.return %y : tensor<64x128xf32>
}
