// RUN: mxcomp-bench 1x4096x7168 4096x4096x4096 --json %t.json | filecheck %s
// RUN: filecheck %s --input-file %t.json --check-prefix=JSON
// RUN: mxcomp-bench --rows %S/inputs/bench.csv --types f8E4M3FN f4E2M1FN --result=f32 2>&1 | filecheck %s --check-prefix=ROWS
// RUN: not mxcomp-bench 2>&1 | filecheck %s --check-prefix=NOTHING
// RUN: not mxcomp-bench 64x0x32 2>&1 | filecheck %s --check-prefix=SHAPE
// RUN: not mxcomp-bench 64x64x33 2>&1 | filecheck %s --check-prefix=K
// RUN: not mxcomp-bench --rows %t.no_such 2>&1 | filecheck %s --check-prefix=NO-FILE
// RUN: echo '{}' > %t.other.json && not mxcomp-bench 64x64x32 --json %t.other.json 2>&1 | filecheck %s --check-prefix=OTHER
// RUN: not mxcomp-bench 64x64x64 --json %t.json/x 2>&1 | filecheck %s --check-prefix=UNWRITABLE

// Modelled times of the fastest ukernel.

// CHECK: modelled µs on MI355X
// CHECK: 1×4096×7168 {{.*}}mx_f4E2M1FN_f4E2M1FN_f32_m16_n16_k512
// CHECK: 4096×4096×4096 {{.*}}mx_f4E2M1FN_f4E2M1FN_f32_m256_n256_k512

// JSON: "m": 1,
// JSON-NEXT: "n": 4096,
// JSON-NEXT: "k": 7168,
// JSON-NEXT: "tile_m": 0,
// JSON-NEXT: "tile_n": 0,
// JSON-NEXT: "kernel": "mx_f4E2M1FN_f4E2M1FN_f32_m16_n16_k512_max_m2",
// JSON-NEXT: "ours_us": {{[0-9.]+}},
// JSON-NEXT: "low": {{[0-9.]+}},
// JSON-NEXT: "high": {{[0-9.]+}},
// JSON-NEXT: "bound": "{{.+}}",
// JSON-NEXT: "peer_us": null

// ROWS: bench.csv:3: 64,x,64,32,128: expected whole numbers m,n,k,tile_m,tile_n: left out
// ROWS: 64×2048×4096 {{.*}}mx_f8E4M3FN_f4E2M1FN_f32

// NOTHING: mxcomp-bench: error: nothing to time: expected MxNxK or --rows=FILE.csv
// SHAPE: mxcomp-bench: error: 64x0x32: expected sizes as MxNxK
// K: mxcomp-bench: error: 64x64x33: no ukernel with known times fits: expected K to be a multiple of 32
// NO-FILE: mxcomp-bench: error: {{.*}}no_such: cannot be read
// OTHER: mxcomp-bench: error: {{.*}}other.json: no list of mxcomp-bench: {{.*}}: remove it, or write elsewhere
// UNWRITABLE: mxcomp-bench: error: {{.*}}
