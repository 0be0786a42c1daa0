"""Programs drawn at random: operands, producers, a scaled matmul, consumers; run, and compared with float64 NumPy.

`python test/e2e/fuzz.py --case '{…}'` runs one, as a failing test prints it.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, fields

import ml_dtypes
import numpy as np
from builders import constant, module, reshaped, scaled_matmul, stored, unfused_matmul
from fuzz_ops import CONSUMERS, FRONTS, Estimate
from iree.compiler import ir
from modules import FP4, Bytes, Matmul, dequantise, outside

import mxcomp
from mxcomp.formats import pack_bits, quantise
from mxcomp.ir import quantisation
from mxcomp.run import runtime

SOURCES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Case:
    """One program.

    `mode` is that of a quantisation of the LHS from `source`, behind the elementwise operation `front` if there is one;
    "" is a stored LHS. `batch` is the LHS's, 0 for none. `specials` are NaN, infinities and zeros among activations.
    """

    types: tuple[str, str] = (FP4, FP4)
    m: int = 1
    n: int = 1
    k: int = 32
    batch: int = 0
    dynamic_m: bool = False
    constant_rhs: bool = False
    unfused: bool = False
    mode: str = ""
    source: str = "f32"
    front: str = ""
    specials: bool = False
    consumers: tuple[str, ...] = ()
    ukernels: str = "fastest"
    data_tiling: bool = True

    @property
    def rows(self) -> int:
        return self.m * (self.batch or 1)

    @property
    def stored(self) -> Matmul:
        return Matmul(self.rows, self.n, self.k, types=self.types)

    @property
    def command(self) -> str:
        """What reproduces it."""
        given = {key: value for key, value in asdict(self).items() if value != getattr(Case(), key)}
        return f"python test/e2e/fuzz.py --case '{json.dumps(given)}'"

    @staticmethod
    def parse(text: str) -> Case:
        given = json.loads(text)
        return Case(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})


Named = dict[str, np.ndarray]


def arrays(case: Case) -> Named:
    """Arguments by name; those that are [M, …] have the batch in front."""
    rng = np.random.default_rng((case.m, case.n, case.k))
    lhs, rhs, lhs_scale, rhs_scale = case.stored.operands
    rows = (case.batch, case.m) if case.batch else (case.m,)
    named: Named = {}
    if case.mode:
        named["x"] = activations(rng, case).reshape(*rows, case.k)
        if case.front == "add":
            named["front"] = rng.standard_normal((*rows, case.k)).astype(SOURCES[case.source])
    else:
        named |= {"lhs": lhs.reshape(*rows, -1), "lhs_scale": lhs_scale.reshape(*rows, -1)}
    if not case.constant_rhs:
        named |= {"rhs": rhs, "rhs_scale": rhs_scale}
    shapes = {"bias": (case.n,), "residual": (*rows, case.n), "multiply": (*rows, case.n)}
    others = {name: rng.standard_normal(shapes[name]) for name in case.consumers if name in shapes}
    return named | {name: array.astype(np.float32) for name, array in others.items()}


def activations(rng: np.random.Generator, case: Case) -> np.ndarray:
    """[rows, K] of many magnitudes."""
    magnitude = np.exp2(rng.integers(-6, 7, (case.rows, case.k // 32)).repeat(32, axis=1))
    x = (rng.standard_normal((case.rows, case.k)) * magnitude).astype(SOURCES[case.source])
    if case.specials:
        x[:: 2 + case.rows // 4, :32] = 0
        for row, value in enumerate((np.nan, np.inf, -np.inf)):
            x[3 * row + 1 :: case.rows + 1, rng.integers(case.k)] = value
    return x


def text(case: Case, named: Named, factor: float) -> str:
    """The module; `factor` brings the product to the order of 1."""

    def body(*given: ir.Value) -> list[ir.Value]:
        values = dict(zip(named, given, strict=True))
        product = unfused_matmul if case.unfused else scaled_matmul
        y = product(_lhs(case, values), _rhs(case, values))
        for name in case.consumers:
            y = CONSUMERS[name].build(y, values.get(name), factor)
        return [y]

    kinds = {np.dtype(kind): name for name, kind in SOURCES.items()} | {np.dtype(np.uint8): "i8"}
    return module(body, [(_shape(case, name, array), kinds[array.dtype]) for name, array in named.items()])


def _shape(case: Case, name: str, array: np.ndarray) -> tuple[int | None, ...]:
    has_rows = case.dynamic_m and name not in ("rhs", "rhs_scale", "bias")
    *lead, rows, columns = (1, *array.shape)
    return (*lead[1:], None if has_rows else rows, columns) if array.ndim > 1 else array.shape


def _lhs(case: Case, values: dict[str, ir.Value]) -> tuple[ir.Value, ir.Value]:
    if not case.mode:
        return stored(values["lhs"], values["lhs_scale"], case.types[0])
    x = values["x"]
    if case.front:
        x = FRONTS[case.front].build(x, values.get("front"))
    if not case.batch:
        return quantisation.quantise(x, case.types[0], case.mode)
    elements, scales = quantisation.quantise(reshaped(x, [case.rows], 1), case.types[0], case.mode)
    lead = [case.batch, case.m]
    return reshaped(elements, lead, 2), reshaped(scales, lead, 1)


def _rhs(case: Case, values: dict[str, ir.Value]) -> tuple[ir.Value, ir.Value]:
    _, rhs, _, scales = case.stored.operands
    if case.constant_rhs:
        return stored(constant(rhs), constant(scales), case.types[1])
    return stored(values["rhs"], values["rhs_scale"], case.types[1])


def estimate(case: Case, named: Named) -> Estimate:
    """The product [rows, N]: its value, and how far f32 additions may be from it."""
    _, rhs, _, rhs_scale = case.stored.operands
    if case.mode:
        x = named["x"].reshape(case.rows, case.k)
        if case.front:
            other = named.get("front")
            x = FRONTS[case.front].compute(x, None if other is None else other.reshape(x.shape))
        a = _dequantised(*quantise(x, case.types[0], case.mode), case.types[0])
    else:
        a = dequantise(named["lhs"].reshape(case.rows, -1), named["lhs_scale"].reshape(case.rows, -1), case.types[0])
    b = dequantise(rhs, rhs_scale, case.types[1])
    return Estimate(a @ b.T, case.k * 2.0**-24 * (np.abs(a) @ np.abs(b).T))


def _dequantised(codes: Bytes, scales: Bytes, kind: str) -> np.ndarray:
    return dequantise(pack_bits(codes, kind), scales, kind)


def check(case: Case) -> str:
    """Runs a case and says what served it. Raises AssertionError if a number is wrong, or whatever goes wrong."""
    named = arrays(case)
    expected = estimate(case, named)
    mean = np.abs(expected.value[np.isfinite(expected.value)]).mean() if np.isfinite(expected.value).any() else 0.0
    factor = 2.0 ** -round(np.log2(mean)) if mean else 1.0
    program = mxcomp.compile(text(case, named, factor), ukernels=case.ukernels, data_tiling=case.data_tiling)
    (matmul,) = program.report.matmuls
    long = matmul.operands == "plain" and case.rows * case.n * case.k > 300_000
    engine = "fast" if long else "numpy"  # compiling a kernel pays off if it runs for long
    inputs = [array.view(np.int8) if array.dtype == np.uint8 else array for array in named.values()]
    (found,) = runtime.run(program.vmfb, "main", inputs, "sim", engine=engine)
    for name in case.consumers:
        other = named.get(name)
        shaped = None if other is None else other.astype(np.float64).reshape(-1, case.n)
        expected = CONSUMERS[name].compute(expected, shaped, factor)
    result = found.reshape(case.rows, case.n)
    wrong = np.argwhere(outside(result, expected.value, expected.error))
    assert len(wrong) == 0, _describe(result, expected, wrong)
    return matmul.ukernel or matmul.reason or ""


def _describe(result: np.ndarray, expected: Estimate, wrong: np.ndarray) -> str:
    at = tuple(wrong[0])
    value, error = expected.value[at], expected.error[at]
    where = ", ".join(map(str, at))
    return f"{len(wrong)} of {result.size} are wrong; [{where}] is {result[at]}, expected {value} ± {error:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs one case of the fuzz test.")
    parser.add_argument("--case", required=True, type=Case.parse, help="its fields that are not the default, as JSON")
    case = parser.parse_args().case
    print(", ".join(f"{field.name}={getattr(case, field.name)!r}" for field in fields(case)))
    print(f"as expected: {check(case)}")


if __name__ == "__main__":
    main()
