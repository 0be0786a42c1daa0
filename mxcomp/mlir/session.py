"""One IREE compilation in this process, phase by phase, with diagnostics as data.

The embedding API of iree-base-compiler wraps sessions and invocations, but neither phases nor callback diagnostics;
both are called through ctypes here (compiler/bindings/c/iree/compiler/embedding_api.h in IREE).
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path

from iree.compiler import api, ir
from iree.compiler.api import ctypes_dl

from mxcomp.errors import CompileError, InputError
from mxcomp.mlir import driver, graph
from mxcomp.mlir.driver import DriverFlags
from mxcomp.support import files

PHASES = (
    "start", "input", "abi", "preprocessing", "global-optimization", "dispatch-creation", "flow", "stream",
    "executable-sources", "executable-configurations", "executable-targets", "hal", "vm", "end",
)  # fmt: skip
"""The names of IREEVMPipelinePhase. IREE silently ignores a wrong name, so they are checked here."""

_BUILT = (
    "affine", "amdgpu", "arith", "bufferization", "cf", "flow", "func", "gpu", "hal", "iree_codegen", "iree_encoding",
    "iree_gpu", "iree_linalg_ext", "iree_tensor_ext", "linalg", "llvm", "math", "memref", "rocdl", "scf", "tensor",
    "util", "vector",
)  # fmt: skip
"""Dialects of operations that our passes build. Those built before their dialect is loaded are malformed."""

_FRONTENDS = ("chlo.broadcast_add", "stablehlo.add", "tosa.add", "torch.operator", "vhlo.add_v1")
"""An operation of each dialect that IREE converts in its phase `input`. The parser loads those that a module has."""
_INPUT_TYPE = "--iree-input-type"

_BYTECODE_MAGIC = b"ML\xefR"
_LONGEST_DIAGNOSTIC = 1000
_SEVERITIES = ("note", "warning", "error", "remark")
_DIAGNOSTIC = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_lib = ctypes_dl._dylib


def set_global_flags(program: str, flags: Sequence[str]) -> None:
    """Sets any iree-compile flags, global ones too, for all later invocations of this process; call it once.

    LLVM's parser prints a message and exits with code 1 on a flag it does not know.
    """
    api._initializeGlobalCL(program, *flags)


def flag_values(flags: Sequence[str] = ()) -> dict[str, str]:
    """Returns all session flags by name, after `flags` and global ones: lists joined by commas, "" where not given.

    Raises InputError where one of `flags` is refused.
    """
    session = api.Session()
    _set_flags(session, driver.split(flags)[1])
    pairs = (flag.partition("=") for flag in session.get_flags())
    return {name: value for name, _, value in pairs}


def _set_flags(session: api.Session, flags: Sequence[str]) -> None:
    try:
        session.set_flags(*flags)
    except ValueError as error:
        raise InputError(f"IREE refuses a flag: {str(error).strip()}") from None


class NamedSource(bytes):
    """Source bytes with a name for diagnostics."""

    name: str

    @staticmethod
    def of(data: bytes, name: str) -> NamedSource:
        result = NamedSource(data)
        result.name = name
        return result


SPLIT_MARK = "// -----"
"""The line between modules in one file, which may have more behind it; the same as in MLIR's own tools."""


def split_source(source: bytes, name: str) -> Iterator[NamedSource]:
    """Returns the modules of a file, each behind empty lines, so that locations are those of the file."""
    line = 0
    for piece in re.split(rf"^{SPLIT_MARK}.*$".encode(), source, flags=re.M):
        padded = b"\n" * line + piece
        yield NamedSource.of(padded, name)
        line = padded.count(b"\n")


class Session:
    """A module on its way through IREE's pipeline: one session of its compiler, and one invocation in it.

    `flags` are iree-compile session flags, and those of its main program (`mxcomp.mlir.driver`); InputError where one
    of them is refused. The module given to `load` belongs to the invocation's context, and `module` stays the same
    operation from phase to phase, but for `without_frontends`: it is changed in place.
    """

    def __init__(self, flags: Sequence[str] = ()) -> None:
        own, self._session_flags = driver.split(flags)
        self._flags = DriverFlags.of(own)
        self.diagnostics: list[str] = []
        # IREE keeps only the pointer: the callback has to live as long as the invocation.
        self._callback = _DIAGNOSTIC(self._on_diagnostic)
        self.module: ir.Operation
        self._begin()
        self.phase = self._flags.compile_from

    def _begin(self) -> None:
        self._session = api.Session()
        _set_flags(self._session, self._session_flags)
        self.context = self._session.context
        for dialect in _BUILT:
            self.context.get_dialect_descriptor(dialect)
        self._invocation = self._session.invocation()
        _lib.ireeCompilerInvocationEnableCallbackDiagnostics(
            ctypes.c_void_p(self._invocation._inv_p), 0, self._callback, None
        )
        self._set_up()

    def _set_up(self) -> None:
        """Applies flags of the main program to the invocation."""
        handle, flags = ctypes.c_void_p(self._invocation._inv_p), self._flags
        _lib.ireeCompilerInvocationSetVerifyIR(handle, ctypes.c_bool(flags.verify))
        _lib.ireeCompilerInvocationSetDumpCompilationPhasesTo(handle, flags.dump_compilation_phases_to.encode())
        if flags.remarks_filter:
            try:
                self.context.enable_remarks(all_filter=flags.remarks_filter, output_file=flags.remarks_output_file)
            except ValueError as error:
                raise InputError(f"--remarks-output-file={flags.remarks_output_file}: {error}") from None

    def close(self) -> None:
        """Writes IREE's remarks, if they are asked for."""
        self.context.finalize_remarks()

    def _on_diagnostic(self, severity: int, message: int, size: int, _user_data: int) -> None:
        text = ctypes.string_at(message, size).decode(errors="replace").strip()
        # After a blank line IREE prints the whole operation, which can fill pages.
        summary = text.split("\n\n")[0][:_LONGEST_DIAGNOSTIC]
        self.diagnostics.append(f"{_SEVERITIES[severity]}: {summary}")

    def load(self, source: bytes, name: str) -> ir.Operation:
        """Parses MLIR text or bytecode; returns the module. Raises InputError."""
        text = not source.startswith(_BYTECODE_MAGIC)  # text has to end in a null byte
        buffer = api.Source.wrap_buffer(self._session, source + b"\0" if text else source, buffer_name=name)
        if not self._invocation.parse_source(buffer):
            raise InputError(f"{name} is not valid MLIR", self._take_diagnostics())
        self.module = self._invocation.export_module()
        for op in graph.walk(self.module):
            # IREE's parser lets them pass, and its pipeline then crashes.
            if not self.context.is_registered_operation(op.name):
                raise InputError(f"{op.location}: unknown operation '{op.name}': no dialect of IREE has it")
        self._invocation.import_module(self.module)
        self._set_input_type()
        return self.module

    def _has_frontends(self) -> bool:
        return any(self.context.is_registered_operation(each) for each in _FRONTENDS)

    def _set_input_type(self) -> None:
        """Tells IREE not to look for frontends' dialects in a module without: it would load them, and each of its
        canonicalizers has patterns for each operation of a loaded dialect, which takes a sixth of compiling."""
        if self._has_frontends():
            self.context.load_all_available_dialects()
        elif f"{_INPUT_TYPE}=auto" in self._session.get_flags():
            _set_flags(self._session, [f"{_INPUT_TYPE}=none"])

    def without_frontends(self) -> ir.Operation:
        """Moves an imported module to a context without frontends' dialects, and returns it: a fifth of what is left
        of compiling."""
        if self._has_frontends() and not self._flags.remarks_filter:  # remarks are of one context
            data, name = read_source(self.module)
            self._begin()
            self.load(data, name)
        return self.module

    def advance(self, phase: str, stop: str = "end") -> bool:
        """Runs to the end of a phase, but not beyond `stop`, and returns whether it got there. Raises what `run`
        raises."""
        if PHASES.index(stop) < PHASES.index(self._flags.compile_from):
            raise InputError(
                f"--compile-to={stop}: expected {self._flags.compile_from} or later, as --compile-from says"
            )
        goal = min(phase, stop, key=PHASES.index)
        if goal != self.phase:
            self.run(self.phase, goal)
        return goal == phase

    def run(self, from_phase: str, to_phase: str) -> None:
        """Compiles from the end of one phase to the end of another. Raises CompileError with IREE's diagnostics."""
        for phase in (from_phase, to_phase):
            if phase not in PHASES:
                raise InputError(f"unknown compilation phase '{phase}': expected one of {', '.join(PHASES)}")
        handle = ctypes.c_void_p(self._invocation._inv_p)
        _lib.ireeCompilerInvocationSetCompileFromPhase(handle, from_phase.encode())
        _lib.ireeCompilerInvocationSetCompileToPhase(handle, to_phase.encode())
        if not self._invocation.execute():
            raise CompileError(f"IREE could not compile the module (phase {to_phase})", self._take_diagnostics())
        self.phase = to_phase

    def output(self) -> bytes:
        """Returns the vmfb, or what --output-format asks for; before phase "end", MLIR. Raises CompileError."""
        if self.phase == "end" and self._flags.output_format != "vm-asm":
            return self.vm_bytecode() if self._flags.output_format == "vm-bytecode" else self._written(self._write_c)
        if self._flags.emit_mlir_bytecode:
            return self._written(self._write_mlir_bytecode)
        return str(self.module).encode()

    def run_passes(self, pipeline: str) -> None:
        """Runs a textual IREE pipeline, as it stands inside `builtin.module(…)`. Raises CompileError."""
        if not self._invocation.execute_text_pass_pipeline(pipeline):
            raise CompileError(f"the pass pipeline {pipeline} failed", self._take_diagnostics())

    def vm_bytecode(self) -> bytes:
        """Returns the compiled module as vmfb bytes, after phase `end`. Raises CompileError."""
        return self._written(self._invocation.output_vm_bytecode)

    def _write_c(self, output: api.Output) -> None:
        # Declared here: without a type of its result, ctypes cuts the pointer to an error.
        write = _lib.ireeCompilerInvocationOutputVMCSource
        write.restype, write.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p]
        ctypes_dl._handle_error(write(self._invocation._inv_p, output._output_p))

    def _write_mlir_bytecode(self, output: api.Output) -> None:
        self._invocation.output_ir_bytecode(output, self._flags.emit_mlir_bytecode_version)

    def _written(self, write: Callable[[api.Output], None]) -> bytes:
        with api.Output.open_membuffer() as output:
            try:
                write(output)
            except ValueError as error:
                raise CompileError(f"IREE: {error}", self._take_diagnostics()) from None
            return bytes(output.map_memory())

    def _take_diagnostics(self) -> tuple[str, ...]:
        taken, self.diagnostics = tuple(self.diagnostics), []
        return taken


def read_source(source: str | bytes | Path | ir.Module | ir.Operation) -> tuple[bytes, str]:
    """Returns source bytes and a name for diagnostics.

    `source` is a path, MLIR text, bytes (text or bytecode) or an `ir.Module`; text is told from a path by its line
    break or brace. Raises InputError for a missing or unreadable file.
    """
    if isinstance(source, ir.Module | ir.Operation):
        buffer = BytesIO()
        source.operation.write_bytecode(buffer)
        return buffer.getvalue(), "module"
    if isinstance(source, NamedSource):
        return source, source.name
    if isinstance(source, bytes):
        return source, "source"
    if isinstance(source, str) and any(mark in source for mark in "\n{"):
        return source.encode(), "source"
    return files.read(source), str(source)
