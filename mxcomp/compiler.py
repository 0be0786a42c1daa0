"""Compiles MLIR to a vmfb: one process, one session of IREE, our passes between its phases."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from iree.compiler import ir

from mxcomp import fallback, pipeline
from mxcomp.errors import CompileError, InputError, MxcompError
from mxcomp.mlir import refusals, target_flags
from mxcomp.mlir.session import PHASES, Session, read_source
from mxcomp.options import AUTO, FASTEST, Options
from mxcomp.packing import parameter_operand
from mxcomp.profiling import Profile
from mxcomp.report import launches, spills
from mxcomp.report.report import Report
from mxcomp.support import files
from mxcomp.target import DEFAULT

if TYPE_CHECKING:
    from mxcomp.run.resident import Resident

_ARCHIVE, _IDENTIFIER, _IDENTIFIED = b"PK\3\4", b"IREE", 16
"""The first bytes of a vmfb: of an archive, or of a flatbuffer with its identifier among them."""
_FOLDING = "executable-configurations"
"""The phase of IREE after which gathers by expert are folded."""

_COMPUTED = 30_000_000
"""The number of wave instructions up to which a profile computes data that times depend on: half a million take a
second."""

Source: TypeAlias = str | bytes | Path | ir.Module


@dataclass(frozen=True)
class Program:
    """A compiled module: vmfb bytes (or MLIR text, where compilation stopped earlier) and the report."""

    vmfb: bytes
    report: Report

    def __repr__(self) -> str:
        return f"Program({len(self.vmfb)} bytes, {len(self.report.matmuls)} scaled matmuls for {self.report.target})"

    def save(self, path: str | Path) -> None:
        """Writes the program, completely or not at all. Raises InputError."""
        files.write({path: self.vmfb})

    @staticmethod
    def load(path: str | Path, report: str | Path | None = None) -> Program:
        """Loads a saved program; `report` is what `--report` wrote or `Report.to_json` returned. Raises InputError."""
        data = files.read(path)
        if not data.startswith(_ARCHIVE) and _IDENTIFIER not in data[:_IDENTIFIED]:
            raise InputError(f"{path} is no compiled program: expected a .vmfb of mxcomp-compile or iree-compile")
        known = Report(DEFAULT) if report is None else Report.from_json(files.read(report), str(report))
        return Program(data, known)

    def run(
        self,
        *arrays: np.ndarray,
        function: str | None = None,
        device: str = "sim",
        parameters: Mapping[str, str | Path] | None = None,
        engine: str | None = None,
        checks: str | Sequence[str] | None = None,
        profile: str | Path | None = None,
    ) -> list[np.ndarray]:
        """Calls a function, by default the only one, on the simulated GPU ("sim") or the GPU ("hip").

        Args:
            arrays: Its arguments.
            function: Its name.
            device: "sim" or "hip".
            parameters: Files by scope.
            engine: "fast", "numpy", "both" or "timing"; of the simulator, as what follows.
            checks: Names, "all" or "none".
            profile: A file that gets a line of JSON for each launch (`mxcomp.profiling.read`); see also `profile`.

        See `mxcomp.run.runtime.run`. Raises InputError and RunError.
        """
        from mxcomp.run import runtime

        return runtime.run(self.vmfb, function, arrays, device, engine, checks, parameters=parameters, profile=profile)

    def session(
        self,
        device: str = "sim",
        parameters: Mapping[str, str | Path] | None = None,
        engine: str | None = None,
        checks: str | Sequence[str] | None = None,
        profile: str | Path | None = None,
    ) -> Resident:
        """Returns the program, loaded once and called many times: `with program.session() as s: (y,) = s.main(x)`.

        Arguments are those of `run`. Raises InputError and RunError.
        """
        from mxcomp.run.resident import Resident

        return Resident(self.vmfb, device, engine, checks, parameters=parameters, profile=profile)

    def profile(
        self,
        *arrays: np.ndarray,
        function: str | None = None,
        parameters: Mapping[str, str | Path] | None = None,
        execute: bool = False,
    ) -> Profile:
        """Returns what each dispatch of a call does, its module and matmul, and its modelled µs on an MI355X.

        Args:
            arrays: Arguments of the call.
            function: Its name; None: the only one.
            parameters: Files by scope.
            execute: Compute results, with checks, as `run` does. Without, nothing is computed and sizes may be large:
                kernels are followed as far as their addresses and branches go. Where these depend on what the program
                computes, as with mixtures of experts, everything in front of them is computed after all if that takes
                a minute or so, without checks; else `Profile.guessed` has the dispatches whose times are those of
                other data. Where the program itself looks at what it computes, as in a loop, everything is computed.

        Raises InputError and RunError.
        """
        from mxcomp import profiling
        from mxcomp.run import runtime

        def profiled(engine: str | None, checks: str | None, asked: Sequence[int] = ()) -> Profile:
            with tempfile.TemporaryDirectory() as directory:
                path = Path(directory) / "profile.jsonl"
                runtime.run(
                    self.vmfb, function, arrays, "sim", engine, checks, parameters=parameters, profile=path, asked=asked
                )
                return profiling.read(path, () if asked else self.report.launches, function)

        if execute:
            return profiled(None, None)
        try:
            found = profiled("timing", None)
        except runtime.RunError:  # the program looks at what it computes, to launch something else or to end
            return profiled(None, "none")
        if not found.guessed or found.instructions_before > _COMPUTED:
            return found
        return found.with_data(profiled(None, "none", found.asked)) or profiled(None, "none")


def compile(
    source: Source,
    target: str = DEFAULT,
    data_tiling: bool = True,
    ukernels: str = FASTEST,
    ukernel_dirs: Sequence[str | Path] = (),
    iree_flags: Sequence[str] = (),
    compile_to: str = "end",
    packed_parameters: bool = False,
    tuned: str | Path | None = None,
    versions: bool = True,
    fuse_quantisers: str = AUTO,
    strict: bool = False,
) -> Program:
    """Compiles MX scaled matmuls of a module through our layouts and ukernels, and everything through IREE.

    What cannot be compiled so is compiled with less of ours, and a RuntimeWarning and `report.fallback` say why. May be
    called from several threads.

    Args:
        source: A path, MLIR text, bytes (text or bytecode) or an `ir.Module`.
        target: The GPU.
        data_tiling: Operands are packed; without, they are multiplied as they are stored.
        ukernels: "fastest" (by modelled time), "benefit" (by match rules), "none" or a ukernel's name.
        ukernel_dirs: Directories with more ukernels.
        iree_flags: Session flags of iree-compile; they may name no other GPU.
        compile_to: A phase of IREE at whose end to stop: the program is MLIR text then.
        packed_parameters: The program reads parameters that are operands in their packed layout: `report.manifest` says
            which, `mxcomp-pack` and `mxcomp.weights` make them.
        tuned: A table of mxcomp-tune: its ukernels come first.
        versions: A dynamic M gets kernels by ranges, of which the one that fits is run.
        fuse_quantisers: Quantisers are computed in matmuls' dispatches where that is modelled to be faster ("auto"),
            wherever they can be ("on"), or never ("off").
        strict: An error in the place of a program with less of ours.

    Raises a subclass of MxcompError.
    """
    options = Options.make(
        target, data_tiling, ukernels, tuple(ukernel_dirs), packed_parameters=packed_parameters, tuned=tuned,
        versions=versions, fuse_quantisers=fuse_quantisers, strict=strict,
    )  # fmt: skip
    flags = (*target_flags.missing(options.target, iree_flags), *iree_flags)
    program = compile_with(source, options, flags, compile_to)
    if program.report.fallback:
        warnings.warn(program.report.fallback, RuntimeWarning, stacklevel=2)
    return program


def compile_with(source: Source, options: Options, flags: Sequence[str], compile_to: str = "end") -> Program:
    """Compiles with complete options and flags. An error that it raises has the report made so far."""
    if compile_to not in PHASES:
        raise InputError(f"unknown compilation phase '{compile_to}': expected one of {', '.join(PHASES)}")
    if PHASES.index(compile_to) < PHASES.index(_FOLDING):
        options = replace(options, reads_in_place=False)
    first: MxcompError | None = None
    for how, narrower in fallback.steps(options):
        report = Report(options.target.name)
        try:
            with closing(Session(flags)) as session:
                _advance(session, source, narrower, report, compile_to)
                vmfb = session.output()
        except MxcompError as error:
            first = first or error.with_report(report, report.warnings)
            if not isinstance(error, CompileError) or not fallback.may_help(error, report):
                break
        else:
            report.fallback = None if first is None else f"{first.message}; compiled {how} instead: please report it"
            return Program(vmfb, report)
    assert first is not None
    raise first from first.__cause__


def _advance(session: Session, source: Source, options: Options, report: Report, compile_to: str) -> None:
    """Runs our passes between IREE's phases, up to the end of the phase `compile_to`."""
    module = session.load(*read_source(source))
    pipeline.run(module, pipeline.IMPORTING_PASSES, options)

    try:
        is_imported = session.advance("input", compile_to)
    except CompileError as error:
        raise _naming_operators(error, source) from error
    if is_imported:
        module = session.without_frontends()
        pipeline.run(module, (*pipeline.ENTRY_PASSES, *pipeline.PREPARING_PASSES, *pipeline.CHOOSING_PASSES), options)
        report.collect(module)
        pipeline.run(module, pipeline.BUILDING_PASSES, options)
        report.add_unfused(module)

    if session.advance("flow", compile_to):
        pipeline.run(module, pipeline.DISPATCH_PASSES, options)
        report.add_dispatches(module)
        if options.packed_parameters:
            report.manifest = parameter_operand.collect(module)

    if session.advance("executable-sources", compile_to):
        report.add_operands(module)
        report.launches = launches.find(module)
        pipeline.run(module, pipeline.EXECUTABLE_PASSES, options)

    if session.advance("executable-configurations", compile_to):
        pipeline.run(module, pipeline.CONFIGURED_PASSES, options)

    if options.ukernel_dirs and session.advance("hal", compile_to):
        spills.refuse(module, report, options)

    session.advance("end", compile_to)


def _naming_operators(error: CompileError, source: Source) -> CompileError:
    """Returns an error of IREE's importers with the PyTorch operators that caused it, if any did."""
    with closing(Session()) as session:
        module = session.load(*read_source(source))
        pipeline.run(module, pipeline.IMPORTING_PASSES, Options.make())
        found = refusals.refused(module)
    return CompileError(f"IREE cannot import {'; '.join(found)}", error.diagnostics) if found else error
