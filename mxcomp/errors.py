"""Exceptions of the public API. Every message says where, what was expected and what to do."""

from __future__ import annotations

from typing import Any, Self


class MxcompError(Exception):
    """Base of all errors raised by mxcomp on bad input.

    Attributes:
        message: What is wrong, and what to do.
        diagnostics: IREE's own messages, in the order it gave them.
        report: What had become of each scaled matmul when a compilation failed (`mxcomp.report.Report`), else None.
    """

    def __init__(self, message: str, diagnostics: tuple[str, ...] = ()) -> None:
        super().__init__("\n".join((message, *diagnostics)))
        self.message = message
        self.diagnostics = diagnostics
        self.report: Any = None

    def with_report(self, report: Any, warnings: tuple[str, ...]) -> Self:
        """Returns the same error with the report of the compilation so far; `warnings` come before diagnostics."""
        error = type(self)(self.message, (*warnings, *self.diagnostics))
        error.report, error.__cause__ = report, self.__cause__
        return error


class InputError(MxcompError):
    """The source is missing, unreadable or not valid MLIR, or an option has no meaning."""


class TargetError(MxcompError):
    """The target is unknown or has no scaled matrix instructions."""


class UkernelError(MxcompError):
    """A ukernel file, its match rule or its signature is wrong, or a ukernel asked for does not exist."""


class CompileError(MxcompError):
    """IREE rejected the module; `diagnostics` says why."""


class InternalError(CompileError):
    """A pass of mxcomp failed or left invalid IR; `diagnostics` says how. Never the module's fault."""

    def __init__(self, message: str, diagnostics: tuple[str, ...] = ()) -> None:
        super().__init__(message.removesuffix(_OURS) + _OURS, diagnostics)


_OURS = ": this is a bug in mxcomp"


class VerifyError(MxcompError):
    """A program cannot be verified on the CPU (wrong numbers are a result, not this error)."""
