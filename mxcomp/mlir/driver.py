"""Flags of iree-compile's main program, which IREE's sessions do not know and `Session` implements.

--compile-mode --compile-from --output-format --emit-mlir-bytecode[-version] --verify --dump-compilation-phases-to
--remarks-filter --remarks-output-file
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from mxcomp.errors import InputError

OUTPUT_FORMATS = ("vm-bytecode", "vm-asm", "vm-c")
_MODES = ("std", "vm", "hal-executable", "precompile")
_LATER = (
    "mxcomp-compile --compile-to=executable-sources writes what iree-compile --compile-from=executable-sources takes"
)
_TRUE, _FALSE = ("", "true", "TRUE", "True", "1"), ("false", "FALSE", "False", "0")


@dataclass(frozen=True)
class DriverFlags:
    """The values of the flags. With `compile_from` "input" a module has been through IREE's phase `input` already."""

    compile_mode: str = "std"
    compile_from: str = "start"
    output_format: str = "vm-bytecode"
    emit_mlir_bytecode: bool = False
    emit_mlir_bytecode_version: int = -1
    verify: bool = True
    dump_compilation_phases_to: str = ""
    remarks_filter: str = ""
    remarks_output_file: str = "mlir-remarks.yaml"

    @staticmethod
    def of(flags: Sequence[str]) -> DriverFlags:
        """Parses flags as `split` returns them; the last one counts. Raises InputError."""
        values: dict[str, Any] = {}
        for flag in flags:
            name, _, text = flag.removeprefix("--").partition("=")
            values[name.replace("-", "_")] = _value(flag, _KINDS[name], text)
        result = DriverFlags(**values)
        if result.compile_mode not in _MODES:
            raise InputError(f"--compile-mode={result.compile_mode}: expected one of {', '.join(_MODES)}")
        if result.compile_mode != "std":
            raise InputError(
                f"--compile-mode={result.compile_mode}: expected std, the one mode in which scaled matmuls are "
                f"recognised: iree-compile --compile-mode={result.compile_mode} does the rest"
            )
        if result.compile_from not in ("start", "input"):
            raise InputError(
                f"--compile-from={result.compile_from}: expected start or input, since scaled matmuls are recognised "
                f"after phase input: {_LATER}"
            )
        if result.output_format not in OUTPUT_FORMATS:
            raise InputError(f"--output-format={result.output_format}: expected one of {', '.join(OUTPUT_FORMATS)}")
        return result

    def is_text(self, compile_to: str) -> bool:
        """Returns whether the output is text: MLIR or C."""
        if compile_to == "end" and self.output_format != "vm-asm":
            return self.output_format == "vm-c"
        return not self.emit_mlir_bytecode


_KINDS = {field.name.replace("_", "-"): type(field.default) for field in fields(DriverFlags)}
"""The names of flags, and the types of their values."""


def split(flags: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns flags of the main program, each as --name=value or --name, and all others. Raises InputError.

    As LLVM reads them: with one dash or two, and the value behind "=" or, unless it is a boolean, as the next argument.
    """
    own, others = [], []
    rest = iter(flags)
    for flag in rest:
        name, separator, value = flag.lstrip("-").partition("=")
        if name not in _KINDS or not 1 <= len(flag) - len(flag.lstrip("-")) <= 2:
            others.append(flag)
            continue
        if not separator and _KINDS[name] is not bool:
            try:
                separator, value = "=", next(rest)
            except StopIteration:
                raise InputError(f"{flag}: expected a value, {flag}=…") from None
        own.append(f"--{name}{separator}{value}")
    return tuple(own), tuple(others)


def _value(flag: str, kind: type, text: str) -> bool | int | str:
    if kind is bool:
        if text not in (*_TRUE, *_FALSE):
            raise InputError(f"{flag}: expected true or false")
        return text in _TRUE
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise InputError(f"{flag}: expected an integer") from None
    return text
