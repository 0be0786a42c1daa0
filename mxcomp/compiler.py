"""MLIR in, vmfb out: one process, one invocation of IREE, our passes between its phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from iree.compiler import ir

from mxcomp import files, pipeline
from mxcomp.errors import CompileError, InputError
from mxcomp.mlir.session import PHASES, Invocation, read_source
from mxcomp.options import Options
from mxcomp.packing import parameter_operand
from mxcomp.report.report import Report

Source: TypeAlias = str | bytes | Path | ir.Module


@dataclass(frozen=True)
class Program:
    """A compiled module: vmfb bytes (or MLIR text, where compilation stopped earlier) and the report."""

    vmfb: bytes
    report: Report

    def save(self, path: str | Path) -> None:
        """Writes the program whole or not at all. Raises InputError."""
        files.write({path: self.vmfb})

    def run(
        self,
        *arrays: np.ndarray,
        function: str | None = None,
        device: str = "sim",
        parameters: Mapping[str, str | Path] | None = None,
    ) -> list[np.ndarray]:
        """Calls a function, by default the only one, on the simulated gfx950 ("sim") or the GPU ("hip").

        `parameters` are files by scope. See `mxcomp.runtime.run`, which also takes settings of the simulator. Raises
        InputError and RunError.
        """
        from mxcomp import runtime

        return runtime.run(self.vmfb, function, arrays, device, parameters=parameters)


def compile(
    source: Source,
    target: str = "gfx950",
    data_tiling: bool = True,
    ukernels: str = "auto",
    ukernel_dirs: Sequence[str | Path] = (),
    iree_flags: Sequence[str] = (),
    compile_to: str = "end",
    packed_parameters: bool = False,
) -> Program:
    """Compiles MX scaled matmuls of a module through our layouts and ukernels, and everything through IREE.

    `source` is a path, MLIR text, bytes (text or bytecode) or an `ir.Module`. `ukernels` is "auto", "none" or a
    ukernel's name. `iree_flags` are iree-compile session flags, after those of the target. `compile_to` stops at the
    end of an IREE phase and gives MLIR text. With `packed_parameters` the program reads parameters that are operands in
    their packed layout: `report.manifest` says which, `mxcomp-pack` and `mxcomp.weights` make them. May be called
    from several threads. Raises a subclass of MxcompError.
    """
    options = Options.make(target, data_tiling, ukernels, tuple(ukernel_dirs), packed_parameters=packed_parameters)
    return compile_with(source, options, (*options.target.iree_flags, *iree_flags), compile_to)


def compile_with(source: Source, options: Options, flags: Sequence[str], compile_to: str = "end") -> Program:
    """`compile` with options made, and flags complete."""
    if compile_to not in PHASES:
        raise InputError(f"unknown compilation phase '{compile_to}': expected one of {', '.join(PHASES)}")
    data, name = read_source(source)
    invocation = Invocation(flags)
    invocation.load(data, name)
    report = Report(options.target.arch)
    phase = "start"
    for phase_end, step in _STEPS.items():
        goal = min(phase_end, compile_to, key=PHASES.index)
        if goal != phase:
            try:
                invocation.run(phase, goal)
            except CompileError as error:
                raise CompileError(error.message, (*report.warnings, *error.diagnostics)) from None
            phase = goal
        if goal == phase_end:
            step(invocation.module, options, report)
        if goal == compile_to:
            break
    result = invocation.vm_bytecode() if phase == "end" else str(invocation.module).encode()
    return Program(result, report)


def _import(module: ir.Operation, options: Options, report: Report) -> None:
    pipeline.run(module, pipeline.IMPORTING_PASSES, options)


def _materialise(module: ir.Operation, options: Options, report: Report) -> None:
    pipeline.run(module, (*pipeline.PREPARING_PASSES, *pipeline.CHOOSING_PASSES), options)
    report.collect(module)
    pipeline.run(module, pipeline.BUILDING_PASSES, options)
    report.add_unfused(module)


def _note_dispatches(module: ir.Operation, options: Options, report: Report) -> None:
    report.add_dispatches(module)
    if options.packed_parameters:
        report.manifest = parameter_operand.collect(module)


def _link(module: ir.Operation, options: Options, report: Report) -> None:
    report.add_operands(module)
    pipeline.run(module, pipeline.EXECUTABLE_PASSES, options)


def _finish(module: ir.Operation, options: Options, report: Report) -> None:
    """IREE's own work is all there is left."""


_STEPS = {
    "start": _import,
    "input": _materialise,
    "flow": _note_dispatches,
    "executable-sources": _link,
    "end": _finish,
}
"""What happens at the end of an IREE phase, in order."""
