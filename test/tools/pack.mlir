// RUN: mkdir %t
// RUN: mxcomp-compile %s -o %t/model.vmfb --packed-parameters=%t/manifest.json --report=%t/report.json
// RUN: filecheck %s --check-prefix=MANIFEST < %t/manifest.json
// RUN: filecheck %s --check-prefix=REPORT < %t/report.json
// RUN: %python -c "import numpy; numpy.savez('%t/weights.npz', w=numpy.arange(128 * 128).astype('u1').reshape(128, 128))"
// RUN: mxcomp-pack %t/weights.npz --manifest=%t/manifest.json -o %t/packed.irpa
// RUN: iree-dump-parameters --parameters=%t/packed.irpa | filecheck %s --check-prefix=ARCHIVE

// A matmul that is not on packed operands reads the parameter as it is, and the archive has it so.
// RUN: mxcomp-compile %s -o %t/plain.vmfb --packed-parameters=%t/plain.json --data-tiling=off
// RUN: filecheck %s --check-prefix=PLAIN < %t/plain.json
// RUN: mxcomp-pack %t/weights.npz --manifest=%t/plain.json -o %t/plain.irpa
// RUN: iree-dump-parameters --parameters=%t/plain.irpa | filecheck %s --check-prefix=PLAIN-ARCHIVE

// RUN: mxcomp-pack --version | filecheck %s --check-prefix=VERSION

// MANIFEST: "format": "mxcomp parameters",
// MANIFEST: "scope": "model",
// MANIFEST-NEXT: "key": "w.packed.rhs.16x256.{{[0-9a-f]+}}",
// MANIFEST: "packing": {
// MANIFEST-NEXT: "source": "w",
// MANIFEST: "operand": "rhs",
// MANIFEST-NEXT: "element": "f4E2M1FN",
// MANIFEST-NEXT: "rows": 128,
// MANIFEST-NEXT: "k": 256,
// MANIFEST-NEXT: "batch": [],
// MANIFEST-NEXT: "view": {
// MANIFEST-NEXT: "offset": 0,
// MANIFEST-NEXT: "batch": [],
// MANIFEST-NEXT: "rows": [
// MANIFEST: "layout": {
// MANIFEST-NOT: "source"

// REPORT: "dispatches": [
// REPORT-NEXT: "pack_lhs",
// REPORT-NEXT: "pack_lhs_scale",
// REPORT-NEXT: "pack_rhs_scale",
// REPORT-NEXT: "matmul"
// REPORT: "key": "w.packed.rhs.16x256.

// K is a half unit, and needs no padding: as many bytes.
// ARCHIVE: 16384 | `w.packed.rhs.16x256.{{[0-9a-f]+}}`
// ARCHIVE-NOT: `w`

// PLAIN: "key": "w",
// PLAIN: "packing": null
// PLAIN-ARCHIVE: 16384 | `w`

// VERSION: mxcomp-pack 0.1.0

// What has no meaning.
// RUN: not mxcomp-compile %s --packed-parameters=%t/no.json --emit-plugin=%t/plugin 2>&1 | filecheck %s --check-prefix=PLUGIN
// PLUGIN: {{^}}mxcomp-compile: error: --packed-parameters={{.*}}no.json and --emit-plugin: only a compilation in process

// RUN: not mxcomp-compile %s -o %t/no.json --packed-parameters=%t/no.json 2>&1 | filecheck %s --check-prefix=FILE
// FILE: {{^}}mxcomp-compile: error: --packed-parameters={{.*}}no.json: expected a file of its own for the manifest

// RUN: not mxcomp-compile %s --packed-parameters=%t/no.json --compile-to=input 2>&1 | filecheck %s --check-prefix=PHASE
// PHASE: {{^}}mxcomp-compile: error: --packed-parameters={{.*}}no.json: which parameters are read is known from phase flow on

// RUN: not mxcomp-pack %t/weights.npz --manifest=%t/no.json -o %t/no.irpa 2>&1 | filecheck %s --check-prefix=MISSING
// MISSING: {{^}}mxcomp-pack: error: cannot read {{.*}}no.json: No such file or directory

// RUN: not mxcomp-pack %t/weights.npz --manifest=%t/report.json -o %t/no.irpa 2>&1 | filecheck %s --check-prefix=REPORTED
// REPORTED: {{^}}mxcomp-pack: error: {{.*}}report.json is not a manifest of parameters: mxcomp-compile --packed-parameters=

// RUN: not ls %t/no.json %t/no.irpa %t/plugin 2> %t.err

#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#out = affine_map<(m, n, ko, kb) -> (m, n)>

util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<128x128xi8>

func.func @matmul(%a8: tensor<64x128xi8>, %as8: tensor<64x8xi8>, %bs8: tensor<128x8xi8>) -> tensor<64x128xf32> {
  %b8 = util.global.load @w : tensor<128x128xi8>
  %a = iree_tensor_ext.bitcast %a8 : tensor<64x128xi8> -> tensor<64x8x32xf4E2M1FN>
  %b = iree_tensor_ext.bitcast %b8 : tensor<128x128xi8> -> tensor<128x8x32xf4E2M1FN>
  %as = iree_tensor_ext.bitcast %as8 : tensor<64x8xi8> -> tensor<64x8xf8E8M0FNU>
  %bs = iree_tensor_ext.bitcast %bs8 : tensor<128x8xi8> -> tensor<128x8xf8E8M0FNU>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64x128xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x128xf32>) -> tensor<64x128xf32>
  %r = linalg.generic {indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #out],
                       iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%a, %b, %as, %bs : tensor<64x8x32xf4E2M1FN>, tensor<128x8x32xf4E2M1FN>,
                             tensor<64x8xf8E8M0FNU>, tensor<128x8xf8E8M0FNU>)
      outs(%init : tensor<64x128xf32>) {
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<64x128xf32>
  return %r : tensor<64x128xf32>
}
