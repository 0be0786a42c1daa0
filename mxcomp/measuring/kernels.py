"""Costs of one ukernel: cycles of its loop, from the table of times; registers and LDS, by compiling it alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import msgspec
import numpy as np
from iree.compiler import ir

import mxcomp.ir as mx
from mxcomp.compiler import compile
from mxcomp.formats import ElementFormat, element_format, mx_format
from mxcomp.measuring.subject import RESULT_BYTES
from mxcomp.mlir import build
from mxcomp.registry import Constraint, Ukernel
from mxcomp.selection.times import KernelTimes
from mxcomp.sim import code_object
from mxcomp.sim.timing.chip import Rates
from mxcomp.sim.timing.parameters import parameters_of
from mxcomp.support import caches
from mxcomp.support.version import __version__
from mxcomp.ukernels import family

LOOP_RATE = 28.0
"""The bytes a cycle that a compute unit gets from memory in the model of a loop."""

UNFUSED = ("data_tiled", "row_major", *family.ROW_MAJOR_SIDES)
"""The kinds of operands of ukernels that compute a matmul without fused quantisation or consumers."""

_TILES = {"m": 2, "n": 2, "k": 4}


@dataclass(frozen=True)
class Loop:
    """The modelled cycles of a K tile, and the fraction of them that MFMA instructions take."""

    cycles: float
    mfma: float


def loop(times: KernelTimes, rate: float = LOOP_RATE) -> Loop:
    """Returns the loop of a single workgroup on a compute unit, between two numbers of K tiles of the table."""
    *_, short, long = sorted(times.load_bytes)
    rates = Rates(np.full(1, parameters_of(times.target).warm_latency), np.full(1, rate))
    (less, few), (more, many) = (times.cycles(k, rates, True, 1) for k in (short, long))
    return Loop(float((more - less)[0]) / (long - short), float(((many - few) / (more - less))[0]))


class Registers(msgspec.Struct, frozen=True):
    """The resources of a kernel: registers of a lane and of a wave, and bytes of LDS."""

    vgprs: int
    sgprs: int
    lds_bytes: int
    spills: int


def registers(ukernel: Ukernel, directories: Sequence[str | Path]) -> Registers | None:
    """Returns the resources of a ukernel in a matmul of a few tiles, or None where it is not chosen. Kept in the user's
    cache.

    Needs a current context. Raises MxcompError.
    """
    if ukernel.operands not in UNFUSED:
        return None
    file = _kept(ukernel)
    if file is not None and file.exists():
        return msgspec.json.decode(file.read_bytes(), type=Registers)
    found = _compiled(ukernel, directories)
    if file is not None and found is not None:
        file.write_bytes(msgspec.json.encode(found))
    return found


def _kept(ukernel: Ukernel) -> Path | None:
    """Returns the file in which its registers are cached, if there is a cache."""
    parts = (__version__, metadata.version("iree-base-compiler"), ukernel.text(family.Stores(RESULT_BYTES["f32"])))
    try:
        return caches.own("kernels") / sha256("\n".join(parts).encode()).hexdigest()
    except caches.CacheError:
        return None


def _compiled(ukernel: Ukernel, directories: Sequence[str | Path]) -> Registers | None:
    program = compile(
        _matmul(ukernel),
        ukernel.target.name,
        data_tiling=ukernel.operands != "row_major",
        ukernels=ukernel.name,
        ukernel_dirs=directories,
        strict=True,
    )
    (matmul,) = program.report.matmuls
    if matmul.ukernel != ukernel.name:
        return None
    codes = map(code_object.load, code_object.images(program.vmfb))
    (kernel,) = (code.kernels[matmul.kernel] for code in codes if matmul.kernel in code.kernels)
    taken = kernel.metadata
    return Registers(taken.vgprs, taken.sgprs, kernel.descriptor.lds_bytes, taken.vgpr_spills + taken.sgpr_spills)


def _matmul(ukernel: Ukernel) -> ir.Module:
    """Returns a matmul of a few tiles."""
    lhs, rhs = (element_format(kind) for kind in ukernel.types[:2])
    tiles = dict(zip("mnk", ukernel.tile, strict=True))
    m, n, k = (_size(ukernel.constraints.get(axis, Constraint()), tiles[axis], _TILES[axis]) for axis in "mnk")
    if ukernel.operands == family.ROW_MAJOR_SIDES[1]:  # the result is computed transposed
        m, n, lhs, rhs = n, m, rhs, lhs
    return matmul_of_arguments(m, n, k, lhs, rhs)


def matmul_of_arguments(
    m: int, n: int, k: int, lhs: ElementFormat, rhs: ElementFormat, result: str = "f32"
) -> ir.Module:
    """Returns a module with a matmul of m x n x k whose operands, as bytes, and their scales are arguments."""

    def matmul(a: ir.Value, a_scale: ir.Value, b: ir.Value, b_scale: ir.Value) -> ir.Value:
        return stored(mx.scaled_matmul(mx.operand(a, a_scale, lhs), mx.operand(b, b_scale, rhs)), result)

    types = [
        f"{rows}x{size}xi8"
        for rows, fmt in ((m, mx_format(lhs)), (n, mx_format(rhs)))
        for size in (k // fmt.size * fmt.block_bytes, k // fmt.size)
    ]
    return mx.module(matmul, *types)


def stored(value: ir.Value, result: str) -> ir.Value:
    """Returns a tensor rounded to elements of the type `result`."""
    is_so = str(build.element(value)) == result
    return value if is_so else mx.elementwise(lambda each: each, value, result=result)


def _size(bounds: Constraint, tile: int, count: int) -> int:
    """Returns the size of so many tiles, or the nearest that is allowed."""
    size = min(max(tile * count, bounds.min or 1), bounds.max or tile * count)
    size -= size % (bounds.div or 1)
    return size - bounds.odd if bounds.odd and bounds.violation("", size) else size
