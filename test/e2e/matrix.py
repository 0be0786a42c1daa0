"""Every pair of element types × shapes of the problem × result types, and what becomes of each.

A case is one program with a function for each result type. It runs on the simulated device and is compared with
float64 NumPy; the report says whether a ukernel served it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from builders import Body, functions, rounded, scaled_matmul, stored
from iree.compiler import ir
from modules import BITS, Bytes, Matmul, outside, product

import mxcomp
from mxcomp.errors import CompileError
from mxcomp.report import ScaledMatmul
from mxcomp.run import runtime

RESULTS = ("f32", "bf16")


@dataclass(frozen=True)
class Shape:
    """M × N × K, each of a batch; a dynamic M is called with each of `calls`. The RHS may have the batch as well."""

    m: int
    n: int
    k: int
    batch: int = 0
    both: bool = False
    calls: tuple[int, ...] = ()

    def __str__(self) -> str:
        m = f"?×{self.n}×{self.k} ({' and '.join(map(str, self.calls))} rows)"
        text = m if self.calls else f"{self.m}×{self.n}×{self.k}"
        return f"{self.batch} × {text}" if self.batch else text


SHAPES = {
    "aligned": Shape(128, 256, 256),
    "padded": Shape(100, 200, 96),
    "dynamic M": Shape(130, 200, 160, calls=(1, 130)),
    "batched LHS": Shape(15, 136, 96, batch=3),
    "batched both": Shape(16, 64, 128, batch=2, both=True),
}


@dataclass(frozen=True)
class Case:
    """One program: element types of LHS and RHS, and the name of a problem's shape."""

    types: tuple[str, str]
    shape: str

    def __str__(self) -> str:
        return "-".join([*self.types, self.shape.replace(" ", "_")])

    @property
    def sizes(self) -> Shape:
        return SHAPES[self.shape]

    @property
    def text(self) -> str:
        return functions({result: (self._body(result), self._arguments) for result in RESULTS})

    @property
    def _arguments(self) -> list[tuple[tuple[int | None, ...], str]]:
        sizes = self.sizes
        lead = (sizes.batch,) if sizes.batch else ()
        m = None if sizes.calls else sizes.m
        lhs, rhs = (*lead, m), (*lead, sizes.n) if sizes.both else (sizes.n,)
        columns = [sizes.k * BITS[kind] // 8 for kind in self.types]
        shapes = ((*lhs, columns[0]), (*rhs, columns[1]), (*lhs, sizes.k // 32), (*rhs, sizes.k // 32))
        return [(shape, "i8") for shape in shapes]

    def _body(self, result: str) -> Body:
        def body(a: ir.Value, b: ir.Value, a_scale: ir.Value, b_scale: ir.Value) -> list[ir.Value]:
            sums = scaled_matmul(stored(a, a_scale, self.types[0]), stored(b, b_scale, self.types[1]))
            return [sums if result == "f32" else rounded(sums, result)]

        return body

    def operands(self, m: int) -> list[Bytes]:
        """LHS and RHS, LHS and RHS scales, with a batch of 1 where there is none."""
        n, k = self.sizes.n, self.sizes.k
        seeds = range(self.sizes.batch or 1)
        parts = [Matmul(m, n, k, seed=seed, types=self.types).operands for seed in seeds]
        lhs, rhs, lhs_scale, rhs_scale = (np.stack(part) for part in zip(*parts, strict=True))
        if not self.sizes.both:
            rhs[:], rhs_scale[:] = rhs[0], rhs_scale[0]
        return [lhs, rhs, lhs_scale, rhs_scale]

    def inputs(self, operands: list[Bytes]) -> list[Bytes]:
        """What the program takes."""
        has_batch = [bool(self.sizes.batch), self.sizes.both] * 2
        arrays = [array if batch else array[0] for array, batch in zip(operands, has_batch, strict=True)]
        return [array.view(np.int8) for array in arrays]


PAIRS = list(itertools.product(BITS, repeat=2))
CASES = [Case(*each) for each in itertools.product(PAIRS, SHAPES)]


@dataclass(frozen=True)
class Outcome:
    """Whether results are right; the note says why no ukernel computes them, or what is wrong. "" is a ukernel."""

    right: bool
    note: str = ""


def outcomes(case: Case) -> dict[str, Outcome]:
    """What becomes of the matmul, by result type."""
    try:
        program = mxcomp.compile(case.text)
    except CompileError as error:
        warnings = (text.partition(" warning: ")[2] for text in error.diagnostics)
        note = next((warning for warning in warnings if warning), error.message)
        return dict.fromkeys(RESULTS, Outcome(False, f"does not compile: {note}"))
    matmuls = dict(zip(RESULTS, program.report.matmuls, strict=True))
    return {result: _outcome(program, case, result, matmul) for result, matmul in matmuls.items()}


def _outcome(program: mxcomp.Program, case: Case, result: str, matmul: ScaledMatmul) -> Outcome:
    for m in case.sizes.calls or (case.sizes.m,):
        # Compiling a kernel for the simulator pays off only if it runs for long, as IREE's own do.
        engine = "fast" if matmul.operands == "plain" else "numpy"
        if not _is_right(program, case, m, result, engine):
            return Outcome(False, f"wrong: {matmul.warning or matmul.reason or matmul.ukernel}")
    if matmul.ukernel is None:
        assert matmul.reason
        return Outcome(True, matmul.reason)
    return Outcome(True)


def _is_right(program: mxcomp.Program, case: Case, m: int, result: str, engine: str) -> bool:
    """Whether each element is one rounding of a sum that is right within the error of f32 additions."""
    operands = case.operands(m)
    inputs = case.inputs(operands)
    (found,) = runtime.run(program.vmfb, result, inputs, "sim", engine=engine)
    expected, magnitude = (
        np.stack([product(*one, types=case.types, absolute=absolute) for one in zip(*operands, strict=True)])
        for absolute in (False, True)
    )
    assert found.dtype == (np.float32 if result == "f32" else ml_dtypes.bfloat16)
    return not outside(found.reshape(expected.shape), expected, case.sizes.k * 2.0**-24 * magnitude).any()
