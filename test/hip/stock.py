"""Programs that are not about scaled matmuls, compiled by stock IREE for gfx950 and for the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from kernels import STOCK_FLAGS

from mxcomp.mlir.session import Session

CPU_FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
)

ELEMENTWISE = """
#rows = affine_map<(m, n) -> (m, n)>
#columns = affine_map<(m, n) -> (n)>
func.func @main(%x: tensor<37x129xf32>, %bias: tensor<129xf32>) -> tensor<37x129xf32> {
  %one = arith.constant 1.0 : f32
  %empty = tensor.empty() : tensor<37x129xf32>
  %y = linalg.generic {indexing_maps = [#rows, #columns, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%x, %bias : tensor<37x129xf32>, tensor<129xf32>) outs(%empty : tensor<37x129xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %s = arith.addf %a, %b : f32
    %n = arith.negf %s : f32
    %e = math.exp %n : f32
    %d = arith.addf %one, %e : f32
    %r = arith.divf %s, %d : f32
    linalg.yield %r : f32
  } -> tensor<37x129xf32>
  return %y : tensor<37x129xf32>
}
"""

MATMUL = """
func.func @main(%a: tensor<100x96xf16>, %b: tensor<96x72xf16>) -> tensor<100x72xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<100x72xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<100x72xf32>) -> tensor<100x72xf32>
  %c = linalg.matmul ins(%a, %b : tensor<100x96xf16>, tensor<96x72xf16>) outs(%fill : tensor<100x72xf32>)
      -> tensor<100x72xf32>
  return %c : tensor<100x72xf32>
}
"""

CONVOLUTION = """
func.func @main(%x: tensor<1x18x18x8xf32>, %w: tensor<3x3x8x16xf32>) -> tensor<1x16x16x16xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<1x16x16x16xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<1x16x16x16xf32>) -> tensor<1x16x16x16xf32>
  %y = linalg.conv_2d_nhwc_hwcf {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x18x18x8xf32>, tensor<3x3x8x16xf32>) outs(%fill : tensor<1x16x16x16xf32>)
      -> tensor<1x16x16x16xf32>
  return %y : tensor<1x16x16x16xf32>
}
"""

REDUCTION = """
#rows = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
func.func @main(%x: tensor<19x333xf32>) -> (tensor<19x333xf32>, tensor<19xf32>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<19x333xf32>
  %softmax = linalg.softmax dimension(1) ins(%x : tensor<19x333xf32>) outs(%empty : tensor<19x333xf32>)
      -> tensor<19x333xf32>
  %sums = tensor.empty() : tensor<19xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%sums : tensor<19xf32>) -> tensor<19xf32>
  %sum = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<19x333xf32>) outs(%fill : tensor<19xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %r = arith.addf %a, %acc : f32
    linalg.yield %r : f32
  } -> tensor<19xf32>
  return %softmax, %sum : tensor<19x333xf32>, tensor<19xf32>
}
"""

SCATTER = """
#rows = affine_map<(m, n) -> (m, n)>
func.func @main(%table: tensor<64x40xf32>, %from: tensor<24xi32>, %to: tensor<24x1xi32>, %into: tensor<50x40xf32>)
    -> tensor<50x40xf32> {
  %empty = tensor.empty() : tensor<24x40xf32>
  %gathered = linalg.generic {indexing_maps = [#rows], iterator_types = ["parallel", "parallel"]}
      outs(%empty : tensor<24x40xf32>) {
  ^bb0(%out: f32):
    %m = linalg.index 0 : index
    %n = linalg.index 1 : index
    %row = tensor.extract %from[%m] : tensor<24xi32>
    %k = arith.index_cast %row : i32 to index
    %value = tensor.extract %table[%k, %n] : tensor<64x40xf32>
    linalg.yield %value : f32
  } -> tensor<24x40xf32>
  %result = iree_linalg_ext.scatter dimension_map = [0] unique_indices(true)
      ins(%gathered, %to : tensor<24x40xf32>, tensor<24x1xi32>) outs(%into : tensor<50x40xf32>) {
  ^bb0(%update: f32, %old: f32):
    %sum = arith.addf %update, %old : f32
    iree_linalg_ext.yield %sum : f32
  } -> tensor<50x40xf32>
  return %result : tensor<50x40xf32>
}
"""


@dataclass(frozen=True)
class Program:
    """A module and random arguments for it."""

    name: str
    source: str
    inputs: Sequence[np.ndarray]

    def __str__(self) -> str:
        return self.name


_rng = np.random.default_rng(7)


def _floats(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return _rng.standard_normal(shape).astype(dtype)


PROGRAMS = [
    Program("elementwise", ELEMENTWISE, [_floats(37, 129), _floats(129)]),
    Program("f16-matmul", MATMUL, [_floats(100, 96, dtype=np.float16), _floats(96, 72, dtype=np.float16)]),
    Program("convolution", CONVOLUTION, [_floats(1, 18, 18, 8), _floats(3, 3, 8, 16)]),
    Program("reduction", REDUCTION, [_floats(19, 333)]),
    Program(
        "scatter-gather",
        SCATTER,
        [
            _floats(64, 40),
            _rng.integers(0, 64, 24, dtype=np.int32),
            _rng.permutation(50)[:24].astype(np.int32).reshape(24, 1),
            _floats(50, 40),
        ],
    ),
]


@cache
def compiled(source: str, flags: tuple[str, ...] = STOCK_FLAGS) -> bytes:
    """The vmfb that IREE makes on its own."""
    session = Session(flags)
    session.load(source.encode(), "source")
    session.run("start", "end")
    return session.vm_bytecode()
