"""Exceptions of the public API. Every message says where, what was expected and what to do."""

from __future__ import annotations


class MxcompError(Exception):
    """Base of all errors raised by mxcomp on bad input.

    `diagnostics` holds IREE's own messages, in the order it gave them.
    """

    def __init__(self, message: str, diagnostics: tuple[str, ...] = ()) -> None:
        super().__init__("\n".join((message, *diagnostics)))
        self.message = message
        self.diagnostics = diagnostics


class InputError(MxcompError):
    """The source is missing, unreadable or not valid MLIR, or an option has no meaning."""


class TargetError(MxcompError):
    """The target is unknown or has no scaled matrix instructions."""


class UkernelError(MxcompError):
    """A ukernel file, its match rule or its signature is wrong, or a ukernel asked for does not exist."""


class CompileError(MxcompError):
    """IREE rejected the module; `diagnostics` says why."""


class VerifyError(MxcompError):
    """A program cannot be verified on the CPU (never: its numbers are wrong, which is a result, not an error)."""
