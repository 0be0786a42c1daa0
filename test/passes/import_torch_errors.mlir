// RUN: mxcomp-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(mxcomp-import-torch)'

func.func @format(%x: !torch.vtensor<[64,256],f32>, %w: !torch.vtensor<[128,128],ui8>, %s: !torch.vtensor<[128,8],ui8>)
    -> !torch.vtensor<[64,128],f32> {
  %fmt = torch.constant.str "int4"
  %mode = torch.constant.str "even"
  // expected-error @+1 {{torch.mxcomp.scaled_linear: weight_format 'int4': expected one of E2M1,}}
  %y = torch.operator "torch.mxcomp.scaled_linear"(%x, %w, %s, %fmt, %fmt, %mode)
      : (!torch.vtensor<[64,256],f32>, !torch.vtensor<[128,128],ui8>, !torch.vtensor<[128,8],ui8>, !torch.str, !torch.str, !torch.str)
      -> !torch.vtensor<[64,128],f32>
  return %y : !torch.vtensor<[64,128],f32>
}

// -----

func.func @mode(%x: !torch.vtensor<[64,256],f32>, %w: !torch.vtensor<[128,128],ui8>, %s: !torch.vtensor<[128,8],ui8>)
    -> !torch.vtensor<[64,128],f32> {
  %fmt = torch.constant.str "E2M1"
  %mode = torch.constant.str "nearest"
  // expected-error @+1 {{torch.mxcomp.scaled_linear: mode 'nearest': expected one of floor, even, ceil, rceil}}
  %y = torch.operator "torch.mxcomp.scaled_linear"(%x, %w, %s, %fmt, %fmt, %mode)
      : (!torch.vtensor<[64,256],f32>, !torch.vtensor<[128,128],ui8>, !torch.vtensor<[128,8],ui8>, !torch.str, !torch.str, !torch.str)
      -> !torch.vtensor<[64,128],f32>
  return %y : !torch.vtensor<[64,128],f32>
}

// -----

func.func @mode_is_not_constant(%x: !torch.vtensor<[64,256],f32>, %w: !torch.vtensor<[128,128],ui8>,
                                %s: !torch.vtensor<[128,8],ui8>, %mode: !torch.str) -> !torch.vtensor<[64,128],f32> {
  %fmt = torch.constant.str "E2M1"
  // expected-error @+1 {{torch.mxcomp.scaled_linear: formats and mode must be constant strings}}
  %y = torch.operator "torch.mxcomp.scaled_linear"(%x, %w, %s, %fmt, %fmt, %mode)
      : (!torch.vtensor<[64,256],f32>, !torch.vtensor<[128,128],ui8>, !torch.vtensor<[128,8],ui8>, !torch.str, !torch.str, !torch.str)
      -> !torch.vtensor<[64,128],f32>
  return %y : !torch.vtensor<[64,128],f32>
}

// -----

// Bytes of 4-bit weights for a K of 128.
func.func @k_differs(%x: !torch.vtensor<[64,256],f32>, %w: !torch.vtensor<[128,64],ui8>, %s: !torch.vtensor<[128,8],ui8>)
    -> !torch.vtensor<[64,128],f32> {
  %fmt = torch.constant.str "E2M1"
  %mode = torch.constant.str "even"
  // expected-error @+1 {{x [64, 256], weight [128, 64] bytes, scales [128, 8]: expected [M, K], [N, K · 4/8] and [N, K/32], K a multiple of 32}}
  %y = torch.operator "torch.mxcomp.scaled_linear"(%x, %w, %s, %fmt, %fmt, %mode)
      : (!torch.vtensor<[64,256],f32>, !torch.vtensor<[128,64],ui8>, !torch.vtensor<[128,8],ui8>, !torch.str, !torch.str, !torch.str)
      -> !torch.vtensor<[64,128],f32>
  return %y : !torch.vtensor<[64,128],f32>
}

// -----

func.func @k_48(%x: !torch.vtensor<[64,48],f32>, %w: !torch.vtensor<[128,24],ui8>, %s: !torch.vtensor<[128,1],ui8>)
    -> !torch.vtensor<[64,128],f32> {
  %fmt = torch.constant.str "E2M1"
  %mode = torch.constant.str "even"
  // expected-error @+1 {{x [64, 48], weight [128, 24] bytes, scales [128, 1]: expected [M, K],}}
  %y = torch.operator "torch.mxcomp.scaled_linear"(%x, %w, %s, %fmt, %fmt, %mode)
      : (!torch.vtensor<[64,48],f32>, !torch.vtensor<[128,24],ui8>, !torch.vtensor<[128,1],ui8>, !torch.str, !torch.str, !torch.str)
      -> !torch.vtensor<[64,128],f32>
  return %y : !torch.vtensor<[64,128],f32>
}

// -----

func.func @f64(%x: !torch.vtensor<[64,256],f64>, %w: !torch.vtensor<[128,128],ui8>, %s: !torch.vtensor<[128,8],ui8>)
    -> !torch.vtensor<[64,128],f64> {
  %fmt = torch.constant.str "E2M1"
  %mode = torch.constant.str "even"
  // expected-error @+1 {{x is !torch.vtensor<[64,256],f64>: expected a tensor of f32, f16 or bf16}}
  %y = torch.operator "torch.mxcomp.scaled_linear"(%x, %w, %s, %fmt, %fmt, %mode)
      : (!torch.vtensor<[64,256],f64>, !torch.vtensor<[128,128],ui8>, !torch.vtensor<[128,8],ui8>, !torch.str, !torch.str, !torch.str)
      -> !torch.vtensor<[64,128],f64>
  return %y : !torch.vtensor<[64,128],f64>
}

// -----

func.func @operands(%x: !torch.vtensor<[64,256],f32>, %w: !torch.vtensor<[128,128],ui8>) -> !torch.vtensor<[64,128],f32> {
  // expected-error @+1 {{torch.mxcomp.scaled_linear: expected x, weight, weight_scale, weight_format, input_format, mode}}
  %y = torch.operator "torch.mxcomp.scaled_linear"(%x, %w)
      : (!torch.vtensor<[64,256],f32>, !torch.vtensor<[128,128],ui8>) -> !torch.vtensor<[64,128],f32>
  return %y : !torch.vtensor<[64,128],f32>
}

// -----

func.func @experts(%x: !torch.vtensor<[?,64],f32>, %chosen: !torch.vtensor<[?,2],si64>, %shares: !torch.vtensor<[?,2],f32>,
    %gu: !torch.vtensor<[4,192,32],ui8>, %gus: !torch.vtensor<[4,192,2],ui8>, %gub: !torch.vtensor<[4,192],f32>,
    %d: !torch.vtensor<[4,64,48],ui8>, %ds: !torch.vtensor<[4,64,3],ui8>, %db: !torch.vtensor<[4,64],f32>)
    -> !torch.vtensor<[?,64],f32> {
  %fmt = torch.constant.str "E2M1"
  %mode = torch.constant.str "even"
  %alpha = torch.constant.float 1.702
  // expected-error @+1 {{expected static [T, K], twice [T, top_k], then [E, 2 N, …] bytes}}
  %y = torch.operator "torch.mxcomp.gated_experts"(%x, %chosen, %shares, %gu, %gus, %gub, %d, %ds, %db, %fmt, %fmt, %mode, %alpha, %alpha, %alpha)
      : (!torch.vtensor<[?,64],f32>, !torch.vtensor<[?,2],si64>, !torch.vtensor<[?,2],f32>, !torch.vtensor<[4,192,32],ui8>,
         !torch.vtensor<[4,192,2],ui8>, !torch.vtensor<[4,192],f32>, !torch.vtensor<[4,64,48],ui8>, !torch.vtensor<[4,64,3],ui8>,
         !torch.vtensor<[4,64],f32>, !torch.str, !torch.str, !torch.str, !torch.float, !torch.float, !torch.float) -> !torch.vtensor<[?,64],f32>
  return %y : !torch.vtensor<[?,64],f32>
}

