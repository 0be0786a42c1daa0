"""Compiles a program, runs it on the simulated GPU and compares: right, fallback, wrong, crash or refused.

A fallback is right too, but slower than it ought to be: what was asked for could not be compiled (`mxcomp.fallback`).
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
from drawing import SCOPE
from nodes import BITS, FLOATS, VALUES, Node, outside, unpacked
from program import FEW, Program
from themes import Function

import mxcomp
from mxcomp.errors import InputError, MxcompError
from mxcomp.options import AUTO, ON, Options
from mxcomp.plans.multi_m import MultiM
from mxcomp.plugin.emit import emit_plugin
from mxcomp.report import Report
from mxcomp.run import runtime
from mxcomp.run.resident import Resident
from mxcomp.run.runtime import RunError
from mxcomp.selection import split_k
from mxcomp.sim.schedule import ORDERS
from mxcomp.target import get_target
from mxcomp.weights import checkpoint
from mxcomp.weights.checkpoint import Checkpoint, Tensor

LONG = {False: 30_000, True: 2_000}
"""Products from which on compiling a kernel that IREE made pays off in the simulator; whether sizes are dynamic."""
NO_PLUGIN = (
    "no scaled matmul to emit a plugin for",
    "a plugin holds matmuls only",
    "LHS and RHS are computed alike",
)
"""What --emit-plugin says of a model that has to be compiled by mxcomp-compile."""


@dataclass(frozen=True)
class Outcome:
    """`kind` is right, fallback, wrong, crash or refused; `message` says of what."""

    kind: str
    message: str = ""
    seconds: float = 0.0


def check(program: Program) -> Outcome:
    """Whatever happens is an outcome, in CPU seconds; only what ends the process is not."""
    start = sum(os.times()[:4])
    try:
        found = _run(program)
    except MxcompError as error:
        broken = isinstance(error, RunError) or "this is a bug in mxcomp" in str(error)
        kind = "crash" if broken else "refused"
        found = Outcome(kind, f"{type(error).__name__}: {error}")
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        found = Outcome("crash", f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})")
    return Outcome(found.kind, found.message, sum(os.times()[:4]) - start)


def _run(program: Program) -> Outcome:
    with tempfile.TemporaryDirectory() as directory:
        vmfb, parameters, engine, fallback = _compiled(program, Path(directory))
        wrong = []
        with _calls(program, vmfb, engine, parameters) as call:
            for number, functions in enumerate((program.functions, *program.later)):
                for function in functions:
                    for i, (result, node) in enumerate(zip(call(function), function.results, strict=True)):
                        if problem := compared(result, node):
                            wrong.append(f"@{function.name} result {i} of call {number}: {problem}")
    if wrong:
        return Outcome("wrong", "\n".join(wrong))
    return Outcome("fallback", fallback) if fallback else Outcome("right")


@contextmanager
def _calls(
    program: Program, vmfb: bytes, engine: str, parameters: dict[str, Path] | None
) -> Iterator[Callable[[Function], list[np.ndarray]]]:
    """What calls a function: a program that is called again stays loaded."""
    how = {
        "engine": engine,
        "schedule": ORDERS[program.seed % len(ORDERS)],
        "seed": program.seed,
        "parameters": parameters,
    }
    if not program.later:
        yield lambda function: runtime.run(vmfb, function.name, function.inputs, "sim", **how)
        return
    with Resident(vmfb, "sim", **how) as session:
        yield lambda function: session.run(*function.inputs, function=function.name)


def _compiled(program: Program, directory: Path) -> tuple[bytes, dict[str, Path] | None, str, str | None]:
    """The program, files of its parameters if it has any, the engine that runs it sooner, and its report's fallback."""
    if program.way == "plugin":
        vmfb, fallback = _with_plugin(program, directory)
        return vmfb, None, "fast" if program.products > LONG[False] else "numpy", fallback
    gain = MultiM.least_gain if program.versions == "by gain" else -math.inf
    least = (-math.inf, 1) if program.has_parts else (split_k._LEAST_GAIN, split_k._LEAST_TILES)
    with (
        mock.patch.object(MultiM, "least_gain", gain),
        mock.patch.multiple(split_k, _LEAST_GAIN=least[0], _LEAST_TILES=least[1]),
    ):
        compiled = mxcomp.compile(
            program.text,
            data_tiling=program.data_tiling,
            ukernels=program.ukernels,
            fuse_quantisers=ON if program.versions == FEW or program.seed % 2 else AUTO,  # by time few would be
            packed_parameters=program.way == "packed" and bool(program.parameters),
        )
    parameters = None
    if program.parameters:
        tensors: Mapping[str, np.ndarray] = {key: array.view(np.uint8) for key, array in program.parameters.items()}
        assert Report.from_json(compiled.report.to_json()) == compiled.report
        if compiled.report.manifest is not None and compiled.report.manifest.parameters:
            source = Checkpoint({key: Tensor(array) for key, array in tensors.items()})
            tensors = checkpoint.pack(compiled.report.manifest, source)
        checkpoint.save(directory / "w.irpa", tensors)
        parameters = {SCOPE: directory / "w.irpa"}
    by_iree = any(matmul.operands == "plain" for matmul in compiled.report.matmuls)
    dynamic = any(feature.startswith("dynamic:") for feature in program.features)
    engine = "fast" if by_iree and program.products > LONG[dynamic] else "numpy"
    return compiled.vmfb, parameters, engine, compiled.report.fallback


def _with_plugin(program: Program, directory: Path) -> tuple[bytes, str | None]:
    """What a stock iree-compile makes with the files of --emit-plugin, or we, if they cannot serve the model.

    With the fallback of our report.
    """
    options = Options.make(data_tiling=program.data_tiling, ukernels=program.ukernels)
    flags = get_target("gfx950").iree_flags
    try:
        emit_plugin(program.text, options, directory / "plugin", flags, flags)
    except InputError as error:
        if not any(reason in str(error) for reason in NO_PLUGIN):
            raise
        compiled = mxcomp.compile(program.text, data_tiling=program.data_tiling, ukernels=program.ukernels)
        return compiled.vmfb, compiled.report.fallback
    (directory / "model.mlir").write_text(program.text)
    compiler = Path(sys.executable).parent / "iree-compile"
    command = [compiler, f"@{directory}/plugin/mxcomp.rsp", directory / "model.mlir", "-o", directory / "model.vmfb"]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(f"iree-compile with the plugin: {made.stderr[:2000]}")
    return (directory / "model.vmfb").read_bytes(), None


def compared(found: np.ndarray, node: Node) -> str:
    """What is wrong with a result, or nothing."""
    if node.kind not in FLOATS:
        codes = unpacked(np.ascontiguousarray(found).view(np.uint8), BITS[node.kind])
        if codes.size != node.data.size:
            return f"shape {found.shape}"
        codes = codes.reshape(node.shape)
        wrong = codes != node.data
        if node.kind in VALUES:  # zeros have two codes
            a, b = VALUES[node.kind][codes], VALUES[node.kind][node.data]
            wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)))
        if node.error is not None:  # nothing is known of some
            wrong &= ~np.isnan(node.error)
        found = codes
    elif found.shape != node.shape:
        return f"shape {found.shape}, expected {node.shape}"
    elif found.dtype != np.dtype(FLOATS[node.kind]):
        return f"type {found.dtype}, expected {node.kind}"
    else:
        wrong = outside(found, node)
    places = np.argwhere(wrong)
    if not len(places):
        return ""
    at = tuple(int(i) for i in places[0])
    error = 0.0 if node.error is None else np.broadcast_to(node.error, node.shape)[at]
    return f"{len(places)} of {found.size} are wrong; {list(at)} is {found[at]}, expected {node.data[at]} ± {error:.1e}"
