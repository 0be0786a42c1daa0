"""Compiles the same program in several ways: with and without data tiling and ukernels, ours and stock IREE's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from mxcomp import compiler
from mxcomp.compiler import Program
from mxcomp.mlir.session import Session
from mxcomp.report.report import Report
from mxcomp.target import DEFAULT, get_target

MATMUL = "matmul"
_PARTS = ("encode LHS", "encode RHS", "encode LHS scales", "encode RHS scales")
PARTS = (MATMUL, *_PARTS)
_OURS = dict(zip(("pack_lhs", "pack_rhs", "pack_lhs_scale", "pack_rhs_scale"), _PARTS, strict=True))
"""The names of our dispatches in reports."""
_IREES = re.compile(r"_?encoding_\d+_encode_")
"""The names of IREE's dispatches that encode operands, several of which may have one shape; IREE launches them in the
order of operands."""

_DATA_TILING = "--iree-dispatch-creation-data-tiling"
_UKERNELS = "--iree-rocm-enable-tensor-ukernels"


@dataclass(frozen=True)
class Compiled:
    """A program at the end of phase `hal`, as text, and the session flags for the rest of its compilation.

    `report` is of our compilation; None where IREE compiled it.
    """

    text: bytes
    flags: tuple[str, ...]
    report: Report | None = None

    def parts(self, kernels: Sequence[str]) -> list[str]:
        """Returns the part that each dispatch computes, for a program of one matmul; else the names of kernels."""
        found = _irees_parts(kernels) if self.report is None else self._our_parts(kernels)
        is_one = found.count(MATMUL) == 1
        return found if is_one else list(kernels)

    def _our_parts(self, kernels: Sequence[str]) -> list[str]:
        matmuls = [] if self.report is None else self.report.matmuls
        if len(matmuls) != 1:
            return list(kernels)
        parts, kernel = matmuls[0].dispatches, matmuls[0].kernel
        if len(parts) == len(kernels):
            return [_OURS.get(part, MATMUL) for part in parts]
        return [MATMUL if each == kernel else each for each in kernels]


def _irees_parts(kernels: Sequence[str]) -> list[str]:
    encoding = [bool(_IREES.match(kernel)) for kernel in kernels]
    if sum(encoding) not in (0, len(_PARTS)):
        return list(kernels)
    parts = iter(_PARTS)
    multiplied = [MATMUL if "scaled_matmul" in kernel else kernel for kernel in kernels]
    return [next(parts) if encodes else name for encodes, name in zip(encoding, multiplied, strict=True)]


def _flags() -> tuple[str, ...]:
    return get_target(DEFAULT).iree_flags


def _ours(source: bytes, **options: str | bool) -> Compiled:
    program: Program = compiler.compile(source, compile_to="hal", strict=True, **options)  # type: ignore[arg-type]
    return Compiled(program.vmfb, _flags(), program.report)


def _stock(source: bytes, *flags: str) -> Compiled:
    """Compiles with IREE alone. Raises CompileError."""
    with closing(Session((*_flags(), *flags))) as session:
        session.load(source, "source")
        session.run("start", "hal")
        return Compiled(session.output(), (*_flags(), *flags))


CONFIGURATIONS: Mapping[str, Callable[[bytes], Compiled]] = {
    "no dt": lambda source: _ours(source, data_tiling=False, ukernels="none"),
    "no dt + uk": lambda source: _ours(source, data_tiling=False),
    "dt": lambda source: _ours(source, ukernels="none"),
    "dt + uk": lambda source: _ours(source),
    "IREE dt": lambda source: _stock(source, _DATA_TILING),
    "IREE dt + uk": lambda source: _stock(source, _DATA_TILING, _UKERNELS),
}
"""The configurations by name. dt: data tiling; uk: ukernels. Those of stock IREE are its code generation and its
builtin ukernel."""
