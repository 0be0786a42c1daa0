// RUN: mxcomp-opt %s --pass-pipeline='builtin.module(mxcomp-check-scales)' --split-input-file --verify-diagnostics

// Scales are powers of two, or numbers of which the exponent is taken.

util.func @right(%x: f8E4M3FN, %s: f8E8M0FNU, %t: bf16) -> (f32, f32) {
  %0 = arith.scaling_extf %x, %s : f8E4M3FN, f8E8M0FNU to f32
  %1 = arith.scaling_extf %x, %t : f8E4M3FN, bf16 to f32
  util.return %0, %1 : f32, f32
}

// -----

util.func @wrong(%x: f8E4M3FN, %s: f8E4M3FN) -> f32 {
  // expected-error @+1 {{arith.scaling_extf with a scale of type f8E4M3FN: expected f8E8M0FNU, or f16, bf16 or f32}}
  %0 = arith.scaling_extf %x, %s : f8E4M3FN, f8E4M3FN to f32
  util.return %0 : f32
}
