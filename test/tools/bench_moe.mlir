// RUN: rm -f %t.json && mxcomp-bench --moe %S/inputs/moe.csv --json %t.json --csv %t.csv --jobs 1 2>&1 | filecheck %s
// RUN: filecheck %s --input-file %t.json --check-prefix=JSON
// RUN: filecheck %s --input-file %t.csv --check-prefix=CSV
// RUN: cp %t.json %t.again.json && sed -i 's/"kernel_gemm1": "mx_[^"]*"/"kernel_gemm1": "kept"/' %t.again.json
// RUN: mxcomp-bench --moe %S/inputs/moe.csv --json %t.again.json --jobs 1 2>&1 && filecheck %s --input-file %t.again.json --check-prefix=AGAIN
// RUN: echo 'tokens,model_dim' > %t.short.csv && not mxcomp-bench --moe %t.short.csv 2>&1 | filecheck %s --check-prefix=COLUMNS
// RUN: head -1 %S/inputs/moe.csv > %t.none.csv && not mxcomp-bench --moe %t.none.csv 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not mxcomp-bench --moe %t.no_such 2>&1 | filecheck %s --check-prefix=NO-FILE
// RUN: not mxcomp-bench --moe %S/inputs/moe.csv 64x64x64 2>&1 | filecheck %s --check-prefix=SUBJECT
// RUN: not mxcomp-bench --moe %S/inputs/moe.csv --aiter . 2>&1 | filecheck %s --check-prefix=AITER
// RUN: not mxcomp-bench --moe %S/inputs/moe.csv --device=hip 2>&1 | filecheck %s --check-prefix=HIP

// Layers of mixtures of experts: a faulty line is named, and others are done.

// CHECK: moe.csv:4: x,1024,512,8,2: expected whole numbers tokens,model_dim,inter_dim,experts,top_k: left out
// CHECK: moe.csv:5: a_type is f16: expected f4E2M1FN, f6E2M3FN, f6E3M2FN, f8E4M3FN, f8E5M2, bf16: left out
// CHECK: moe.csv:6: inter_dim is 500: expected a multiple of 32: left out
// CHECK: moe.csv:7: top_k of 9 with 8 experts: expected 8 at most: left out
// CHECK: moe.csv:8: one,1,,: expected numbers or nothing for us_gemm1,us_gemm2,peer_us_gemm1,peer_us_gemm2: left out
// CHECK: moe.csv:9: sizes of tokens=0,model_dim=1024,inter_dim=512,experts=8,top_k=2: expected 1 and more: left out
// CHECK: modelled µs on MI355X, without routing
// CHECK: plain: 1 layers
// CHECK: small: 2 layers, {{[0-9.]+}} × the speed (geometric mean), at least as fast in {{[0-9]+}}%, {{[0-9.]+}} × at worst, compared with the table's times
// CHECK: small: 1 layers, {{.*}}, compared with a peer's kernels in the same model

// JSON: "model": "small",
// JSON-NEXT: "activation": "silu",
// JSON-NEXT: "tokens": 4,
// JSON: "block_m": 2,
// JSON-NEXT: "blocks": 6,
// JSON-NEXT: "active_experts": 5,
// JSON-NEXT: "kernel_gemm1": "mx_f4E2M1FN_f4E2M1FN_f32_{{.+}}",
// JSON-NEXT: "kernel_gemm2": "mx_fused_swiglu_f4E2M1FN_f4E2M1FN_f32_{{.+}}",
// JSON-NEXT: "ours_us_gemm1": {{[0-9.]+}},
// JSON-NEXT: "ours_us_gemm2": {{[0-9.]+}},
// JSON-NEXT: "low": {{[0-9.]+}},
// JSON-NEXT: "high": {{[0-9.]+}},
// JSON-NEXT: "bound": "{{.+}}",
// JSON: "published_us_gemm1": 10.5,
// JSON-NEXT: "published_us_gemm2": 7.5,
// JSON-NEXT: "published_us": 18.0,
// JSON-NEXT: "peer_us": 16.0
// JSON: "tokens": 64,
// JSON: "published_us": 20.25,
// JSON-NEXT: "peer_us": null
// JSON: "a_type": "bf16",
// JSON: "kernel_gemm1": "mx_bf16_f4E2M1FN_f32_m16_{{.+}}",
// JSON-NEXT: "kernel_gemm2": "mx_bf16_f4E2M1FN_f32_m16_{{.+}}",

// CSV: model,activation,tokens,
// CSV-NEXT: small,silu,4,1024,512,8,2,f4E2M1FN,f4E2M1FN,2,

// What an earlier run has written is not done again.

// AGAIN-COUNT-3: "kernel_gemm1": "kept"

// COLUMNS: mxcomp-bench: error: {{.*}}short.csv:1: no column inter_dim, experts, top_k, a_type, w_type: expected tokens,
// NONE: mxcomp-bench: error: {{.*}}none.csv: no layer to time: expected a line with tokens,
// NO-FILE: mxcomp-bench: error: {{.*}}no_such: cannot be read
// SUBJECT: mxcomp-bench: error: --moe with subjects: expected --json, --csv and --jobs only
// AITER: mxcomp-bench: error: --moe with --aiter: expected --json, --csv and --jobs only
// HIP: mxcomp-bench: error: --moe with --device=hip: grouped matmuls are modelled only, expected --device=sim
