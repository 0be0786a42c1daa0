"""Checks a module's scaled matmuls on this machine's CPU.

The module is compiled for llvm-cpu with the same layouts, packing, padding and unpacking as for the GPU; only the inner
tiles are replaced by their mathematical meaning. The compiled program also returns the operands and the result of
each scaled matmul, and NumPy multiplies the operands in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from iree.compiler import ir

from mxcomp import formats, pipeline
from mxcomp.codes.decode import unpacked
from mxcomp.errors import VerifyError
from mxcomp.layout import ACC
from mxcomp.layout.inner_tiles import MFMA
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.decision import is_recognised
from mxcomp.matching.operands import SCALE_TYPE
from mxcomp.matching.storage import is_gathered
from mxcomp.mlir import build, graph
from mxcomp.mlir.graph import location_text
from mxcomp.mlir.session import Session, read_source
from mxcomp.options import AUTO, FASTEST, Options
from mxcomp.report.report import Report
from mxcomp.run.runtime import run
from mxcomp.target import DEFAULT

CPU_FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-llvmcpu-stack-allocation-limit=1048576",  # regions that a GPU has in registers; threads have 8 MiB
)


@dataclass(frozen=True)
class MatmulCheck:
    """One scaled matmul compared with float64.

    `error` is the largest |result − expected| / Σ|a·b| over the result; `bound` is what f32 accumulation of K products
    can give, K · 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, §3.1). NaN must meet NaN.
    """

    location: str
    m: int
    n: int
    k: int
    error: float
    bound: float

    @property
    def ok(self) -> bool:
        return self.error <= self.bound


@dataclass(frozen=True)
class Verification:
    """The checks of a module's scaled matmuls, and the results of the function itself."""

    checks: tuple[MatmulCheck, ...]
    results: tuple[np.ndarray, ...]
    report: Report

    @property
    def ok(self) -> bool:
        """Whether something was checked, and all of it is right."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def error(self) -> float:
        return max((check.error for check in self.checks), default=float("nan"))


def verify(
    source: str | bytes | ir.Module,
    inputs: Sequence[np.ndarray],
    function: str | None = None,
    target: str = DEFAULT,
    ukernels: str = FASTEST,
    ukernel_dirs: Sequence[str] = (),
    parameters: Mapping[str, str | Path] | None = None,
    fuse_quantisers: str = AUTO,
) -> Verification:
    """Compiles `source` for the CPU in the layouts chosen for `target`, runs `function` on `inputs`, and checks it.

    `function` may be left out if there is one public function. `parameters` are files (.irpa, .safetensors, .gguf) by
    the scope of the parameters in them, "" for no scope; `fuse_quantisers` is as of `mxcomp.compile`. Raises
    VerifyError where nothing can be verified, and the errors of `mxcomp.compile` and, for files that cannot be read,
    `mxcomp.run.runtime.run`.
    """
    options = Options.make(target, True, ukernels, tuple(ukernel_dirs), reference=True, fuse_quantisers=fuse_quantisers)
    program = _compile(*read_source(source), function, options)
    outputs = run(program.vmfb, program.function, inputs, parameters=parameters)
    watched = program.watched
    first = len(outputs) - 5 * len(watched)
    groups = [outputs[first + 5 * i : first + 5 * (i + 1)] for i in range(len(watched))]
    checks = tuple(_check(*about, *group) for about, group in zip(watched, groups, strict=True))
    return Verification(checks, tuple(outputs[:first]), program.report)


@dataclass(frozen=True)
class _Watched:
    """A program whose function also returns the operands and results of each scaled matmul, with their types."""

    vmfb: bytes
    function: str
    watched: list[tuple[str, tuple[str, ...]]]
    report: Report


def _compile(data: bytes, name: str, function: str | None, options: Options) -> _Watched:
    session = Session(CPU_FLAGS)
    session.load(data, name)
    session.run("start", "input")
    module, report = session.module, Report(options.target.name)
    pipeline.run(module, (*pipeline.ENTRY_PASSES, *pipeline.PREPARING_PASSES), options)
    entry = _entry(module, function)
    symbol = graph.symbol_name(entry)
    watched = _watch(entry)
    pipeline.run(module, pipeline.CHOOSING_PASSES, options)
    report.collect(module)
    pipeline.run(module, pipeline.BUILDING_PASSES, options)
    report.add_unfused(module)
    session.run("input", "end")
    return _Watched(session.vm_bytecode(), symbol, watched, report)


def _entry(module: ir.Operation, name: str | None) -> ir.Operation:
    functions = {}
    for view in graph.module_block(module).operations:
        op = view.operation
        if op.name == "util.func" and graph.is_public(op):
            functions[graph.symbol_name(op)] = op
    if name is None and len(functions) == 1:
        return next(iter(functions.values()))
    if name not in functions:
        raise VerifyError(f"which function is to be verified? public functions are {', '.join(functions) or 'none'}")
    return functions[name]


def _watch(entry: ir.Operation) -> list[tuple[str, tuple[str, ...]]]:
    """Makes `entry` also return, per scaled matmul, four operands as bytes and the result.

    Returns where each of them is, and its element types.
    """
    if len(entry.regions[0].blocks) != 1:
        raise VerifyError("only functions without branches can be verified")
    body = entry.regions[0].blocks[0]
    matmuls = [op for op in graph.walk(entry) if is_recognised(op)]
    returned = list(body.operations)[-1].operation
    values = list(returned.operands)
    for op in matmuls:
        if op.parent != entry:
            raise VerifyError(f"{op.location}: only matmuls at the top level of a function can be verified")
        with op.context, op.location, ir.InsertionPoint.after(op):
            values += [_bytes(operand) for operand in list(op.operands)[:ACC]] + [op.results[0]]
    if not matmuls:
        raise VerifyError("there is no scaled matmul to verify: see the report of mxcomp-compile for the reasons")
    with entry.context, returned.location, ir.InsertionPoint(returned):
        ir.Operation.create("util.return", operands=values)
        kind = ir.FunctionType(ir.TypeAttr(entry.attributes["function_type"]).value)
        entry.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kind.inputs, [v.type for v in values]))
        for attribute in ("res_attrs", "tied_operands"):
            if attribute in entry.attributes:
                del entry.attributes[attribute]
    returned.erase()
    return [(location_text(op.location), problem_of(op).types) for op in matmuls]


def _bytes(value: ir.Value) -> ir.Value:
    """Returns [(batch,) rows, bytes] of elements or scales; operands stored in another order as one code a byte."""
    element = str(ir.RankedTensorType(value.type).element_type)
    is_scale = element == SCALE_TYPE
    *rows, blocks = build.static_sizes(value)[: None if is_scale else -1]
    sizes = build.dynamic_sizes(value)

    def columns(factor: int) -> list[ir.Value]:
        last = [build.apply(ir.AffineExpr.get_dim(0) * factor, sizes[-1:])] if blocks is None else sizes[-1:]
        return [*sizes[:-1], *last]

    if is_gathered(value):
        return unpacked(value, columns(1 if is_scale else formats.MX_BLOCK))
    size = 1 if is_scale else MFMA.lane_bytes(element)
    kind = build.tensor_type((*rows, None if blocks is None else blocks * size), "i8")
    return build.bitcast(value, kind, sizes, columns(size))


def _check(location: str, types: Sequence[str], *watched: np.ndarray) -> MatmulCheck:
    lhs, rhs, lhs_scale, rhs_scale, result = watched
    factors = []
    for kind, packed, scales in zip(types, (lhs, rhs), (lhs_scale, rhs_scale), strict=False):
        codes, scale_codes = packed.view(np.uint8), scales.view(np.uint8)
        if codes.shape[-1] != formats.MX_BLOCK * scale_codes.shape[-1]:
            codes = formats.unpack_bits(codes, kind)
        factors.append(formats.dequantise(codes, scale_codes, kind, dtype=np.float64))
    a, b = factors
    with np.errstate(invalid="ignore", divide="ignore"):
        b = b.swapaxes(-1, -2)
        expected, magnitude = a @ b, np.abs(a) @ np.abs(b)
        same = (result == expected) | (np.isnan(result) & np.isnan(expected))
        error = np.where(same, 0.0, np.abs(result - expected) / magnitude)
    worst = float(np.max(np.where(np.isnan(error), np.inf, error), initial=0.0))
    m, k, n = *a.shape[-2:], b.shape[-1]
    return MatmulCheck(location, m, n, k, worst, k * 2.0**-24)
